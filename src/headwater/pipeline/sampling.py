"""Which JSON fields there are, found by looking at some records: the columns of a query.

They are named as an archive names them. Nothing here needs Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.client import Client, StreamSummary
from headwater.client.records import read_batches
from headwater.lake.archive import SCHEMA
from headwater.lake.columns import KINDS, column_name, infer, kinds_of, parse_objects
from headwater.lake.files import read_file
from headwater.lake.tables import LakeTable
from headwater.pipeline.spec import ANY_BUCKET, RECORD_COLUMNS, Streams
from headwater.spark.streams import OWN_BUCKET

SAMPLED_STREAMS = 20
SAMPLED_RECORDS = 100
"""Of the newest, from each: what JSON fields there are."""


class Fields(NamedTuple):
    """What a column is made of: several fields may have a name that is the same for SQL."""

    kind: str
    names: tuple[str, ...]


def archived_values(table: LakeTable) -> list[bytes]:
    """Some, of some files: a column's name does not tell what the field is called."""
    schema = pa.schema([SCHEMA.field("value")])
    values: list[bytes] = []
    for file in table.files()[-SAMPLED_STREAMS:]:
        for batch in islice(read_file(table.folder, file, schema), 1):
            values += batch.column("value")[:SAMPLED_RECORDS].to_pylist()
    return values


def find_some(client: Client, streams: Streams) -> list[StreamSummary]:
    """Those that are looked at."""
    if streams.pattern is None:
        named = (client.stream(streams.bucket, name) for name in streams.names)
        return [found for found in named if found is not None]
    everywhere = streams.bucket == ANY_BUCKET
    matching = client.streams(
        bucket=None if everywhere else streams.bucket, pattern=streams.pattern
    )
    read = (each for each in matching if not everywhere or each.bucket != OWN_BUCKET)
    return list(islice(read, SAMPLED_STREAMS))


def tell_missing(client: Client, streams: Streams) -> list[str]:
    """A line for each name and pattern that is of no stream."""
    found = {stream.name for stream in find_some(client, streams)}
    where = "any bucket" if streams.bucket == ANY_BUCKET else f"the bucket {streams.bucket}"
    if streams.pattern is not None:
        return [] if found else [f"no stream in {where} matches {streams.pattern}"]
    return [f"there is no stream {name} in {where}" for name in streams.names if name not in found]


def sample(
    client: Client,
    streams: Iterable[StreamSummary],
    known: Mapping[str, str] | None = None,
    archived: Iterable[bytes] = (),
) -> dict[str, Fields]:
    """The columns for the JSON of some streams: those known, and those of some records.

    `archived` are values of a table whose columns are known.
    """
    known = dict(known or {})
    fields = _names(parse_objects(archived))
    for stream in streams:
        rows = parse_objects(_newest(client, stream))
        fields |= _names(rows)
        found = infer(rows, known, RECORD_COLUMNS)
        known |= kinds_of(pa.schema([(name, each.type) for name, each in found.items()]), ())
    return _with_names(_one_column_each(known), fields)


def _newest(client: Client, stream: StreamSummary) -> list[bytes]:
    first = max(stream.first, stream.tail - SAMPLED_RECORDS)
    batches = read_batches(
        client, stream.bucket, stream.name, first=first, end=stream.tail, stream_id=stream.id
    )
    return [body for batch in batches for body in batch.column("body").to_pylist()]


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
