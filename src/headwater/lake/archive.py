"""Tables that hold records of streams: their columns, and records read back by number.

What such a table holds, and nothing beyond, is said by its ranges (ranges.py). So whoever reads a
stream can take the records that the server has trimmed from here, and the rest from the server.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.files import read_file
from headwater.lake.ranges import Range, read_ranges
from headwater.lake.tables import LakeError, LakeTable, TableRef, open_table

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


class ArchiveReader:
    """Reads records back. Opened where it is used: it does not travel."""

    def __init__(self, ref: TableRef) -> None:
        self._table: LakeTable = open_table(ref)
        self._ranges: dict[str, list[Range]] = {}
        self._reload()

    def _reload(self) -> None:
        found: dict[str, list[Range]] = {}
        if self._table.schema() is not None:
            for each in read_ranges(self._table.folder):
                found.setdefault(each.stream_id, []).append(each)
        self._ranges = found

    def first_of(self, stream_id: str, first: int) -> int:
        """The first record of a stream, of which the server has those from `first` on."""
        if first == 0:
            return 0
        found = self._covering(stream_id, first - 1)
        return first if found is None else found.first

    def _covering(self, stream_id: str, number: int) -> Range | None:
        """The range that has a record. The table may have grown since it was opened."""
        for again in (True, False):
            for each in self._ranges.get(stream_id, ()):
                if each.first <= number < each.end:
                    return each
            if again:
                self._reload()
        return None

    def covers(self, stream_id: str, first: int, end: int) -> bool:
        found = self._covering(stream_id, end - 1)
        return found is not None and found.first <= first

    def read(self, bucket: str, stream: str, stream_id: str, first: int, end: int) -> pa.Table:
        """The records of a range, in order, each once. Raises LakeError if not all are there."""
        if not self.covers(stream_id, first, end):
            raise LakeError(
                f"the archive has not all records of {bucket}/{stream} from {first} to {end}"
            )
        offset, own = pc.field("offset"), pc.field("stream_id")
        wanted = (offset >= first) & (offset < end) & (own == stream_id)
        where = {"bucket": bucket, "stream": stream}
        for name, value in where.items():
            wanted = wanted & (pc.field(name) == value)
        files = [
            file
            for file in self._table.files(where)
            if file.low.get("offset", first) < end and file.high.get("offset", first) >= first
        ]
        folder = self._table.folder
        found = [batch for file in files for batch in read_file(folder, file, SCHEMA, wanted)]
        rows = pa.Table.from_batches(found, SCHEMA).sort_by("offset")
        return _each_once(rows).select(list(READ_BACK))


def _each_once(rows: pa.Table) -> pa.Table:
    """Two queries may have archived the same records into one table."""
    if rows.num_rows < 2:
        return rows
    offsets = rows["offset"].combine_chunks()
    offsets = offsets.chunk(0) if isinstance(offsets, pa.ChunkedArray) else offsets
    new = pc.not_equal(offsets.slice(1), offsets.slice(0, len(offsets) - 1))
    return rows.filter(pa.concat_arrays([pa.array([True]), new]))
