"""SQL over streams and tables, once: `stream('orders/*')` and `lake('./lake/orders')` as tables.

    stream('pattern or name' [, bucket => 'b'] [, archive => 'folder'] [, format => 'delta'])
    lake('folder' [, format => 'delta'])

Each call becomes a view. A stream has the columns of every record and those of its JSON, see
sampling.py. All that needs no Spark is done first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.client import Client
from headwater.lake.archive import SCHEMA
from headwater.lake.columns import kinds_of
from headwater.lake.locations import absolute
from headwater.lake.tables import FORMATS, LakeError, TableRef, open_table
from headwater.pipeline.context import Context
from headwater.pipeline.frames import read_table, selection
from headwater.pipeline.marks import meant
from headwater.pipeline.sampling import Fields, archived_values, find_some, sample, tell_missing
from headwater.pipeline.spec import ANY_BUCKET, DEFAULT_BUCKET, Streams

RETRY_TIMEOUT_S = 5.0
"""Someone waits for the answer, if only that there is no server."""

ARGUMENTS = {"stream": ("bucket", "archive", "format"), "lake": ("format",)}
EXAMPLES = {
    "stream": "stream('orders/*'), or with options stream('orders/*', bucket => 'shop')",
    "lake": "lake('lake/orders'), or with options lake('lake/orders', format => 'parquet')",
}

_SKIPPED = r"'(?:[^'\\]|\\.|'')*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/"
_CALL = re.compile(
    rf"{_SKIPPED}|\b(?P<call>stream|lake)\s*\((?P<inside>(?:'[^']*'|[^'()])*)\)",
    re.DOTALL | re.IGNORECASE,
)
_WORD = re.compile(r"\w\w")
_ARGUMENT = re.compile(r"\s*(?:(\w+)\s*=>\s*)?'([^']*)'\s*(?:,|\Z)")


class QueryError(Exception):
    """A statement that cannot be run. The message says what to change."""


class Call(NamedTuple):
    """A table of the statement that is ours."""

    kind: str
    place: str
    options: Mapping[str, str]
    text: str


def parse(statement: str) -> tuple[str, list[Call]]:
    """The statement with a view's name for each call, and the calls. Raises QueryError."""
    calls: list[Call] = []

    def replaced(found: re.Match[str]) -> str:
        if found["call"] is None:
            return found[0]
        calls.append(_call(found["call"].lower(), found["inside"], found[0]))
        view = _view_in_place(len(calls) - 1, found[0])
        joined = _WORD.match(f"{view[-1]}{statement[found.end() :]}")  # as in stream('a')where
        return f"{view} " if joined else view

    return _CALL.sub(replaced, statement), calls


def view_name(number: int) -> str:
    return f"headwater_{number}"


def _view_in_place(number: int, call: str) -> str:
    """As long as the call, so that places in the statement stay the same."""
    return view_name(number).ljust(len(call))


def _call(kind: str, inside: str, text: str) -> Call:
    place: str | None = None
    options: dict[str, str] = {}
    for name, value in _arguments(kind, inside):
        if name is not None:
            options[name] = value
        elif place is None and not options:
            place = value
        else:
            raise QueryError(f"{kind}() takes one name, then option => 'value'. received={value!r}")
    if not place:
        raise QueryError(f"{kind}() needs a name: {EXAMPLES[kind]}")
    if options.get("format", FORMATS[0]) not in FORMATS:
        raise QueryError(f"format is one of {', '.join(FORMATS)}. received={options['format']!r}")
    return Call(kind, place, options, text)


def _arguments(kind: str, inside: str) -> Iterator[tuple[str | None, str]]:
    """The arguments of a call, each with the name of its option if it has one."""
    known = ARGUMENTS[kind]
    at = 0
    while at < len(inside):
        found = _ARGUMENT.match(inside, at)
        if found is None:
            raise QueryError(f"cannot read {inside.strip()!r}; write {EXAMPLES[kind]}")
        name, value = found[1], found[2]
        if name is not None and name not in known:
            hint = meant(name, known) or f"; it has {', '.join(known)}"
            raise QueryError(f"{kind}() has no option {name}{hint}")
        yield name, value
        at = found.end()


class View(NamedTuple):
    """A call of a statement: what to read, and for a stream with which columns."""

    options: Mapping[str, str] | None
    """Of the data source; None for a table of the lake."""
    table: TableRef | None = None
    columns: Mapping[str, Fields] = {}


class Prepared(NamedTuple):
    """A statement, ready for Spark."""

    text: str
    calls: list[Call]
    views: list[View]
    notes: list[str]
    """What whoever asks may not know."""

    def in_words_of_the_user(self, message: str) -> str:
        """What Spark says, with the calls in the place of the views that they became."""
        for number, call in reversed(list(enumerate(self.calls))):
            for view in (_view_in_place(number, call.text), view_name(number)):
                message = message.replace(view, call.text)
        return message


def query(spark: SparkSession, statement: str, context: Context) -> DataFrame:
    """The result of a statement, not computed yet."""
    return answer(spark, prepare(statement, context))


def prepare(statement: str, context: Context, *, remote: bool = False) -> Prepared:
    """Raises QueryError, ClientError or LakeError for what can be told without Spark. One that is
    `remote` may have tables that we have not."""
    text, calls = parse(statement)
    if not text.strip():
        raise QueryError("there is no statement")
    prepared = Prepared(text, calls, [], [])
    with context.client(retry_timeout_s=RETRY_TIMEOUT_S) as client:
        for call in calls:
            if call.kind == "lake":
                prepared.views.append(_lake(call, remote))
            else:
                prepared.views.append(_stream(call, context, client, prepared.notes))
    return prepared


def answer(spark: SparkSession, prepared: Prepared) -> DataFrame:
    """The result, not computed yet."""
    for number, view in enumerate(prepared.views):
        _frame(spark, view).createOrReplaceTempView(view_name(number))
    return spark.sql(prepared.text)


def _frame(spark: SparkSession, view: View) -> DataFrame:
    if view.table is not None:
        return read_table(spark, view.table.encode())
    frame = spark.read.format("headwater").options(**(view.options or {})).load()
    return with_fields(frame, view.columns)


def _lake(call: Call, remote: bool) -> View:
    ref = _ref(call, call.place)
    if not remote and open_table(ref).schema() is None:
        raise LakeError(f"there is no {ref.format} table at {ref.location}")
    return View(None, ref)


def _ref(call: Call, location: str) -> TableRef:
    return TableRef(call.options.get("format", FORMATS[0]), absolute(location))


def _stream(call: Call, context: Context, client: Client, notes: list[str]) -> View:
    streams = Streams((call.place,), call.options.get("bucket", DEFAULT_BUCKET))
    if streams.bucket == ANY_BUCKET and streams.pattern is None:
        raise QueryError("name the bucket of a single stream, or use a pattern")
    options = {**context.connection, **selection(streams), "includeHeaders": "true"}
    known: dict[str, str] = {}
    archived: list[bytes] = []
    if "archive" in call.options:
        ref = _ref(call, call.options["archive"])
        options["archive"] = ref.encode()
        table = open_table(ref)
        known = kinds_of(table.schema() or pa.schema([]), SCHEMA.names)
        if any("_" in name for name in known):
            archived = archived_values(table)
    missing = tell_missing(client, streams)
    if missing and streams.pattern is None:
        raise QueryError(f"{missing[0]}; bucket => 'b' names another")
    notes += missing
    return View(options, columns=sample(client, find_some(client, streams), known, archived))


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
