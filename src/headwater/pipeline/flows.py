"""Sources, transforms and sinks of a pipeline file. wiring.py checks how they go together."""

from __future__ import annotations

import re
from dataclasses import replace

from headwater.pipeline.ddl import DdlError, columns_of
from headwater.pipeline.functions import arguments_of, find
from headwater.pipeline.given import check_sink, check_source
from headwater.pipeline.marks import Fields, Node, meant, named, text_of
from headwater.pipeline.spec import (
    ARCHIVE_PARTITIONS,
    BAD_RECORDS,
    DEFAULT_BUCKET,
    MODES,
    RECORD_COLUMNS,
    Sink,
    Source,
    Spec,
    Transform,
    Watermark,
)
from headwater.pipeline.values import (
    bucket_of,
    duration_of,
    start_of,
    streams_of,
    table_of,
    target_of,
)

BY_COLUMN = "by column"
SCHEMA_EXAMPLE = "a schema such as 'id bigint, name string'"
EVENT_TIMES = ("timestamp", "timestamp_ltz", "timestamp_ntz")

_TABLE = re.compile(r"(?:\bfrom\b|\bjoin\b|,)\s*`?([A-Za-z_]\w*)", re.IGNORECASE)
_NO_SQL = re.compile(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
"""Texts and comments."""


def add_flows(spec: Spec, fields: Fields) -> Spec:
    """The pipeline with its parts. Raises SpecError with the line of the first that is wrong."""
    sources = dict(named(fields.need("sources"), "sources", _source))
    steps = dict(named(fields.take("transforms"), "transforms", lambda _, node: node))
    known = list(sources)
    transforms = []
    for name, node in steps.items():
        if name in sources:
            node.fail(f"{name} is the name of a source already")
        transforms.append(_transform(name, node, known, list(steps)))
        known.append(name)
    sinks = dict(named(fields.need("sinks"), "sinks", lambda name, node: _sink(name, node, known)))
    return replace(
        spec,
        sources=tuple(sources.values()),
        transforms=tuple(transforms),
        sinks=tuple(sinks.values()),
    )


# -- sources


def _source(name: str, node: Node) -> Source:
    fields = Fields(node, f"source {name}")
    if fields.one_of("streams", "table") == "table":
        table = table_of(fields, "table", ())
        fields.end()
        return Source(name, table=table)
    schema, watermark = _schema(fields), _watermark(fields)
    if watermark is not None:
        _check_event_time(name, watermark, schema, fields.node.value["watermark"])
    bad_records = fields.choice("bad_records", BAD_RECORDS, BAD_RECORDS[0])
    if schema is None and fields.has("bad_records"):
        fields.node.value["bad_records"].fail("without json there are no bad records")
    source = replace(
        read_of(name, fields), schema=schema, watermark=watermark, bad_records=bad_records
    )
    fields.end()
    return source


def read_of(name: str, fields: Fields) -> Source:
    """What sources and archives have in common."""
    streams = streams_of(fields)
    archive = None
    if fields.has("archive"):
        archive = table_of(fields, "archive", ARCHIVE_PARTITIONS, prefix="archive_")
    options = fields.mapping("options")
    source = Source(name, streams, start=start_of(fields), archive=archive, options=options)
    if options:
        check_source(source, fields.node.value["options"])
    return source


def _schema(fields: Fields) -> str | None:
    node = fields.take("json")
    if node is None:
        return None
    if not isinstance(node.value, str):
        node.fail(f"json is {SCHEMA_EXAMPLE}. received={node.plain!r}")
    try:
        columns = columns_of(node.value)
    except DdlError as error:
        node.fail(f"json is {SCHEMA_EXAMPLE}: {error}")
    for column in columns:
        if column.lower() in RECORD_COLUMNS:
            node.fail(f"every record has a column {column} already; name the field in SQL instead")
    return node.value


def _watermark(fields: Fields) -> Watermark | None:
    node = fields.take("watermark")
    if node is None:
        return None
    own = Fields(node, "watermark")
    column = text_of(own.need("column"), "column")
    delay = duration_of(own.need("delay"), "delay")
    own.end()
    return Watermark(column, delay)


def _check_event_time(name: str, watermark: Watermark, schema: str | None, node: Node) -> None:
    columns = {**dict.fromkeys(RECORD_COLUMNS, ""), "timestamp": "timestamp"}
    columns |= columns_of(schema) if schema else {}
    kinds = {column.lower(): kind for column, kind in columns.items()}
    kind = kinds.get(watermark.column.lower())
    if kind is None:
        node.fail(
            f"source {name} has no column {watermark.column}"
            f"{meant(watermark.column, list(columns))}"
        )
    if kind not in EVENT_TIMES:
        node.fail(f"the column of a watermark is a timestamp; {watermark.column} is none")


# -- transforms


def _transform(name: str, node: Node, known: list[str], steps: list[str]) -> Transform:
    """`known` is what it may read, `steps` all transforms, those after it included."""
    if isinstance(node.value, str):
        return _sql(name, node, known, steps)
    if callable(node.value):
        return _function(name, node, known)
    if not isinstance(node.value, dict):
        node.fail(
            f"transform {name} is a statement of SQL, {{sql: …}} or {{python: 'file.py:name'}}. "
            f"received={node.plain!r}"
        )
    fields = Fields(node, f"transform {name}")
    kind = fields.one_of("sql", "python")
    given = fields.need(kind)
    watermark = _watermark(fields)
    fields.end()
    found = _sql(name, given, known, steps) if kind == "sql" else _function(name, given, known)
    return replace(found, watermark=watermark)


def _sql(name: str, node: Node, known: list[str], steps: list[str]) -> Transform:
    sql = text_of(node, "sql")
    tables = {table.lower() for table in _TABLE.findall(_NO_SQL.sub(" ", sql))}
    inputs = tuple(each for each in known if each.lower() in tables)
    if not inputs:
        reads = f"the SQL of {name} reads none of {', '.join(known)}"
        for each in steps:
            if each.lower() in tables:
                node.fail(f"{reads}; {each} comes later: a transform reads what is before it")
        hints = [hint for table in tables if (hint := meant(table, known))]
        node.fail(f"{reads}{hints[0] if hints else ''}")
    return Transform(name, inputs, sql=sql, line=node.line)


def _function(name: str, node: Node, known: list[str]) -> Transform:
    function = node.value if callable(node.value) else find(text_of(node, "python"), node)
    inputs = arguments_of(function, node)
    for each in inputs:
        if each not in known:
            node.fail(
                f"the function of {name} takes {each}, which is no source or transform before it"
                f"{meant(each, known)}; its arguments are {', '.join(known)}"
            )
    return Transform(name, inputs, function=function, line=node.line)


# -- sinks


def _sink(name: str, node: Node, known: list[str]) -> Sink:
    fields = Fields(node, f"sink {name}")
    source = fields.need("from")
    if source.value not in known:
        text = str(source.plain)
        source.fail(f"from is one of {', '.join(known)}. received={text!r}{meant(text, known)}")
    kind = fields.one_of("stream", "streams", "table")
    mode = fields.choice("mode", MODES, MODES[0])
    make = _table_sink if kind == "table" else _stream_sink
    sink = make(Sink(name, source.value, mode=mode, line=node.line), fields)
    fields.end()
    return sink


def _table_sink(sink: Sink, fields: Fields) -> Sink:
    if sink.mode == "update":
        fields.node.value["mode"].fail("a table takes append or complete, no update")
    if fields.has("options"):
        fields.node.value["options"].fail("options are for streams; a table has none")
    by = tuple(fields.texts("partition_by"))
    return replace(sink, table=table_of(fields, "table", by))


def _stream_sink(sink: Sink, fields: Fields) -> Sink:
    if sink.mode == "complete":
        fields.node.value["mode"].fail("a stream takes append or update; complete is for tables")
    by_column = fields.take("streams")
    if by_column is not None and by_column.value != BY_COLUMN:
        by_column.fail(
            f"streams of a sink is '{BY_COLUMN}': the column stream names it; else use stream"
        )
    found = replace(
        sink,
        stream=target_of(fields, "stream"),
        bucket=bucket_of(fields) or DEFAULT_BUCKET,
        content_type=fields.text("content_type") or sink.content_type,
        options=fields.mapping("options"),
    )
    if found.options:
        check_sink(found, fields.node.value["options"])
    return found
