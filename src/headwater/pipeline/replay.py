"""A table back into streams: in order, once, and taken up again where it was interrupted.

The first run fixes what is to be done, the table's version included, in `replay.json` of the
checkpoint. Every run makes the same appends under the same producer ids, so those that an earlier
run made are acknowledged and add nothing.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.lake.locations import Folder
from headwater.lake.tables import LakeError, open_table
from headwater.pipeline.context import Context
from headwater.pipeline.frames import read_table
from headwater.pipeline.progress import Report
from headwater.pipeline.spec import Replay, Spec

PARTITIONS = 8
"""Streams that are written at the same time. Part of the plan: it decides what each task writes."""

PLAN = "replay.json"


def replay(spark: SparkSession, spec: Spec, context: Context, note: Any) -> None:
    """Raises LakeError when the plan on disk is of another replay."""
    job = spec.replay
    assert job is not None
    folder = Folder(context.checkpoint(spec))
    plan = _plan(folder, job)
    if plan["done"]:
        note(Report(spec.name, "replay", "finished"))
        return
    note(Report(spec.name, "replay", "running"))
    table = replace(job.table, version=plan["version"])
    rows = arrange(read_table(spark, table.encode()), job, plan["partitions"])
    options = {
        **context.connection,
        "producerId": f"replay/{plan['id']}",
        "order": "kept",
        "contentType": job.content_type,
        "closeOnFinish": str(job.close).lower(),
    }
    if job.stream is not None:
        options["stream"] = job.stream
    if job.bucket is not None:
        options["bucket"] = job.bucket
    rows.write.format("headwater").mode("append").options(**options).save()
    folder.write(PLAN, json.dumps({**plan, "done": True}).encode())
    note(Report(spec.name, "replay", "finished"))


def _plan(folder: Folder, job: Replay) -> dict[str, Any]:
    """What was fixed by the first run; made now if this is it."""
    asked = repr(job)
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
        "done": False,
    }
    folder.write(PLAN, json.dumps(plan).encode())
    return plan


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
    # Rows that are alike in all of these are alike, so their order does not matter.
    one = job.stream is not None
    sorted_by = [*order, *target, job.value] if one else [*target, *order, job.value]
    cut = rows.repartition(1) if one else rows.repartition(partitions, *target)
    cut = cut.sortWithinPartitions(*sorted_by)
    kept = [name for name in ("key", "headers", *([] if one else target)) if name in rows.columns]
    return cut.select(F.col(job.value).alias("value"), *kept)
