"""Which records of which streams a table has: the ranges that were archived.

One small Arrow file per query, `_headwater/ranges/{query}.arrow`, replaced after each commit of
data. It may lag behind the data by the commit that a crash interrupted, never be ahead: whoever
continues from it into the stream misses nothing and, reading no further in the table, repeats
nothing. It says which table it is of: one that was dropped may leave it to the next in its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from urllib.parse import quote

import pyarrow as pa

from headwater.lake.errors import LakeError
from headwater.lake.locations import LISTED_PREFIX, Folder

_FOLDER = f"{LISTED_PREFIX}/ranges"
_SUFFIX = ".arrow"
"""Not Parquet, which whoever reads all such files below the table's folder would take for data."""
_TABLE = b"headwater.table"

SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("stream_id", pa.string(), nullable=False),
        pa.field("from", pa.int64(), nullable=False),
        pa.field("to", pa.int64(), nullable=False),
        pa.field("batch", pa.int64(), nullable=False),
        pa.field("settled", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Range:
    """Records of one stream, by number: `first` and all after it, up to `end`, which is not."""

    bucket: str
    stream: str
    stream_id: str
    first: int
    end: int
    batch: int = 0
    """The batch that brought the last of them."""
    settled: int = 0
    """`end` as the batches before had left it. Spark repeats no batch before its last, so what is
    before this will never be asked for again."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.bucket, self.stream, self.stream_id


def read_ranges(folder: Folder, table: str | None = None) -> list[Range]:
    """All that any query archived, joined where they touch, in the order of streams and numbers.
    `table` is its identity, see LakeTable."""
    found: list[Range] = []
    for file in folder.walk(_FOLDER):
        if file.path.endswith(_SUFFIX):
            found += _decode(folder.read(file.path), table)
    return join(found)


def read_own(folder: Folder, query: str, table: str | None = None) -> list[Range]:
    return _decode(folder.read(_path(query)), table)


def add_ranges(
    folder: Folder, query: str, added: Iterable[Range], table: str | None = None
) -> list[Range]:
    """Note what a batch brought. To note it again changes nothing. Returns all of this query's.

    Raises LakeError if that is more than it brought when it was noted before.
    """
    ranges = extend(read_own(folder, query, table), added)
    rows = [
        [each.bucket for each in ranges],
        [each.stream for each in ranges],
        [each.stream_id for each in ranges],
        [each.first for each in ranges],
        [each.end for each in ranges],
        [each.batch for each in ranges],
        [each.settled for each in ranges],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(rows, SCHEMA, strict=True)]
    schema = SCHEMA if table is None else SCHEMA.with_metadata({_TABLE: table})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    folder.write(_path(query), sink.getvalue().to_pybytes())
    return ranges


def extend(own: Iterable[Range], added: Iterable[Range]) -> list[Range]:
    """What a query has with what its next batch brought.

    A query reads a stream from one end to the other, so its range grows. Numbers that it did not
    see between two batches are of commands, or of the later parts of long messages. But if batches
    are missing, they went into another table, and a new range begins.
    """
    ranges = sorted(own, key=lambda each: (each.key, each.end))
    last = {each.key: at for at, each in enumerate(ranges)}
    newest = max((each.batch for each in ranges), default=-1)
    for each in added:
        at = last.get(each.key)
        if each.batch <= newest and (at is None or each.end > ranges[at].end):
            raise _set_back(each)
        if at is None or (each.first > ranges[at].end and each.batch > newest + 1):
            ranges.append(replace(each, settled=each.first))
        elif each.end > ranges[at].end:
            known = ranges[at]
            settled = known.settled if each.batch == known.batch else known.end
            ranges[at] = replace(known, end=each.end, batch=each.batch, settled=settled)
    return sorted(ranges, key=lambda each: (each.key, each.end))


def _set_back(each: Range) -> LakeError:
    """A batch counts once, so the table has its rows as they were the first time."""
    return LakeError(
        f"batch {each.batch} of this query is in the table already, and had no records of "
        f"{each.bucket}/{each.stream} up to {each.end}: the checkpoint is older than the table. "
        "Remove the checkpoint, and the archive goes on where its table ends"
    )


def join(ranges: Iterable[Range]) -> list[Range]:
    """Ranges of one stream that overlap or touch become one."""
    joined: list[Range] = []
    for each in sorted(ranges, key=lambda each: (each.key, each.first, each.end)):
        last = joined[-1] if joined else None
        if last is None or last.key != each.key or each.first > last.end:
            joined.append(each)
        elif each.end > last.end:
            joined[-1] = replace(last, end=each.end, batch=each.batch, settled=each.settled)
    return joined


def _path(query: str) -> str:
    return f"{_FOLDER}/{quote(query, safe='')}{_SUFFIX}"


def _decode(data: bytes | None, table: str | None) -> list[Range]:
    if data is None:
        return []
    found = pa.ipc.open_file(pa.py_buffer(data))
    of = (found.schema.metadata or {}).get(_TABLE)  # older versions did not say
    if table is not None and of is not None and of.decode() != table:
        return []
    rows = found.read_all().to_pylist()
    return [
        Range(
            row["bucket"],
            row["stream"],
            row["stream_id"],
            row["from"],
            row["to"],
            row["batch"],
            row["settled"],
        )
        for row in rows
    ]
