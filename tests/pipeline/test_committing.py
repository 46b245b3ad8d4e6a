"""A batch is committed in several steps, by a driver that may die between any two of them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.lake import archive, archiving
from headwater.lake.columns import kinds_of, settle
from headwater.lake.files import write_files
from headwater.lake.ranges import read_ranges
from headwater.lake.tables import FORMATS, LakeError, Mark, TableRef, open_table
from headwater.pipeline import lake_source
from headwater.pipeline.lake_source import LakeWriter, SinkOptions, Written
from headwater.spark.offsets import Cut, Offset, encode
from headwater.spark.offsets import Mark as Place
from tests.lake.others import seen_by_others
from tests.lake.tables import read
from tests.spark.support import Streams, numbers
from tests.support.inprocess import serving

QUERY = "q"


class Crash(Exception):
    """The end of a driver."""


class Archiving:
    """An archive of the stream `s`, as a driver works on it: without Spark."""

    def __init__(self, streams: Streams, format: str, query: str = QUERY) -> None:
        self.streams = streams
        self.query = query
        self.ref = TableRef(format, str(streams.folder / "lake" / "orders"), archive.PARTITIONS)
        self.checkpoint = streams.folder / query

    @property
    def end(self) -> int:
        """Where its table ends."""
        table = open_table(self.ref)
        return read_ranges(table.folder, table.identity)[-1].end

    def plan(self, batch: int, end: int) -> None:
        """As Spark notes where a batch ends, before it begins."""
        mark = Place(self.streams.at("s").id, end, 0 if batch == 0 else None)
        offset = json.dumps(encode(Offset({f"{self.streams.bucket}/s": mark}, Cut(100, 1))))
        (self.checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offset}")

    def run(self, batch: int, first: int, end: int, attempt: int = 0) -> None:
        self.plan(batch, end)
        writer = self.writer()
        writer.commit([self.written(writer, batch, self.records(first, end), attempt)], batch)

    def writer(self) -> LakeWriter:
        options = SinkOptions(
            table=self.ref,
            archive=True,
            json=True,
            trim=True,
            overwrite=False,
            endpoint=self.streams.url,
            token=None,
            encryption_key=None,
            ca_file=None,
            checkpoint=str(self.checkpoint),
        )
        table = open_table(self.ref)
        table.evolve(archive.SCHEMA)
        known = table.schema()
        assert known is not None
        return LakeWriter(options, table.layout, archive.SCHEMA, known)

    def records(self, first: int, end: int, value: bytes = b'{"n": %d}') -> pa.Table:
        stream = self.streams.at("s")
        rows = [
            {
                "bucket": stream.bucket,
                "stream": stream.name,
                "offset": offset,
                "timestamp": 0,
                "value": value % offset if b"%" in value else value,
                "headers": [],
                "stream_id": stream.id,
            }
            for offset in range(first, end)
        ]
        return pa.Table.from_pylist(rows, pa.schema([f for f in archive.SCHEMA if f.name != "day"]))

    def written(
        self, writer: LakeWriter, batch: int, records: pa.Table, attempt: int = 0
    ) -> Written:
        rows = archiving.to_rows(records, writer.known, json=True)
        files = write_files(writer.layout, rows, f"{self.query}-{batch}-{attempt}")
        kinds = kinds_of(rows.schema, archive.SCHEMA.names)
        ranges = archiving.ranges_of(records, batch)
        return Written(self.query, tuple(files), (kinds,) * len(files), tuple(ranges))


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    with serving() as server, Streams(server.url, "bucket", tmp_path) as found:
        found.make("s", numbers(20))
        yield found


def dying(monkeypatch: pytest.MonkeyPatch, job: Archiving, steps: int) -> None:
    """The driver lives for so many steps of its next commit."""
    left = iter(range(steps))

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def done(*arguments: Any, **named: Any) -> Any:
            if next(left, None) is None:
                raise Crash
            return act(*arguments, **named)

        return done

    kind: Any = type(open_table(job.ref))
    monkeypatch.setattr(kind, "commit", counted(kind.commit))
    for name in ("add_ranges", "trim_settled"):
        monkeypatch.setattr(lake_source, name, counted(getattr(lake_source, name)))
    monkeypatch.setattr(os, "sync", counted(lambda: None))


STEPS = 5  # two of them make sure that all is on disk


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("steps", range(STEPS + 1))
def test_a_driver_may_die_between_any_two_steps(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, format: str, steps: int
) -> None:
    job = Archiving(streams, format)
    job.run(0, 0, 5)
    with monkeypatch.context() as patched, suppress(Crash):
        dying(patched, job, steps)
        job.run(1, 5, 12)
    assert streams.at("s").first in (0, 5)  # a batch behind: Spark may repeat the last
    (noted,) = read_ranges(open_table(job.ref).folder)
    assert read(open_table(job.ref)).num_rows >= noted.end - noted.first
    job.run(1, 5, 12, attempt=1)
    job.run(2, 12, 20)
    assert read(open_table(job.ref))["offset"].to_pylist() == list(range(20))
    assert seen_by_others(job.ref)["n"].to_pylist() == list(range(20))
    assert [(each.first, each.end) for each in read_ranges(open_table(job.ref).folder)] == [(0, 20)]
    assert streams.at("s").first == 12


def test_the_count_of_steps_is_right(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Archiving(streams, "parquet")
    dying(monkeypatch, job, STEPS - 1)
    with pytest.raises(Crash):
        job.run(0, 0, 5)


def test_a_commit_is_not_on_disk_before_what_it_is_of(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor has Spark or the server forgotten anything before the commit is."""
    job = Archiving(streams, "parquet")
    seen: list[tuple[bool, int]] = []

    def look() -> None:
        table = open_table(job.ref)
        seen.append((table.committed(Mark(QUERY, 1)), streams.at("s").first))

    job.run(0, 0, 5)
    monkeypatch.setattr(os, "sync", look)
    job.run(1, 5, 12)
    assert seen == [(False, 0), (True, 0)]
    assert streams.at("s").first == 5


