"""Plain Parquet, whose commits take several steps: a crash between any two loses nothing.

A move is two of them, as object stores have no other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.lake.files import read_file, write_files
from headwater.lake.tables import LakeError, LakeTable, Mark, TableRef, open_table
from tests.lake.others import seen_by_others
from tests.lake.tables import SCHEMA, add, make_at, offsets, place, reference, rows
from tests.support.object_store import ObjectStore

STEPS_OF_A_COMMIT = 6  # what it says, two moves, that it is done
STEPS_OF_UPKEEP = 10  # the same with one move, and three more for the files that go


class Crash(Exception):
    """The end of a process."""


def dying(ref: TableRef, steps: int) -> LakeTable:
    """A table whose owner lives for so many changes of its folder."""
    table = open_table(ref)
    folder = table.folder
    write, create, delete = folder.write, folder.create, folder.delete
    left = iter(range(steps))

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any) -> Any:
            if next(left, None) is None:
                raise Crash
            return change(*arguments)

        return changed

    def move(source: str, target: str) -> None:
        data = folder.read(source)
        assert data is not None
        folder.write(target, data)
        folder.delete(source)

    patched: Any = folder
    patched.write, patched.create = counted(write), counted(create)
    patched.delete, patched.move = counted(delete), move
    return table


@pytest.fixture
def ref(store: ObjectStore | None, tmp_path: Path) -> TableRef:
    found = place(store, tmp_path, "parquet")
    make_at(found)
    return found


def assert_holds(ref: TableRef, store: ObjectStore | None, *wanted: int) -> None:
    assert offsets(open_table(ref)) == list(wanted)
    assert seen_by_others(ref, store)["offset"].to_pylist() == list(wanted)


@pytest.mark.parametrize("steps", range(STEPS_OF_A_COMMIT + 1))
def test_a_batch_that_a_crash_cut_off_and_spark_repeats_counts_once(
    ref: TableRef, store: ObjectStore | None, steps: int
) -> None:
    new = pa.concat_tables([rows(1, 2), rows(3, day=2)])
    add(open_table(ref), rows(0), 0)
    first = dying(ref, steps)
    files = write_files(first.layout, new, "first")
    with suppress(Crash):
        first.commit(files, Mark("q", 1))
    add(open_table(ref), new, 1)
    assert_holds(ref, store, 0, 1, 2, 3)


@pytest.fixture(params=range(STEPS_OF_UPKEEP + 1))
def cut_off(request: pytest.FixtureRequest, tmp_path: Path) -> TableRef:
    """A table with the rows 0, 1 and 2, whose upkeep a crash cut off."""
    ref = reference(tmp_path, "parquet")
    make_at(ref)
    for batch in range(3):
        add(open_table(ref), rows(batch), batch)
    with suppress(Crash):
        dying(ref, request.param).compact(1 << 20, "joined")
    return ref


def test_upkeep_that_a_crash_cut_off_is_finished_by_the_next(cut_off: TableRef) -> None:
    open_table(cut_off).compact(1 << 20, "again")
    assert_holds(cut_off, None, 0, 1, 2)


def test_upkeep_that_a_crash_cut_off_is_finished_by_the_next_batch(cut_off: TableRef) -> None:
    add(open_table(cut_off), rows(3), 3)
    assert_holds(cut_off, None, 0, 1, 2, 3)


def test_nothing_comes_back_when_upkeep_was_cut_off_before_an_overwrite(cut_off: TableRef) -> None:
    table = open_table(cut_off)
    table.commit(write_files(table.layout, rows(7), "new"), Mark("q", 3), overwrite=True)
    assert_holds(cut_off, None, 7)
    table.compact(1 << 20, "again")
    assert_holds(cut_off, None, 7)


def test_our_readers_see_rows_once_while_upkeep_is_cut_off(cut_off: TableRef) -> None:
    table = open_table(cut_off)
    assert offsets(table) == [0, 1, 2]
    version = table.current_version()
    add(table, rows(3), 3)
    assert offsets(open_table(replace(cut_off, version=version))) == [0, 1, 2]


@pytest.mark.parametrize("steps", range(STEPS_OF_A_COMMIT + 1))
def test_our_readers_see_all_of_a_batch_or_nothing(tmp_path: Path, steps: int) -> None:
    ref = reference(tmp_path, "parquet")
    add(make_at(ref), rows(0), 0)
    first = dying(ref, steps)
    files = write_files(first.layout, pa.concat_tables([rows(1, 2), rows(3, day=2)]), "first")
    with suppress(Crash):
        first.commit(files, Mark("q", 1))
    assert offsets(open_table(ref)) in ([0], [0, 1, 2, 3])


def test_a_commit_that_was_not_written_to_its_end_is_none(tmp_path: Path) -> None:
    ref = reference(tmp_path, "parquet")
    table = make_at(ref)
    add(table, rows(0), 0)
    (commit,) = (tmp_path / "lake" / "orders" / "_headwater" / "commits").rglob("*.json")
    commit.with_name(f"{commit.name}.1.tmp").write_bytes(b'{"add": [')
    assert offsets(table) == [0]
    assert table.compact(1 << 20, "joined") == 0
    assert table.clean(0, table.folder.now_s()) == 0


def test_what_was_listed_stays_readable_when_files_are_joined(
    ref: TableRef, store: ObjectStore | None
) -> None:
    table = open_table(ref)
    for batch in range(3):
        add(table, rows(batch), batch)
    listed, pinned = table.files(), open_table(replace(ref, version=table.current_version()))
    assert table.compact(1 << 20, "joined") == 3
    assert table.clean(3600, table.folder.now_s()) == 0
    found = [row for file in listed for row in read_file(table.folder, file, SCHEMA)]
    assert sorted(batch["offset"].to_pylist() for batch in found) == [[0], [1], [2]]
    assert offsets(pinned) == [0, 1, 2]
    assert_holds(ref, store, 0, 1, 2)
    assert table.clean(0, table.folder.now_s() + 1) == 4  # these, and the version
    with pytest.raises(LakeError, match="no such version"):
        offsets(pinned)
    assert_holds(ref, store, 0, 1, 2)


def test_a_file_is_kept_from_when_it_was_joined(tmp_path: Path) -> None:
    table = make_at(reference(tmp_path, "parquet"))
    for batch in range(2):
        add(table, rows(batch), batch)
    for file in table.files():
        os.utime(table.folder.url(file.path), (0, 0))
    assert table.compact(1 << 20, "joined") == 2
    assert table.clean(3600, table.folder.now_s()) == 0


def test_files_that_went_while_they_were_joined_do_not_come_back(tmp_path: Path) -> None:
    ref = reference(tmp_path, "parquet")
    for batch in range(2):
        add(make_at(ref), rows(batch), batch)
    table: Any = open_table(ref)
    exists = table.folder.exists

    def late(path: str) -> bool:
        other = open_table(ref)
        mark = Mark("q", 2)
        if not other.committed(mark):
            other.commit(write_files(other.layout, rows(7), "new"), mark, overwrite=True)
        return bool(exists(path))

    table.folder.exists = late
    assert table.compact(1 << 20, "joined") == 0
    assert_holds(ref, None, 7)


def test_the_counts_of_steps_are_right(ref: TableRef) -> None:
    """Or the tests above would leave some out."""
    for batch in range(3):
        add(open_table(ref), rows(batch), batch)
    with pytest.raises(Crash):
        dying(ref, STEPS_OF_UPKEEP - 1).compact(1 << 20, "joined")
    open_table(ref).compact(1 << 20, "again")
    new = pa.concat_tables([rows(3), rows(4, day=2)])
    last = dying(ref, STEPS_OF_A_COMMIT - 1)
    with pytest.raises(Crash):
        last.commit(write_files(last.layout, new, "new"), Mark("q", 3))


def test_what_is_joined_beside_an_overwrite_does_not_come_back(ref: TableRef) -> None:
    """It has looked at the files before they were exchanged."""
    for batch in range(2):
        add(open_table(ref), rows(batch), batch)
    table: Any = open_table(ref)
    files, raced = table.files, iter([True])

    def late() -> list[Any]:
        found: list[Any] = files()
        if next(raced, False):
            assert open_table(ref).compact(1 << 20, "joined") == 2
        return found

    table.files = late
    table.commit(write_files(table.layout, rows(7), "new"), Mark("q", 2), overwrite=True)
    assert offsets(open_table(ref)) == [7]


def test_upkeep_that_was_taken_for_dead_does_not_join_files_again(ref: TableRef) -> None:
    """A machine may sleep for longer than a lease lasts."""
    for batch in range(2):
        add(open_table(ref), rows(batch), batch)
    table: Any = open_table(ref)
    record, raced = table._record, iter([True])  # noqa: SLF001

    def asleep(*arguments: Any, **named: Any) -> bool:
        if next(raced, False):
            assert open_table(ref).compact(1 << 20, "meanwhile") == 2
        return bool(record(*arguments, **named))

    table._record = asleep  # noqa: SLF001
    assert table.compact(1 << 20, "joined") == 0
    assert offsets(open_table(ref)) == [0, 1]


@pytest.mark.parametrize("steps", range(STEPS_OF_A_COMMIT + 2))
def test_an_overwrite_that_a_crash_cut_off_and_spark_repeats_replaces_all(
    ref: TableRef, store: ObjectStore | None, steps: int
) -> None:
    add(open_table(ref), rows(0), 0)
    first = dying(ref, steps)
    with suppress(Crash):
        first.commit(write_files(first.layout, rows(7), "first"), Mark("q", 1), overwrite=True)
    assert offsets(open_table(ref)) in ([0], [7])
    table = open_table(ref)
    table.commit(write_files(table.layout, rows(7), "again"), Mark("q", 1), overwrite=True)
    assert_holds(ref, store, 7)


@pytest.mark.parametrize("steps", range(STEPS_OF_A_COMMIT + 1))
def test_upkeep_leaves_a_commit_that_is_not_done_alone(tmp_path: Path, steps: int) -> None:
    ref = reference(tmp_path, "parquet")
    new = pa.concat_tables([rows(2, 3), rows(4, day=2)])
    for batch in range(2):
        add(make_at(ref), rows(batch), batch)
    first = dying(ref, steps)
    files = write_files(first.layout, new, "first")
    with suppress(Crash):
        first.commit(files, Mark("q", 2))
    assert open_table(ref).compact(1 << 20, "joined") == (3 if steps == STEPS_OF_A_COMMIT else 2)
    add(open_table(ref), new, 2)
    assert_holds(ref, None, 0, 1, 2, 3, 4)


def test_what_a_commit_is_about_to_do_may_be_done_and_joined_by_upkeep(
    ref: TableRef, store: ObjectStore | None
) -> None:
    add(open_table(ref), rows(0), 0)
    table: Any = open_table(ref)
    move = table.folder.move

    def late(source: str, target: str) -> None:
        other = open_table(ref)
        other.clean(3600, other.folder.now_s())
        assert other.compact(1 << 20, "joined") == 2
        move(source, target)

    table.folder.move = late
    table.commit(write_files(table.layout, rows(1), "new"), Mark("q", 1))
    assert_holds(ref, store, 0, 1)
    assert len(table.files()) == 1


class Interrupted:
    """A table whose folder changes while it is listed: after so many of its files."""

    def __init__(self, ref: TableRef, after: int, change: Callable[[], None]) -> None:
        self.table = open_table(ref)
        walk = self.table.folder.walk
        left = iter([True])

        def changing(path: str = "") -> Iterator[Any]:
            if path or not next(left, False):
                yield from walk(path)
                return
            seen = sorted(walk())[:after]
            yield from seen
            change()
            last = seen[-1].path if seen else ""
            yield from (file for file in sorted(walk()) if file.path > last)

        folder: Any = self.table.folder
        folder.walk = changing


@pytest.mark.parametrize("after", range(8))
def test_a_batch_that_is_added_while_files_are_listed_is_seen_whole_or_not(
    tmp_path: Path, after: int
) -> None:
    ref = reference(tmp_path, "parquet")
    add(make_at(ref), rows(0), 0)
    new = pa.concat_tables([rows(1), rows(2, day=2), rows(3, day=3)])
    found = Interrupted(ref, after, lambda: add(open_table(ref), new, 1))
    assert offsets(found.table) in ([0], [0, 1, 2, 3])


@pytest.mark.parametrize("after", range(8))
@pytest.mark.parametrize("cut", [None, *range(STEPS_OF_UPKEEP)])
def test_rows_are_seen_once_when_files_are_joined_while_they_are_listed(
    tmp_path: Path, after: int, cut: int | None
) -> None:
    ref = reference(tmp_path, "parquet")
    for batch in range(3):
        add(make_at(ref), rows(batch), batch)

    def join() -> None:
        with suppress(Crash):
            joining = open_table(ref) if cut is None else dying(ref, cut)
            joining.compact(1 << 20, "joined")

    assert offsets(Interrupted(ref, after, join).table) == [0, 1, 2]


def test_two_that_add_columns_at_once_add_both(ref: TableRef) -> None:
    """Each has looked at the columns before the other's change."""
    table: Any = open_table(ref)
    evolved, raced = table._evolved, iter([True])  # noqa: SLF001

    def late(schema: pa.Schema) -> pa.Schema | None:
        found: pa.Schema | None = evolved(schema)
        if next(raced, False):
            open_table(ref).evolve(pa.schema([*SCHEMA, ("b", pa.int64())]))
        return found

    table._evolved = late  # noqa: SLF001
    table.evolve(pa.schema([*SCHEMA, ("a", pa.int64())]))
    assert table.schema().names[-2:] == ["b", "a"]


def test_a_table_of_an_older_version_does_not_say_its_partitions(tmp_path: Path) -> None:
    ref = reference(tmp_path, "parquet")
    make_at(ref).folder.write("_headwater/schema.arrow", SCHEMA.serialize().to_pybytes())
    open_table(replace(ref, partition_by=("day",))).evolve(SCHEMA)
