"""What every format does: files count once they are committed, and only once."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from headwater.lake.files import read_file, write_files
from headwater.lake.iceberg import COMMIT_TRIES
from headwater.lake.tables import (
    FORMATS,
    ORPHAN_S,
    LakeError,
    LakeTable,
    Mark,
    TableRef,
    open_table,
)
from tests.lake.others import seen_by_others
from tests.lake.tables import SCHEMA, add, make, make_at, offsets, place, read, reference, rows
from tests.support.object_store import ObjectStore

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def table(format: str, store: ObjectStore | None, tmp_path: Path) -> LakeTable:
    return make_at(place(store, tmp_path, format))


@pytest.fixture
def local(format: str, tmp_path: Path) -> LakeTable:
    """For what cannot be another matter in an object store."""
    return make(tmp_path, format)


def test_rows_come_back_as_they_were(local: LakeTable) -> None:
    new = pa.concat_tables([rows(0, 1), rows(2, day=2), rows(0, stream="a b/ü%2F")])
    add(local, new, 0)
    wanted = new.sort_by([("stream", "ascending"), ("offset", "ascending")])
    assert read(local).select(new.column_names).to_pylist() == wanted.to_pylist()


def test_other_programs_see_the_same_rows(table: LakeTable, store: ObjectStore | None) -> None:
    add(table, pa.concat_tables([rows(0, 1), rows(2, day=2), rows(0, stream="x/y=z %")]), 0)
    add(table, rows(3, 4), 1)
    own = read(table)
    theirs = seen_by_others(table.ref, store)
    for column in ("bucket", "stream", "offset", "value"):
        assert theirs[column].to_pylist() == own[column].to_pylist()
    days = [[str(day) for day in each["day"].to_pylist()] for each in (own, theirs)]
    assert days[0] == days[1]


def test_a_batch_counts_once(table: LakeTable) -> None:
    for _ in range(3):
        add(table, rows(0, 1), 0)
    add(table, rows(2), 1)
    add(table, rows(0, 1), 0)
    assert offsets(table) == [0, 1, 2]


def test_queries_do_not_know_each_others_batches(local: LakeTable) -> None:
    add(local, rows(0), 0, "one")
    add(local, rows(1), 0, "two")
    assert offsets(local) == [0, 1]


def test_files_that_were_not_committed_are_not_seen(
    table: LakeTable, store: ObjectStore | None
) -> None:
    add(table, rows(0), 0)
    write_files(table.layout, rows(1), "lost")
    assert offsets(table) == [0]
    assert seen_by_others(table.ref, store)["offset"].to_pylist() == [0]


def test_an_empty_batch_is_remembered(local: LakeTable) -> None:
    local.commit([], Mark("q", 0))
    assert local.committed(Mark("q", 0))
    assert not local.committed(Mark("q", 1))


def test_columns_are_added_and_are_null_before(table: LakeTable, store: ObjectStore | None) -> None:
    add(table, rows(0), 0)
    wider = rows(1).append_column("amount", pa.array([2.5]))
    table.evolve(wider.schema)
    add(table, wider, 1)
    add(table, rows(2), 2)
    assert read(table)["amount"].to_pylist() == [None, 2.5, None]
    assert seen_by_others(table.ref, store)["offset"].to_pylist() == [0, 1, 2]


def test_an_overwrite_replaces_everything(table: LakeTable, store: ObjectStore | None) -> None:
    add(table, rows(0, 1), 0)
    files = write_files(table.layout, rows(7), "new")
    table.commit(files, Mark("q", 1), overwrite=True)
    assert offsets(table) == [7]
    assert seen_by_others(table.ref, store)["offset"].to_pylist() == [7]


def test_files_of_one_partition_can_be_asked_for(local: LakeTable) -> None:
    add(local, pa.concat_tables([rows(0), rows(5, day=2), rows(1, stream="other")]), 0)
    found = local.files({"stream": "orders/1", "day": "2026-01-02"})
    assert [(file.low, file.high) for file in found] == [({"offset": 5}, {"offset": 5})]


def test_an_earlier_version_stays_readable(table: LakeTable) -> None:
    add(table, rows(0), 0)
    version = table.current_version()
    add(table, rows(1), 1)
    assert offsets(open_table(replace(table.ref, version=version))) == [0]
    assert offsets(table) == [0, 1]


def test_small_files_are_joined(table: LakeTable, store: ObjectStore | None) -> None:
    for batch in range(5):
        add(table, pa.concat_tables([rows(batch), rows(batch, day=2)]), batch)
    assert table.compact(1 << 20, "joined") == 10
    assert len(table.files()) == 2
    assert offsets(table) == sorted([*range(5), *range(5)])
    assert seen_by_others(table.ref, store).num_rows == 10
    assert table.compact(1 << 20, "again") == 0
    add(table, rows(9), 5)
    assert 9 in offsets(table)


def test_what_no_longer_counts_is_cleaned(table: LakeTable, store: ObjectStore | None) -> None:
    for batch in range(3):
        add(table, rows(batch), batch)
    old = table.files()
    table.compact(1 << 20, "joined")
    assert table.clean(0, table.folder.now_s() + 1) >= 3
    assert not any(table.folder.exists(file.path) for file in old)
    assert table.clean(0, table.folder.now_s() + 1) == 0
    assert offsets(table) == [0, 1, 2]
    assert seen_by_others(table.ref, store)["offset"].to_pylist() == [0, 1, 2]


def test_files_of_a_task_that_still_runs_are_kept(
    table: LakeTable, store: ObjectStore | None
) -> None:
    add(table, rows(0), 0)
    running = write_files(table.layout, rows(1), "running")
    table.clean(0, table.folder.now_s() + 1)
    table.commit(running, Mark("q", 1))
    assert offsets(table) == [0, 1]
    assert seen_by_others(table.ref, store)["offset"].to_pylist() == [0, 1]


@pytest.mark.parametrize(("kept_s", "left"), [(0, 1), (ORPHAN_S, 1), (3 * ORPHAN_S, 2)])
def test_files_of_tasks_that_failed_are_cleaned(local: LakeTable, kept_s: int, left: int) -> None:
    add(local, rows(0), 0)
    now_s = local.folder.now_s()
    for name, age_s in (("lost", 2 * ORPHAN_S), ("running", ORPHAN_S // 2)):
        (file,) = write_files(local.layout, rows(1), name)
        os.utime(local.folder.url(file.path), (now_s - age_s, now_s - age_s))
    local.clean(kept_s, now_s)
    found = [file.path for file in local.folder.walk() if "-lost-" in file.path]
    found += [file.path for file in local.folder.walk() if "-running-" in file.path]
    assert len(found) == left
    assert offsets(local) == [0]


LONG = ("ü" * 100, "/" * 84, "n" * 500, "n" * 499 + "m", "x" * 249, "x" * 248)


def test_names_may_be_longer_than_those_of_folders(
    table: LakeTable, store: ObjectStore | None
) -> None:
    for batch in range(2):
        add(table, pa.concat_tables([rows(batch, stream=name) for name in LONG]), batch)
    table.compact(1 << 20, "joined")
    add(table, rows(2, stream=LONG[0]), 2)
    assert read(table)["stream"].to_pylist() == sorted([*LONG, *LONG, LONG[0]])
    assert seen_by_others(table.ref, store).num_rows == 2 * len(LONG) + 1
    for name in LONG:
        found = table.files({"stream": name})
        batches = [each for file in found for each in read_file(table.folder, file, SCHEMA)]
        assert {text for each in batches for text in each["stream"].to_pylist()} == {name}


def test_other_names_are_joined_beside_long_ones(local: LakeTable) -> None:
    for batch in range(2):
        add(local, pa.concat_tables([rows(batch), rows(batch, stream="n" * 500)]), batch)
    assert local.compact(1 << 20, "joined") == (2 if local.ref.format == "delta" else 4)


def test_a_reference_survives_its_encoding(tmp_path: Path) -> None:
    ref = reference(tmp_path, "iceberg", catalog={"type": "rest"}, storage={"AWS_REGION": "x"})
    assert TableRef.decode(ref.encode()) == ref


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="format is one of delta, iceberg, parquet"):
        open_table(reference(tmp_path, "hudi"))


def test_iceberg_elsewhere_needs_a_catalog() -> None:
    with pytest.raises(LakeError, match="needs a catalog"):
        open_table(TableRef("iceberg", "s3://bucket/orders"))


def test_iceberg_in_a_catalog_of_ones_own(tmp_path: Path) -> None:
    catalog = {
        "name": "mine",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/mine.db",
        "warehouse": str(tmp_path / "warehouse"),
    }
    table = open_table(TableRef("iceberg", "sales.orders", ("day",), catalog))
    table.evolve(rows().schema)
    add(table, rows(0, 1), 0)
    given = {name: value for name, value in catalog.items() if name != "name"}
    assert load_catalog("mine", **given).load_table("sales.orders").scan().to_arrow().num_rows == 2


def joined_beside_appends(table: LakeTable, appends: int) -> int:
    """While the files are exchanged, another query adds so many batches."""
    for batch in range(3):
        add(table, rows(batch), batch)
    left = iter(range(3, 3 + appends))
    exchange = table._exchange  # type: ignore[attr-defined]  # noqa: SLF001

    def late(*arguments: object) -> None:
        exchange(*arguments)
        for batch in left:
            add(open_table(table.ref), rows(batch), batch)
            break

    table._exchange = late  # type: ignore[attr-defined]  # noqa: SLF001
    return table.compact(1 << 20, "joined")


def test_iceberg_files_are_joined_beside_an_append(tmp_path: Path) -> None:
    table = make(tmp_path, "iceberg")
    assert joined_beside_appends(table, 2) == 3
    assert offsets(make(tmp_path, "iceberg")) == [0, 1, 2, 3, 4]


def test_joining_iceberg_files_gives_up_when_others_never_stop(tmp_path: Path) -> None:
    table = make(tmp_path, "iceberg")
    with pytest.raises(LakeError, match="run this again when fewer write to it"):
        joined_beside_appends(table, COMMIT_TRIES)
    assert offsets(make(tmp_path, "iceberg")) == list(range(3 + COMMIT_TRIES))


def test_two_that_write_at_once_both_succeed(tmp_path: Path) -> None:
    """Each has looked at the table before the other's commit."""
    one, two = make(tmp_path, "iceberg"), make(tmp_path, "iceberg")
    new = [write_files(table.layout, rows(n), f"w{n}") for n, table in enumerate((one, two))]
    raced = iter([True])
    exchange = one._exchange  # type: ignore[attr-defined]  # noqa: SLF001

    def late(*arguments: object) -> None:
        if next(raced, False):
            two.commit(new[1], Mark("two", 0))
        exchange(*arguments)

    one._exchange = late  # type: ignore[attr-defined]  # noqa: SLF001
    one.commit(new[0], Mark("one", 0))
    assert offsets(make(tmp_path, "iceberg")) == [0, 1]
