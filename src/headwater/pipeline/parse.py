"""Pipeline files to a Spec: every key is known, every value fits, every name leads somewhere.

What is wrong is a SpecError with its line. Nothing here needs Spark.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headwater.pipeline.flows import add_flows, read_of
from headwater.pipeline.given import check_archived
from headwater.pipeline.marks import Fields, Node
from headwater.pipeline.spec import (
    ARCHIVE_PARTITIONS,
    DEFAULT_BUCKET,
    STARTS,
    Archive,
    Replay,
    Spec,
)
from headwater.pipeline.values import (
    bucket_of,
    endpoint_of,
    name_of,
    settings_of,
    table_of,
    target_of,
    trigger_of,
)
from headwater.pipeline.wiring import check_wiring


def parse(root: Node, default_name: str) -> Spec:
    """Raises SpecError with the line of the first thing that is wrong."""
    fields = Fields(root, "a pipeline")
    kind = fields.one_of("archive", "replay", "sources")
    name = name_of(fields, default_name)
    spec = Spec(
        name=name,
        file=root.file,
        endpoint=endpoint_of(fields),
        checkpoint=fields.text("checkpoint"),
        trigger=trigger_of(fields),
        spark=settings_of(fields),
        dead_letters=(
            bucket_of(fields, "dead_letter_bucket") or DEFAULT_BUCKET,
            target_of(fields, "dead_letters") or f"dead-letters/{name}",
        ),
    )
    return _flows(spec, fields) if kind == "sources" else _job(kind, spec, fields)


def _flows(spec: Spec, fields: Fields) -> Spec:
    found = add_flows(spec, fields)
    fields.end()
    check_wiring(found, fields.node)
    return found


def _job(kind: str, spec: Spec, fields: Fields) -> Spec:
    node, given = fields.need(kind), fields.node.value
    for other in ("transforms", "sinks", "dead_letters", "dead_letter_bucket"):
        if other in given:
            given[other].fail(f"{other} go with sources; a pipeline with {kind} has none")
    if kind == "replay" and "trigger" in given:
        given["trigger"].fail("a replay has no trigger: it runs once")
    fields.end()
    job: dict[str, Any] = {kind: _archive(node) if kind == "archive" else _replay(node)}
    return replace(spec, **job)


def _archive(node: Node) -> Archive:
    fields = Fields(node, "archive")
    by = tuple(fields.texts("partition_by")) or ARCHIVE_PARTITIONS
    for column in by:
        if column not in ARCHIVE_PARTITIONS:
            fields.node.value["partition_by"].fail(
                f"partition_by of an archive is some of {', '.join(ARCHIVE_PARTITIONS)}. "
                f"received={column!r}"
            )
    table = table_of(fields, "to", by)
    if not fields.has("streams"):
        node.fail("archive needs streams")
    json, trim = fields.flag("json", True), fields.flag("trim", False)
    job = Archive(read_of("archive", fields), table, json, trim)
    fields.end()
    _check_archive(job, fields)
    return job


def _check_archive(job: Archive, fields: Fields) -> None:
    """What would leave gaps in the table, or have the server forget what is not in it."""
    given, source = fields.node.value, job.source
    if source.options:
        check_archived(source, given["options"], whole=job.trim)
    if job.trim and source.start != STARTS[0]:
        given["from"].fail("trim needs the whole streams in the table: leave out from")
    if job.trim and source.archive is not None:
        given["archive"].fail("with trim, what the server has forgotten is read from the table")


def _replay(node: Node) -> Replay:
    fields = Fields(node, "replay")
    replay = Replay(
        table_of(fields, "table", ()),
        bucket=bucket_of(fields),
        stream=target_of(fields, "stream"),
        where=fields.text("where"),
        order_by=tuple(fields.texts("order_by")) or ("offset",),
        value=fields.text("value") or "value",
        content_type=fields.text("content_type") or "application/octet-stream",
        close=fields.flag("close", False),
    )
    fields.end()
    return replay
