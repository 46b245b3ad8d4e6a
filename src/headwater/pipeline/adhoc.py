"""SQL over streams and tables, once: `stream('orders/*')` and `lake('./lake/orders')` as tables.

    stream('pattern or name' [, bucket => 'b'] [, archive => 'folder'] [, format => 'delta'])
    lake('folder' [, format => 'delta'])

Each call becomes a view. A stream has the columns of every record and those of its JSON, which are
found by looking at some of its records, and named as an archive names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.client import Client
from headwater.client.records import read_batches
from headwater.lake.archive import SCHEMA
from headwater.lake.columns import KINDS, column_name, infer, kinds_of, parse_objects
from headwater.lake.files import read_file
from headwater.lake.locations import absolute
from headwater.lake.tables import FORMATS, LakeTable, TableRef, open_table
from headwater.pipeline.context import Context
from headwater.pipeline.frames import read_table, selection
from headwater.pipeline.marks import meant
from headwater.pipeline.spec import ANY_BUCKET, DEFAULT_BUCKET, RECORD_COLUMNS, Streams

SAMPLED_STREAMS = 20
SAMPLED_RECORDS = 100
"""Of the newest, from each: what JSON fields there are."""
RETRY_TIMEOUT_S = 5.0
"""Someone waits for the answer, if only that there is no server."""

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
    archived: list[bytes] = []
    if "archive" in call.options:
        ref = _table(call, call.options["archive"])
        options["archive"] = ref.encode()
        table = open_table(ref)
        known = kinds_of(table.schema() or pa.schema([]), SCHEMA.names)
        if any("_" in name for name in known):
            archived = _archived_values(table)
    frame = spark.read.format("headwater").options(**options).load()
    with context.client(retry_timeout_s=RETRY_TIMEOUT_S) as client:
        return with_fields(frame, sample(client, streams, known, archived))


def _archived_values(table: LakeTable) -> list[bytes]:
    """Some, of some files: a column's name does not tell what the field is called."""
    schema = pa.schema([SCHEMA.field("value")])
    values: list[bytes] = []
    for file in table.files()[-SAMPLED_STREAMS:]:
        for batch in islice(read_file(table.folder, file, schema), 1):
            values += batch.column("value")[:SAMPLED_RECORDS].to_pylist()
    return values


class Fields(NamedTuple):
    """What a column is made of: several fields may have a name that is the same for SQL."""

    kind: str
    names: tuple[str, ...]


def with_fields(frame: DataFrame, columns: Mapping[str, Fields]) -> DataFrame:
    """The frame with more columns, out of the JSON in `value`."""
    # Spark finds a field of a struct whatever its case, so one struct has one of `Id` and `id`.
    structs: list[StructType] = []
    parts: dict[str, list[Column]] = {name: [] for name in columns}
    for column, (kind, names) in columns.items():
        for name in names:
            number = _room(structs, name)
            structs[number].add(name, kind)
            parts[column].append(F.col(f"_json_{number}")[name])
    text = F.col("value").cast("string")
    parsed = [F.from_json(text, each).alias(f"_json_{n}") for n, each in enumerate(structs)]
    added = [F.coalesce(*found).alias(column) for column, found in parts.items()]
    return frame.select("*", *parsed).select(*frame.columns, *added)


def _room(structs: list[StructType], name: str) -> int:
    """The number of the first struct that has no such field, whatever its case."""
    for number, struct in enumerate(structs):
        if name.lower() not in map(str.lower, struct.names):
            return number
    structs.append(StructType())
    return len(structs) - 1


def sample(
    client: Client,
    streams: Streams,
    known: Mapping[str, str] | None = None,
    archived: Iterable[bytes] = (),
) -> dict[str, Fields]:
    """The columns for the JSON of some streams: those known, and those of some records.

    `archived` are values of a table whose columns are known.
    """
    bucket = None if streams.bucket == ANY_BUCKET else streams.bucket
    wanted = {"pattern": streams.pattern} if streams.pattern else {"prefix": streams.names[0]}
    known = dict(known or {})
    fields = _names(parse_objects(archived))
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
        rows = parse_objects(values)
        fields |= _names(rows)
        found = infer(rows, known, RECORD_COLUMNS)
        known |= kinds_of(pa.schema([(name, each.type) for name, each in found.items()]), ())
        looked += 1
        if looked >= SAMPLED_STREAMS:
            break
    return _with_names(_one_column_each(known), fields)


def _names(rows: Iterable[Mapping[str, Any] | None]) -> dict[str, None]:
    return dict.fromkeys(name for row in rows for name in row or ())


def _with_names(kinds: Mapping[str, str], fields: Iterable[str]) -> dict[str, Fields]:
    """Each column with the fields that go there, those of the sample first."""
    seen: dict[str, list[str]] = {}
    for field in fields:
        seen.setdefault(column_name(field, RECORD_COLUMNS).lower(), []).append(field)
    found = {}
    for column, kind in kinds.items():
        names = [*seen.get(column.lower(), ()), column]
        if column[:-1] in SCHEMA.names:
            names.append(column[:-1])  # an archive has added the underscore
        found[column] = Fields(kind, tuple(dict.fromkeys(names)))
    return found


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
