"""Pipeline files to a Spec: every key is known, every value fits, every name leads somewhere.

What is wrong is a SpecError with its line. Nothing here needs Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwater.core.errors import InvalidRequest
from headwater.core.globs import Glob
from headwater.lake.locations import absolute
from headwater.lake.tables import FORMATS, TableRef
from headwater.pipeline.ddl import DdlError, columns_of
from headwater.pipeline.functions import arguments_of, find
from headwater.pipeline.given import check_archived, check_sink, check_source
from headwater.pipeline.marks import Fields, Node, meant, named, text_of
from headwater.pipeline.spec import (
    ANY_BUCKET,
    ARCHIVE_PARTITIONS,
    BAD_RECORDS,
    DEFAULT_BUCKET,
    MODES,
    RECORD_COLUMNS,
    STARTS,
    Archive,
    Replay,
    Sink,
    Source,
    Spec,
    Streams,
    Transform,
    Watermark,
)

_DURATION = re.compile(r"(\d+)\s*(millisecond|second|minute|hour|day|week)s?\Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*(Z|[+-]\d\d:\d\d)\Z")
_TABLE = re.compile(r"(?:\bfrom\b|\bjoin\b|,)\s*([A-Za-z_]\w*)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


def parse(root: Node, default_name: str) -> Spec:
    """Raises SpecError with the line of the first thing that is wrong."""
    fields = Fields(root, "a pipeline")
    kind = fields.one_of("archive", "replay", "sources")
    name = _name(fields, default_name)
    dead_bucket = fields.text("dead_letter_bucket") or DEFAULT_BUCKET
    spec: dict[str, Any] = {
        "name": name,
        "file": root.file,
        "endpoint": _endpoint(fields),
        "checkpoint": fields.text("checkpoint"),
        "trigger": _duration(fields, "trigger"),
        "spark": fields.mapping("spark"),
        "dead_letters": (dead_bucket, fields.text("dead_letters") or f"dead-letters/{name}"),
    }
    if kind == "sources":
        flows = _flows(fields)
        fields.end()
        return Spec(**spec, **flows)
    node = fields.need(kind)
    for other in ("transforms", "sinks", "dead_letters", "dead_letter_bucket"):
        if fields.has(other):
            root.value[other].fail(f"{other} go with sources; a pipeline with {kind} has none")
    if kind == "replay" and fields.has("trigger"):
        root.value["trigger"].fail("a replay has no trigger: it runs once")
    fields.end()
    spec[kind] = _archive(node) if kind == "archive" else _replay(node)
    return Spec(**spec)


def _name(fields: Fields, default: str) -> str:
    node = fields.take("name")
    if node is None:
        return default
    name = text_of(node, "name")
    if not _NAME.match(name):
        node.fail(f"name is 1 to 64 letters, digits, '.', '_' or '-'. received={name!r}")
    return name


def _endpoint(fields: Fields) -> str | None:
    node = fields.take("endpoint")
    if node is None:
        return None
    endpoint = text_of(node, "endpoint")
    if not re.match(r"https?://[^/\s]+", endpoint):
        node.fail(f"endpoint is a URL such as http://127.0.0.1:4437. received={endpoint!r}")
    return endpoint


def _duration(fields: Fields, name: str) -> str | None:
    node = fields.take(name)
    return None if node is None else duration_of(node, name)


def duration_of(node: Node, name: str) -> str:
    text = str(node.plain).strip()
    if not _DURATION.match(text):
        node.fail(f"{name} is a time such as '10 seconds' or '5 minutes'. received={text!r}")
    return text


# -- sources, transforms, sinks


def _flows(fields: Fields) -> dict[str, Any]:
    sources = dict(named(fields.need("sources"), "sources", _source))
    known = list(sources)
    transforms: dict[str, Transform] = {}
    steps = fields.take("transforms")
    for name, transform in named(steps, "transforms", lambda name, node: (name, node)):
        node = transform[1]
        if name in sources:
            node.fail(f"{name} is the name of a source already")
        transforms[name] = _transform(name, node, known)
        known.append(name)
    sinks_node = fields.need("sinks")
    sinks = dict(named(sinks_node, "sinks", lambda name, node: _sink(name, node, known)))
    if not sources or not sinks:
        fields.node.fail("a pipeline needs a source and a sink at least")
    _all_used(fields, known, transforms, sinks)
    return {
        "sources": tuple(sources.values()),
        "transforms": tuple(transforms.values()),
        "sinks": tuple(sinks.values()),
    }


def _all_used(
    fields: Fields,
    known: list[str],
    transforms: Mapping[str, Transform],
    sinks: Mapping[str, Sink],
) -> None:
    used = {sink.input for sink in sinks.values()}
    used.update(name for each in transforms.values() for name in each.inputs)
    for name in known:
        if name not in used:
            part = "transforms" if name in transforms else "sources"
            fields.node.value[part].value[name].fail(f"nothing uses {name}")


def streams_of(fields: Fields) -> Streams:
    node = fields.node.value.get("streams", fields.node)
    names = fields.texts("streams")
    bucket = fields.text("bucket") or DEFAULT_BUCKET
    if len(names) > 1 and any("*" in name for name in names):
        node.fail("streams is a list of names, or one pattern")
    if bucket == ANY_BUCKET and "*" not in names[0]:
        node.fail("streams of all buckets are named with a pattern; name the bucket")
    streams = Streams(tuple(names), bucket)
    if streams.pattern is not None:
        try:
            Glob(streams.pattern)
        except InvalidRequest as error:
            node.fail(f"streams is a name or a pattern: {error}")
    return streams


def _source(name: str, node: Node) -> Source:
    fields = Fields(node, f"source {name}")
    if fields.one_of("streams", "table") == "table":
        table = _table(fields, "table", ())
        fields.end()
        return Source(name, table=table)
    schema, watermark = _schema(fields), _watermark(fields)
    columns = [*RECORD_COLUMNS, *(columns_of(schema) if schema else ())]
    if watermark is not None and watermark.column not in columns:
        fields.node.value["watermark"].fail(
            f"source {name} has no column {watermark.column}{meant(watermark.column, columns)}"
        )
    bad_records = fields.choice("bad_records", BAD_RECORDS, BAD_RECORDS[0])
    if schema is None and fields.has("bad_records"):
        fields.node.value["bad_records"].fail("without json there are no bad records")
    source = replace(
        _read(name, fields), schema=schema, watermark=watermark, bad_records=bad_records
    )
    fields.end()
    return source


def _read(name: str, fields: Fields) -> Source:
    """What sources and archives have in common."""
    streams = streams_of(fields)
    archive = None
    if fields.has("archive"):
        archive = _table(fields, "archive", ARCHIVE_PARTITIONS, prefix="archive_")
    options = fields.mapping("options")
    source = Source(name, streams, start=_start(fields), archive=archive, options=options)
    if options:
        check_source(source, fields.node.value["options"])
    return source


def _start(fields: Fields) -> str:
    node = fields.take("from")
    if node is None:
        return STARTS[0]
    text = node.plain.isoformat() if hasattr(node.plain, "isoformat") else text_of(node, "from")
    if text not in STARTS and not _TIME.match(text):
        node.fail(
            "from is earliest, latest, or a time with its zone such as 2030-01-31T12:00:00Z. "
            f"received={text!r}"
        )
    return text


def _schema(fields: Fields) -> str | None:
    node = fields.take("json")
    if node is None:
        return None
    text = text_of(node, "json")
    try:
        columns = columns_of(text)
    except DdlError as error:
        node.fail(f"json is a schema such as 'id bigint, name string': {error}")
    for column in columns:
        if column.lower() in RECORD_COLUMNS:
            node.fail(f"every record has a column {column} already; name the field in SQL instead")
    return text


def _watermark(fields: Fields) -> Watermark | None:
    node = fields.take("watermark")
    if node is None:
        return None
    own = Fields(node, "watermark")
    column = text_of(own.need("column"), "column")
    delay = duration_of(own.need("delay"), "delay")
    own.end()
    return Watermark(column, delay)


def _transform(name: str, node: Node, known: list[str]) -> Transform:
    if isinstance(node.value, str):
        return Transform(name, _sql_inputs(name, node, known), sql=node.value)
    if callable(node.value):
        return _function(name, node, known)
    fields = Fields(node, f"transform {name}")
    kind = fields.one_of("sql", "python")
    given = fields.need(kind)
    watermark = _watermark(fields)
    fields.end()
    if kind == "sql":
        text_of(given, "sql")
        inputs = _sql_inputs(name, given, known)
        return Transform(name, inputs, sql=given.value, watermark=watermark)
    transform = _function(name, given, known)
    return Transform(name, transform.inputs, function=transform.function, watermark=watermark)


def _sql_inputs(name: str, node: Node, known: list[str]) -> tuple[str, ...]:
    """The sources and transforms that a statement names as tables."""
    tables = _TABLE.findall(_without_texts(node.value))
    inputs = tuple(each for each in known if each in tables)
    if not inputs:
        hints = [hint for table in tables if (hint := meant(table, known))]
        hint = hints[0] if hints else ""
        node.fail(f"the SQL of {name} reads none of {', '.join(known)}{hint}")
    return inputs


def _without_texts(sql: str) -> str:
    return re.sub(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL)


def _function(name: str, node: Node, known: list[str]) -> Transform:
    function = node.value if callable(node.value) else find(text_of(node, "python"), node)
    inputs = arguments_of(function, node)
    for each in inputs:
        if each not in known:
            node.fail(
                f"the function of {name} takes {each}, which is no source or transform before it"
                f"{meant(each, known)}; its arguments are {', '.join(known)}"
            )
    return Transform(name, inputs, function=function)


def _sink(name: str, node: Node, known: list[str]) -> Sink:
    fields = Fields(node, f"sink {name}")
    source = fields.need("from")
    if source.value not in known:
        text = str(source.plain)
        source.fail(f"from is one of {', '.join(known)}. received={text!r}{meant(text, known)}")
    kind = fields.one_of("stream", "streams", "table")
    mode = fields.choice("mode", MODES, MODES[0])
    options = fields.mapping("options")
    if kind == "table":
        if mode == "update":
            fields.node.value["mode"].fail("a table takes append or complete, no update")
        if fields.has("options"):
            fields.node.value["options"].fail("options are for streams; a table has none")
        by = tuple(fields.texts("partition_by"))
        sink = Sink(name, source.value, table=_table(fields, "table", by), mode=mode)
    else:
        if mode == "complete":
            fields.node.value["mode"].fail(
                "a stream takes append or update; complete is for tables"
            )
        stream = _target(fields, kind)
        bucket = fields.text("bucket") or DEFAULT_BUCKET
        kind_of = fields.text("content_type") or "application/json"
        sink = Sink(name, source.value, stream, bucket, kind_of, None, mode, options)
        if options:
            check_sink(sink, fields.node.value["options"])
    fields.end()
    return sink


def _target(fields: Fields, kind: str) -> str | None:
    """`stream: name`, or `streams: by column`."""
    node = fields.need(kind)
    text = text_of(node, kind)
    if kind == "stream":
        return text
    if text != "by column":
        node.fail("streams of a sink is 'by column': the column stream names it; else use stream")
    return None


def _table(
    fields: Fields, key: str, partition_by: tuple[str, ...], *, prefix: str = ""
) -> TableRef:
    node = fields.need(key)
    location = text_of(node, key)
    format = fields.choice(f"{prefix}format", FORMATS, FORMATS[0])
    catalog = fields.mapping(f"{prefix}catalog")
    if catalog and format != "iceberg":
        fields.node.value[f"{prefix}catalog"].fail(f"{format} tables have no catalog")
    if format == "iceberg" and not catalog and "://" in location:
        node.fail("an Iceberg table in an object store needs a catalog")
    storage = fields.mapping(f"{prefix}storage")
    # Spark's processes may have another working directory.
    place = location if catalog else absolute(location)
    return TableRef(format, place, partition_by, catalog, storage)


# -- archive and replay


def _archive(node: Node) -> Archive:
    fields = Fields(node, "archive")
    table = _table(fields, "to", ARCHIVE_PARTITIONS)
    by = fields.texts("partition_by")
    for column in by:
        if column not in ARCHIVE_PARTITIONS:
            fields.node.value["partition_by"].fail(
                f"partition_by of an archive is some of {', '.join(ARCHIVE_PARTITIONS)}. "
                f"received={column!r}"
            )
    if by:
        table = TableRef(table.format, table.location, tuple(by), table.catalog, table.storage)
    if not fields.has("streams"):
        node.fail("archive needs streams")
    json, trim = fields.flag("json", True), fields.flag("trim", False)
    source = _read("archive", fields)
    fields.end()
    job = Archive(source, table, json, trim)
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
    table = _table(fields, "table", ())
    replay = Replay(
        table,
        bucket=fields.text("bucket"),
        stream=fields.text("stream"),
        where=fields.text("where"),
        order_by=tuple(fields.texts("order_by")) or ("offset",),
        value=fields.text("value") or "value",
        content_type=fields.text("content_type") or "application/octet-stream",
        close=fields.flag("close", False),
    )
    fields.end()
    return replay
