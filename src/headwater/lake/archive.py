"""Tables that hold records of streams: their columns, and records read back by number.

What such a table holds, and nothing beyond, is said by its ranges (ranges.py). So whoever reads a
stream can take the records that the server has trimmed from here, and the rest from the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.files import read_file
from headwater.lake.ranges import Range, read_ranges
from headwater.lake.tables import DataFile, LakeError, LakeTable, TableRef, reach_table

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])

SCHEMA = pa.schema(
    [
        ("bucket", pa.string()),
        ("stream", pa.string()),
        ("day", pa.date32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(HEADER)),
        ("stream_id", pa.string()),
    ]
)
"""Of every archive. Columns of JSON fields come after these."""

PARTITIONS = ("bucket", "stream", "day")
READ_BACK = ("key", "value", "stream", "bucket", "offset", "timestamp", "headers")

_TIMES = pa.schema(
    [SCHEMA.field(name) for name in ("bucket", "stream", "offset", "timestamp", "stream_id")]
)
_EPOCH = date(1970, 1, 1)
_DAY_MS = 24 * 60 * 60 * 1000
_US_MAX = 2**63 - 1


class ArchiveReader:
    """Reads records back. Opened where it is used: it does not travel."""

    def __init__(self, ref: TableRef) -> None:
        self._table: LakeTable = reach_table(ref)
        self._ranges: dict[str, list[Range]] = {}
        self._reload()

    def _reload(self) -> None:
        found: dict[str, list[Range]] = {}
        if self._table.schema() is not None:
            for each in read_ranges(self._table.folder, self._table.identity):
                found.setdefault(each.stream_id, []).append(each)
        self._ranges = found

    def first_of(self, stream_id: str, first: int) -> int:
        """The first record of a stream, of which the server has those from `first` on."""
        return self.firsts_of({stream_id: first})[stream_id]

    def firsts_of(self, retained: Mapping[str, int]) -> dict[str, int]:
        """The same of many streams, by their ids. The table may have grown since its ranges were
        read, so they are read again if some are missing, once for all."""
        trimmed = {id: first for id, first in retained.items() if first > 0}
        if any(self._covering(id, first - 1) is None for id, first in trimmed.items()):
            self._reload()
        covering = {id: self._covering(id, first - 1) for id, first in trimmed.items()}
        return {**retained, **{id: each.first for id, each in covering.items() if each}}

    def _covering(self, stream_id: str, number: int) -> Range | None:
        """The range that has a record, of those that were last read."""
        for each in self._ranges.get(stream_id, ()):
            if each.first <= number < each.end:
                return each
        return None

    def covers(self, stream_id: str, first: int, end: int) -> bool:
        if self._covering(stream_id, end - 1) is None:
            self._reload()
        found = self._covering(stream_id, end - 1)
        return found is not None and found.first <= first

    def read(
        self, bucket: str, stream: str, stream_id: str, first: int, end: int
    ) -> Iterator[pa.Table]:
        """The records of a range, in order, each once. Raises LakeError if not all are there."""
        if not self.covers(stream_id, first, end):
            raise LakeError(
                f"the archive has not all records of {bucket}/{stream} from {first} to {end}"
            )
        wanted = _within(bucket, stream, stream_id, first, end)
        files, folder = self._files(bucket, stream, first, end), self._table.folder
        offsets = range(first, end)
        begins = [file.low.get("offset", first) for file in files]
        waiting: list[pa.RecordBatch] = []
        for file, following in zip(files, [*begins[1:], end], strict=False):
            waiting += read_file(folder, file, SCHEMA, wanted, offsets)
            # Files can overlap. What is before the next one cannot change any more.
            settled, waiting = _parted(waiting, following)
            yield _in_order(pa.Table.from_batches(settled, SCHEMA)).select(list(READ_BACK))

    def seq_at(
        self, bucket: str, stream: str, stream_id: str, first: int, end: int, at_ms: int
    ) -> int | None:
        """The first record of a range that is not older than a time; None if all are."""
        at = pa.scalar(min(at_ms * 1000, _US_MAX), SCHEMA.field("timestamp").type)
        found = end
        for file in self._files(bucket, stream, first, end):
            if file.low.get("offset", first) >= found:
                break
            if _is_before(file, at_ms):
                continue
            wanted = _within(bucket, stream, stream_id, first, found) & (
                pc.field("timestamp") >= at
            )
            for batch in read_file(self._table.folder, file, _TIMES, wanted, range(first, found)):
                found = min([found, *batch["offset"].to_pylist()])
        return found if found < end else None

    def _files(self, bucket: str, stream: str, first: int, end: int) -> list[DataFile]:
        """Those that can have records of a range, in the order in which they begin."""
        files = [
            file
            for file in self._table.files({"bucket": bucket, "stream": stream})
            if file.low.get("offset", first) < end and file.high.get("offset", first) >= first
        ]
        return sorted(files, key=lambda file: file.low.get("offset", first))


def _within(bucket: str, stream: str, stream_id: str, first: int, end: int) -> pc.Expression:
    offset = pc.field("offset")
    wanted = (offset >= first) & (offset < end) & (pc.field("stream_id") == stream_id)
    return wanted & (pc.field("bucket") == bucket) & (pc.field("stream") == stream)


def _is_before(file: DataFile, at_ms: int) -> bool:
    """Does its day say that all its records are older? The last of all days has later ones too."""
    text = file.partition.get("day")
    if text is None:
        return False
    day = date.fromisoformat(text)
    return day < date.max and (day - _EPOCH).days < at_ms // _DAY_MS


def _parted(
    batches: Sequence[pa.RecordBatch], before: int
) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """The rows before an offset, and the others."""
    first, second = [], []
    for batch in filter(len, batches):
        if pc.max(batch["offset"]).as_py() < before:  # as nearly all are: not to be copied
            first.append(batch)
        else:
            first.append(batch.filter(pc.field("offset") < before))
            second.append(batch.filter(pc.field("offset") >= before))
    return first, second


def _in_order(rows: pa.Table) -> pa.Table:
    """By offset, and each once: two queries may have archived the same records into one table."""
    if pc.all(_steps(rows, pc.greater), min_count=0).as_py():
        return rows
    rows = rows.sort_by("offset")
    return rows.filter(pa.concat_arrays([pa.array([True]), _steps(rows, pc.not_equal)]))


def _steps(rows: pa.Table, compare: Any) -> pa.Array:
    """How each offset compares with the one before."""
    chunks = [chunk for chunk in rows["offset"].chunks if len(chunk)]
    offsets = pa.concat_arrays([pa.array([], pa.int64()), *chunks])
    return compare(offsets.slice(1), offsets.slice(0, max(0, len(offsets) - 1)))
