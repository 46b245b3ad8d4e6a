"""SQL over streams and tables, once: `stream('orders/*')` and `lake('./lake/orders')` as tables.

    stream('pattern or name' [, bucket => 'b'] [, archive => 'folder'] [, format => 'delta'])
    lake('folder' [, format => 'delta'])

Each call becomes a view. A stream has the columns of every record and those of its JSON, which are
found by looking at some of its records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.client import Client
from headwater.client.records import read_batches
from headwater.lake.archive import SCHEMA
from headwater.lake.columns import KINDS, infer, kinds_of, parse_objects
from headwater.lake.locations import absolute
from headwater.lake.tables import FORMATS, TableRef, open_table
from headwater.pipeline.context import Context
from headwater.pipeline.frames import read_table, selection
from headwater.pipeline.marks import meant
from headwater.pipeline.spec import ANY_BUCKET, DEFAULT_BUCKET, RECORD_COLUMNS, Streams

SAMPLED_STREAMS = 20
SAMPLED_RECORDS = 100
"""Of the newest, from each: what JSON fields there are."""

ARGUMENTS = {"stream": ("bucket", "archive", "format"), "lake": ("format",)}

_SKIPPED = r"'(?:[^'\\]|\\.|'')*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/"
_CALL = re.compile(
    rf"{_SKIPPED}|\b(?P<call>stream|lake)\s*\((?P<inside>(?:'[^']*'|[^'()])*)\)",
    re.DOTALL | re.IGNORECASE,
)
_ARGUMENT = re.compile(r"\s*(?:(\w+)\s*=>\s*)?'([^']*)'\s*(?:,|\Z)")


class QueryError(Exception):
    """A statement that cannot be run. The message says what to change."""


class Call(NamedTuple):
    """A table of the statement that is ours."""

    kind: str
    place: str
    options: Mapping[str, str]


def parse(statement: str) -> tuple[str, list[Call]]:
    """The statement with a view's name for each call, and the calls. Raises QueryError."""
    calls: list[Call] = []

    def replaced(found: re.Match[str]) -> str:
        if found["call"] is None:
            return found[0]
        calls.append(_call(found["call"].lower(), found["inside"]))
        return view_name(len(calls) - 1)

    return _CALL.sub(replaced, statement), calls


def view_name(number: int) -> str:
    return f"headwater_{number}"


def _call(kind: str, inside: str) -> Call:
    known = ARGUMENTS[kind]
    place: str | None = None
    options: dict[str, str] = {}
    at = 0
    while at < len(inside):
        found = _ARGUMENT.match(inside, at)
        if found is None:
            raise QueryError(
                f"cannot read {inside.strip()!r}; write {kind}('name', option => 'value')"
            )
        name, value = found[1], found[2]
        if name is None and place is None and not options:
            place = value
        elif name in known:
            options[name] = value
        else:
            hint = meant(name or "", known) or f"; it has {', '.join(known)}"
            raise QueryError(f"{kind}() has no option {name or value!r}{hint}")
        at = found.end()
    if not place:
        raise QueryError(f"{kind}() needs a name: {kind}('orders/*')")
    if options.get("format", FORMATS[0]) not in FORMATS:
        raise QueryError(f"format is one of {', '.join(FORMATS)}. received={options['format']!r}")
    return Call(kind, place, options)


def query(spark: SparkSession, statement: str, context: Context) -> DataFrame:
    """The result of a statement, not computed yet."""
    text, calls = parse(statement)
    for number, call in enumerate(calls):
        frame = _lake(spark, call) if call.kind == "lake" else _stream(spark, call, context)
        frame.createOrReplaceTempView(view_name(number))
    return spark.sql(text)


def _table(call: Call, location: str) -> TableRef:
    return TableRef(call.options.get("format", FORMATS[0]), absolute(location))


def _lake(spark: SparkSession, call: Call) -> DataFrame:
    return read_table(spark, _table(call, call.place).encode())


def _stream(spark: SparkSession, call: Call, context: Context) -> DataFrame:
    streams = Streams((call.place,), call.options.get("bucket", DEFAULT_BUCKET))
    if streams.bucket == ANY_BUCKET and streams.pattern is None:
        raise QueryError("name the bucket of a single stream, or use a pattern")
    options = {**context.connection, **selection(streams), "includeHeaders": "true"}
    known: dict[str, str] = {}
    if "archive" in call.options:
        ref = _table(call, call.options["archive"])
        options["archive"] = ref.encode()
        known = kinds_of(open_table(ref).schema() or pa.schema([]), SCHEMA.names)
    frame = spark.read.format("headwater").options(**options).load()
    with context.client() as client:
        kinds = sample(client, streams, known)
    if not kinds:
        return frame
    schema = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
    parsed = F.from_json(F.col("value").cast("string"), schema)
    return frame.withColumn("_json", parsed).select("*", "_json.*").drop("_json")


def sample(
    client: Client, streams: Streams, known: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The JSON fields of some streams and their kinds: those known, and those of some records."""
    bucket = None if streams.bucket == ANY_BUCKET else streams.bucket
    wanted = {"pattern": streams.pattern} if streams.pattern else {"prefix": streams.names[0]}
    known = dict(known or {})
    looked = 0
    for stream in client.streams(bucket=bucket, **wanted):
        if streams.pattern is None and stream.name != streams.names[0]:
            continue
        first = max(stream.first, stream.tail - SAMPLED_RECORDS)
        values: list[bytes] = []
        for batch in read_batches(
            client,
            stream.bucket,
            stream.name,
            first=first,
            end=stream.tail,
            stream_id=stream.id,
        ):
            values += batch.column("body").to_pylist()
        found = infer(parse_objects(values), known, RECORD_COLUMNS)
        known |= kinds_of(pa.schema([(name, each.type) for name, each in found.items()]), ())
        looked += 1
        if looked >= SAMPLED_STREAMS:
            break
    return _one_column_each(known)


def _one_column_each(known: Mapping[str, str]) -> dict[str, str]:
    """A field with values of several kinds is one column here: text takes them all."""
    found: dict[str, str] = {}
    for name, kind in known.items():
        field = _field(name, known)
        found[field] = kind if field == name and field not in found else "string"
    return found


def _field(name: str, known: Mapping[str, str]) -> str:
    field, _, kind = name.rpartition("__")
    return field if kind in KINDS and field in known else name
