"""Records in an archive and back: in order, each once, all of them or an error."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.lake import files
from headwater.lake.archive import PARTITIONS, SCHEMA, ArchiveReader
from headwater.lake.archiving import join_rows, ranges_of, to_rows
from headwater.lake.files import write_files
from headwater.lake.ranges import Range, add_ranges
from headwater.lake.tables import FORMATS, LakeError, Mark, TableRef, open_table


def records(*offsets: int, stream: str = "s", id: str = "1") -> pa.Table:
    at = datetime(2026, 1, 31, 23, 59, tzinfo=UTC)
    rows: list[dict[str, object]] = [
        {
            "bucket": "b",
            "stream": stream,
            "offset": offset,
            "timestamp": at,
            "key": None,
            "value": b'{"n": %d}' % offset,
            "headers": [],
            "stream_id": id,
        }
        for offset in offsets
    ]
    return pa.Table.from_pylist(rows, pa.schema([f for f in SCHEMA if f.name != "day"]))


class Archive:
    """A table that batches go into."""

    def __init__(self, folder: Path, format: str) -> None:
        self.ref = TableRef(format, str(folder / "lake" / "a"), PARTITIONS)
        self.table = open_table(self.ref)
        self.table.evolve(SCHEMA)

    def add(self, new: pa.Table, batch: int, query: str = "q") -> None:
        rows = to_rows(new, self.table.schema(), json=False)
        new_files = write_files(self.table.layout, rows, f"{query}-{batch}")
        self.table.commit(new_files, Mark(query, batch))
        add_ranges(self.table.folder, query, ranges_of(new, batch))

    def read(self, first: int, end: int, stream: str = "s", id: str = "1") -> list[int]:
        numbers: list[int] = self.table_of(first, end, stream, id)["offset"].to_pylist()
        return numbers

    def table_of(self, first: int, end: int, stream: str = "s", id: str = "1") -> pa.Table:
        return pa.concat_tables(ArchiveReader(self.ref).read("b", stream, id, first, end))


@pytest.fixture(params=FORMATS)
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    return Archive(tmp_path, request.param)


def test_a_range_comes_back_in_order(archive: Archive) -> None:
    archive.add(pa.concat_tables([records(3, 4, 5), records(0, stream="t", id="2")]), 0)
    archive.add(records(6, 8), 1)  # 7 was a command
    assert archive.read(4, 9) == [4, 5, 6, 8]
    archive.table.compact(1 << 20, "joined")
    assert archive.read(3, 9) == [3, 4, 5, 6, 8]
    assert archive.read(0, 1, "t", "2") == [0]


def test_what_two_queries_archived_comes_back_once(archive: Archive) -> None:
    archive.add(records(0, 1, 2), 0, "one")
    archive.add(records(1, 2, 3), 0, "two")
    assert archive.read(0, 4) == [0, 1, 2, 3]


def test_a_stream_made_anew_is_another(archive: Archive) -> None:
    archive.add(records(0, 1), 0)
    archive.add(records(0, 1, 2, id="9"), 1)
    assert archive.read(0, 2) == [0, 1]
    assert archive.read(0, 3, id="9") == [0, 1, 2]


@pytest.mark.parametrize(("first", "end"), [(2, 5), (4, 7), (10, 11)])
def test_part_of_a_range_is_an_error(archive: Archive, first: int, end: int) -> None:
    archive.add(records(3, 4, 5), 0)
    with pytest.raises(LakeError, match=f"has not all records of b/s from {first} to {end}"):
        archive.read(first, end)


def test_where_a_stream_begins(archive: Archive) -> None:
    reader = ArchiveReader(archive.ref)
    assert reader.first_of("1", 6) == 6
    archive.add(records(3, 4, 5), 0)  # after the reader was opened
    assert reader.first_of("1", 6) == 3
    assert reader.first_of("1", 5) == 3
    assert reader.first_of("1", 7) == 7  # 6 is nowhere
    assert reader.first_of("1", 0) == 0
    assert reader.first_of("other", 6) == 6


@pytest.mark.parametrize("at_us", [253_402_300_800_000_000, 1_800_000_000_000_000_000, 2**63 - 1])
def test_times_after_the_last_day_are_on_it(archive: Archive, at_us: int) -> None:
    late = records(0, 1)
    at = pa.array([at_us] * 2, SCHEMA.field("timestamp").type)
    archive.add(late.set_column(late.column_names.index("timestamp"), "timestamp", at), 0)
    archive.add(records(2), 1)
    archive.table.compact(1 << 20, "joined")
    assert {file.partition["day"] for file in archive.table.files()} == {"2026-01-31", "9999-12-31"}
    found = archive.table_of(0, 3)
    assert found["timestamp"].cast(pa.int64()).to_pylist()[:2] == [at_us] * 2


def test_files_that_overlap_are_read_in_order(archive: Archive) -> None:
    """As when upkeep joins two small files, and leaves a large one between them."""
    archive.add(records(0, 1, 6, 7), 0)
    archive.add(records(2, 3), 1)
    archive.add(records(4, 5, 8), 2)
    archive.add(records(3, 4, 9), 0, "other")
    assert archive.read(0, 9) == list(range(9))
    assert archive.read(1, 8) == list(range(1, 8))
    sizes = [part.num_rows for part in ArchiveReader(archive.ref).read("b", "s", "1", 0, 9)]
    assert len(sizes) == 4 and max(sizes) < 9


def test_a_range_may_have_commands_alone(archive: Archive) -> None:
    archive.add(records(0), 0)
    add_ranges(archive.table.folder, "q", [Range("b", "s", "1", 1, 5, 1)])
    assert list(ArchiveReader(archive.ref).read("b", "s", "1", 3, 5)) == []


def test_parts_of_a_file_without_wanted_records_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "GROUP_BYTES", 1)
    archive = Archive(tmp_path, "parquet")
    for batch in range(4):
        archive.add(records(batch), batch)
    assert archive.table.compact(1 << 20, "joined") == 4
    (file,) = archive.table.files()
    found = files.read_file(archive.table.folder, file, SCHEMA, offsets=range(1, 3))
    assert [batch["offset"].to_pylist() for batch in found] == [[1, 2]]
    assert archive.read(2, 4) == [2, 3]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo", "Pacific/Chatham"])
def test_days_are_those_of_utc(zone: str) -> None:
    """Spark gives times in the zone of its session."""
    new = records(0)
    at = new.column_names.index("timestamp")
    local = new.set_column(at, "timestamp", new["timestamp"].cast(pa.timestamp("us", zone)))
    assert to_rows(local, None, json=False).equals(to_rows(new, None, json=False))


def test_there_may_be_no_table_yet(tmp_path: Path) -> None:
    for format in FORMATS:
        reader = ArchiveReader(TableRef(format, str(tmp_path / format / "none")))
        assert reader.first_of("1", 5) == 5


def test_json_columns_of_parts_agree() -> None:
    parts = [
        to_rows(with_values(value), SCHEMA, json=True)
        for value in (b'{"a": 1}', b'{"a": 1.5, "b": "x"}', b'{"a": "text"}', b"no json")
    ]
    rows = join_rows(parts, SCHEMA)
    assert rows["a"].to_pylist() == [1.0, 1.5, None, None]
    assert rows["a__string"].to_pylist() == [None, None, "text", None]
    assert rows["b"].to_pylist() == [None, "x", None, None]
    assert str(rows["day"][0].as_py()) == "2026-01-31"


def test_numbers_may_be_too_long_for_a_fraction() -> None:
    parts = [
        to_rows(with_values(value), SCHEMA, json=True)
        for value in (b'{"a": 1152921504606846977}', b'{"a": 1.5}')
    ]
    assert join_rows(parts, SCHEMA)["a"].to_pylist() == [2.0**60, 1.5]


def with_values(*values: bytes) -> pa.Table:
    table = records(*range(len(values)))
    return table.set_column(table.column_names.index("value"), "value", pa.array(values))