@pytest.mark.parametrize("format", FORMATS)
def test_records_are_not_forgotten_when_a_checkpoint_is_put_back(
    streams: Streams, format: str
) -> None:
    """Spark then plans a batch anew that the table has: with other records."""
    job = Archiving(streams, format)
    job.run(0, 0, 5)
    job.run(1, 5, 12)
    with pytest.raises(LakeError, match="Remove the checkpoint"):
        job.run(1, 5, 15, attempt=1)
    assert job.end == 12
    assert streams.at("s").first == 5


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_records_are_not_forgotten_that_a_table_had_before_it_was_dropped(
    streams: Streams, format: str
) -> None:
    job = Archiving(streams, format)
    job.run(0, 0, 5)
    table: Any = open_table(job.ref)
    if format == "iceberg":
        table._catalog.drop_table(table._name)  # noqa: SLF001
    else:
        shutil.rmtree(Path(job.ref.location) / "_delta_log")
    job.run(1, 5, 12)
    job.run(2, 12, 20)
    assert read(open_table(job.ref))["offset"].to_pylist() == list(range(5, 20))
    assert streams.at("s").first == 0


@pytest.mark.parametrize("format", FORMATS)
def test_two_archives_may_find_the_same_new_field_at_once(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """Both have looked at the columns before the other added its own, of another kind."""
    one, two = Archiving(streams, format), Archiving(streams, format, "other")
    writer, late = one.writer(), two.writer()
    one.plan(0, 2)
    two.plan(0, 2)
    text = one.written(writer, 0, one.records(0, 2, b'{"n": "text"}'))
    number = two.written(late, 0, two.records(0, 2))
    raced = iter([True])

    def racing(*arguments: Any) -> Any:
        found = settle(*arguments)
        if next(raced, False):
            late.commit([number], 0)
        return found

    monkeypatch.setattr(lake_source, "settle", racing)
    writer.commit([text], 0)
    rows = read(open_table(one.ref))
    assert sorted(rows["n"].to_pylist(), key=str) == [0, 1, None, None]
    assert sorted(rows["n__string"].to_pylist(), key=str) == [None, None, "text", "text"]
    assert seen_by_others(one.ref).num_rows == 4


def test_a_column_that_somebody_else_has_added_is_left_alone(streams: Streams) -> None:
    job = Archiving(streams, "delta")
    writer = job.writer()
    open_table(job.ref).evolve(pa.schema([*archive.SCHEMA, ("n", pa.date32())]))
    job.plan(0, 1)
    writer.commit([job.written(writer, 0, job.records(0, 1))], 0)  # it has not seen that yet
    job.run(1, 1, 2)
    rows = read(open_table(job.ref))
    assert (rows["n"].to_pylist(), rows["n__long"].to_pylist()) == ([None, None], [0, 1])


def test_streams_of_one_batch_may_have_fields_called_as_our_columns_are(streams: Streams) -> None:
    job = Archiving(streams, "delta")
    writer = job.writer()
    job.plan(0, 2)
    parts = [
        job.written(writer, 0, job.records(number, number + 1, value), number)
        for number, value in enumerate((b'{"a": "x", "a__string": "y"}', b'{"a": 1, "A__LONG": 2}'))
    ]
    writer.commit(list(parts), 0)
    rows = read(open_table(job.ref))
    assert rows["a"].to_pylist() == [None, 1]
    assert rows["a__string"].to_pylist() == ["y", None]
    assert seen_by_others(job.ref)["value"].to_pylist()[0] == b'{"a": "x", "a__string": "y"}'
