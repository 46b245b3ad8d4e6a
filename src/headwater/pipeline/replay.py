"""A table back into streams: in order, once, and taken up again where it was interrupted.

The first run fixes what is to be done, the table's version included, in `replay.json` of the
checkpoint. Every run makes the same appends under the same producer ids, so those that an earlier
run made are acknowledged and add nothing. When all is written, the plan says which streams are
left to be closed.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from headwater.client import StreamNotFound
from headwater.lake.locations import Folder
from headwater.lake.tables import LakeError, open_table
from headwater.pipeline.context import Context
from headwater.pipeline.frames import read_table
from headwater.pipeline.progress import Report
from headwater.pipeline.spec import DEFAULT_BUCKET, Replay, Spec
from headwater.spark.targets import Target

PARTITIONS = 8
"""Streams that are written at the same time. Part of the plan: it decides what each task writes."""

PLAN = "replay.json"
QUERY = "replay"

Note = Callable[[Report], None]


def replay(spark: SparkSession, spec: Spec, context: Context, note: Note) -> None:
    """Raises LakeError when the plan on disk is of another replay."""
    job = spec.replay
    assert job is not None
    folder = Folder(context.checkpoint(spec))
    plan = _plan(folder, job)
    if not plan["done"]:
        note(Report(spec.name, QUERY, "running"))
        if not plan["written"]:
            began_s = time.monotonic()
            rows, targets = _write(spark, job, plan, context)
            plan = _keep(folder, {**plan, "written": True, "close": targets})
            note(_report(spec, rows, time.monotonic() - began_s))
        # Only now: an append to a stream that is closed would be refused, even as a repeat.
        _close(job, plan["close"], context)
        _keep(folder, {**plan, "done": True})
    note(Report(spec.name, QUERY, "finished"))


def _report(spec: Spec, rows: int, took_s: float) -> Report:
    rate = round(rows / max(took_s, 0.001), 1)
    return Report(spec.name, QUERY, "running", 0, rows, rate, int(took_s * 1000))


def _write(
    spark: SparkSession, job: Replay, plan: Mapping[str, Any], context: Context
) -> tuple[int, list[Target]]:
    """Returns how many rows went to the streams, and those streams if they are to be closed."""
    table = replace(job.table, version=plan["version"])
    rows = arrange(read_table(spark, table.encode()), job, plan["partitions"])
    options = {
        **context.connection,
        "producerId": f"replay/{plan['id']}",
        "order": "kept",
        "contentType": job.content_type,
    }
    if job.stream is not None:
        options["stream"] = job.stream
    if job.bucket is not None:
        options["bucket"] = job.bucket
    written = Observation()
    counted = rows.observe(written, F.count(F.lit(1)).alias("rows"))
    counted.write.format("headwater").mode("append").options(**options).save()
    return written.get["rows"], _targets(rows, job) if job.close else []


def _targets(rows: DataFrame, job: Replay) -> list[Target]:
    """The streams that rows go to; see targets.split."""
    bucket = job.bucket or DEFAULT_BUCKET
    if job.stream is not None:
        return [Target(bucket, job.stream)]
    by_column = job.bucket is None and "bucket" in rows.columns
    of = F.coalesce(F.col("bucket"), F.lit(bucket)) if by_column else F.lit(bucket)
    found = rows.select(of.alias("bucket"), "stream").distinct().collect()
    return sorted(Target(row["bucket"], row["stream"]) for row in found)


def _close(job: Replay, targets: Iterable[Sequence[str]], context: Context) -> None:
    """Closing a stream again changes nothing."""
    with context.client() as client:
        for bucket, name in targets:
            try:
                client.close_stream(bucket, name)
            except StreamNotFound:
                if job.stream is None:
                    continue  # deleted since
                client.create(bucket, name, job.content_type)  # there were no rows for it
                client.close_stream(bucket, name)


def _keep(folder: Folder, plan: dict[str, Any]) -> dict[str, Any]:
    folder.write(PLAN, json.dumps(plan).encode())
    return plan


def _plan(folder: Folder, job: Replay) -> dict[str, Any]:
    """What was fixed by the first run; made now if this is it."""
    asked = _asked(job)
    found = folder.read(PLAN)
    if found is not None:
        plan: dict[str, Any] = json.loads(found)
        if plan["job"] != asked:
            raise LakeError(
                f"{folder.url(PLAN)} is of another replay; name this one differently, or give it "
                "a checkpoint of its own"
            )
        return plan
    table = open_table(job.table)
    if table.schema() is None:
        raise LakeError(f"there is no {job.table.format} table at {job.table.location}")
    plan = {
        "job": asked,
        "id": secrets.token_hex(8),
        "version": table.current_version(),
        "partitions": PARTITIONS,
        "written": False,
        "close": [],
        "done": False,
    }
    return _keep(folder, plan)


def _asked(job: Replay) -> dict[str, Any]:
    """What makes it this replay and no other. Without the keys to the table's store and catalog:
    they may change, and have no place in a file."""
    table = [job.table.format, job.table.location, job.table.catalog.get("name")]
    return {**asdict(job), "order_by": list(job.order_by), "table": table}


def arrange(rows: DataFrame, job: Replay, partitions: int) -> DataFrame:
    """The rows of each stream in one partition, in order: the same for the same rows."""
    if job.where is not None:
        rows = rows.where(job.where)
    order = list(job.order_by)
    if order == ["offset"] and "stream_id" in rows.columns:
        order = ["stream_id", "offset"]  # of two streams with one name, the older comes first
    missing = [name for name in (*order, job.value) if name not in rows.columns]
    if missing:
        raise LakeError(f"the table has no column {missing[0]}; it has {', '.join(rows.columns)}")
    target = [name for name in ("bucket", "stream") if name in rows.columns]
    if job.stream is None and "stream" not in target:
        raise LakeError("say which stream to write to: the table has no column stream")
    beside = [name for name in ("key", "headers") if name in rows.columns]
    one = job.stream is not None
    first = [*order, *target] if one else [*target, *order]
    cut = rows.repartition(1) if one else rows.repartition(partitions, *target)
    # Rows that are alike in all of these are alike, so their order does not matter.
    cut = cut.sortWithinPartitions(*first, job.value, *beside)
    kept = beside if one else [*beside, *target]
    return cut.select(F.col(job.value).alias("value"), *kept)
