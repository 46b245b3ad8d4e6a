"""What every format does: files count once they are committed, and only once."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table.update.spec import UpdateSpec

from headwater.lake import files
from headwater.lake.files import read_file, write_files
from headwater.lake.tables import (
    COMMIT_TRIES,
    FORMATS,
    ORPHAN_S,
    DataFile,
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


def test_every_row_is_in_its_own_partition_however_many_there_are(local: LakeTable) -> None:
    names = [f"s{number * 7 % 300}" for number in range(600)]
    found = [
        {**row, "stream": name, "offset": at // 300, "value": name.encode()}
        for row in rows(0).to_pylist()
        for at, name in enumerate(names)
    ]
    add(local, pa.Table.from_pylist(found, SCHEMA), 0)
    for seen in (read(local), seen_by_others(local.ref)):
        assert [name.encode() for name in seen["stream"].to_pylist()] == seen["value"].to_pylist()
        assert seen["offset"].to_pylist() == [0, 1] * 300


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


def test_a_driver_that_comes_late_with_a_batch_adds_nothing(local: LakeTable) -> None:
    """It has looked for the batch before another one committed it."""
    late, mark = open_table(local.ref), Mark("q", 0)
    assert not late.committed(mark)
    add(local, rows(0), 0)
    late.commit(write_files(late.layout, rows(0), "late"), mark)
    assert offsets(local) == [0]


class Late(list[DataFile]):
    """Files of a batch. When its commit comes to them, another driver has committed the batch."""

    def __init__(self, files: Sequence[DataFile], first: Callable[[], None]) -> None:
        super().__init__(files)
        self._first = iter([first])

    def __iter__(self) -> Iterator[DataFile]:
        for commit in self._first:
            commit()
        return super().__iter__()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("before", [0, 1])
def test_of_two_drivers_that_commit_a_batch_at_once_one_does(
    local: LakeTable, before: int, overwrite: bool
) -> None:
    for batch in range(before):
        add(local, rows(batch), batch)
    mark = Mark("q", before)
    one, two = open_table(local.ref), open_table(local.ref)
    first, second = (write_files(local.layout, rows(9), name) for name in ("one", "two"))
    late = Late(second, lambda: one.commit(first, mark, overwrite=overwrite))
    two.commit(late, mark, overwrite=overwrite)
    assert offsets(local) == [*range(0 if overwrite else before), 9]
    assert seen_by_others(local.ref)["offset"].to_pylist() == offsets(local)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_driver_looks_for_a_batch_where_it_commits_it(format: str, tmp_path: Path) -> None:
    """What another commits between the two has to be in its way."""
    one, two = make(tmp_path, format), make(tmp_path, format)
    first, second = (write_files(one.layout, rows(9), name) for name in ("one", "two"))
    existing = two._existing  # type: ignore[attr-defined]  # noqa: SLF001
    raced = iter([True])

    def late() -> Any:
        found = existing()
        if next(raced, False):
            one.commit(first, Mark("q", 0))
        return found

    two._existing = late  # type: ignore[attr-defined]  # noqa: SLF001
    two.commit(second, Mark("q", 0))
    assert offsets(one) == [9]


def test_a_table_keeps_its_partitions(local: LakeTable) -> None:
    with pytest.raises(LakeError, match="is partitioned by bucket, stream, day, not by day; leave"):
        open_table(replace(local.ref, partition_by=("day",))).evolve(SCHEMA)


def test_a_stream_may_be_called_as_folders_without_a_value_are(
    table: LakeTable, store: ObjectStore | None
) -> None:
    name = "__HIVE_DEFAULT_PARTITION__"
    for batch in range(2):
        add(table, rows(batch, stream=name), batch)
    table.compact(1 << 20, "joined")
    assert read(table)["stream"].to_pylist() == [name, name]
    assert sum(file.rows for file in table.files({"stream": name})) == sum(
        file.rows for file in table.files()
    )
    assert seen_by_others(table.ref, store).num_rows == 2


def test_many_can_write_and_add_columns_at_once(local: LakeTable) -> None:
    """Each has looked at the table before the others change it."""
    ready = threading.Barrier(3)

    def work(number: int) -> None:
        table = open_table(local.ref)
        new = write_files(table.layout, rows(number), f"w{number}")
        table.schema()
        ready.wait()
        table.evolve(pa.schema([*SCHEMA, (f"c{number}", pa.int64())]))
        table.commit(new, Mark(f"q{number}", 0))

    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(work, number) for number in range(3)]:
            each.result()
    schema = local.schema()
    assert schema is not None
    assert sorted(schema.names[len(SCHEMA) :]) == ["c0", "c1", "c2"]
    assert offsets(local) == [0, 1, 2]


def test_many_can_make_a_table_at_once(format: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(make, tmp_path, format) for _ in range(3)]:
            each.result()
    add(make(tmp_path, format), rows(0), 0)
    assert [file.partition["stream"] for file in make(tmp_path, format).files()] == ["orders/1"]


def test_what_is_joined_need_not_fit_into_memory(
    local: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only parts of it are there at the same time, and each is one of the new file."""
    monkeypatch.setattr(files, "GROUP_BYTES", 1)
    for batch in range(3):
        add(local, rows(batch), batch)
    local.compact(1 << 20, "joined")
    (file,) = local.files()
    with local.folder.open_input(file.path) as source:
        groups = pq.ParquetFile(source).num_row_groups
    assert groups == (1 if local.ref.format == "delta" else 3)  # delta-rs joins them itself
    assert offsets(local) == [0, 1, 2]


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


def test_a_table_stays_itself_whatever_is_done_to_it(format: str, tmp_path: Path) -> None:
    table = make(tmp_path, format)
    first = table.identity
    for batch in range(2):
        add(table, rows(batch), batch)
    table.evolve(pa.schema([*SCHEMA, ("more", pa.int64())]))
    table.compact(1 << 20, "joined")
    table.clean(0, table.folder.now_s() + 1)
    table.commit(write_files(table.layout, rows(7), "new"), Mark("q", 2), overwrite=True)
    assert first == table.identity == open_table(table.ref).identity
    others = {make(tmp_path / f"other-{each}", each).identity for each in FORMATS}
    assert first not in others or format == "parquet"
    assert len(others) == len(FORMATS)


def test_an_overwrite_replaces_everything(table: LakeTable, store: ObjectStore | None) -> None:
    add(table, rows(0, 1), 0)
    new = write_files(table.layout, rows(7), "new")
    table.commit(new, Mark("q", 1), overwrite=True)
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


def test_folders_whose_names_are_alike_to_iceberg_are_not_mixed_up(tmp_path: Path) -> None:
    one = TableRef("iceberg", str(tmp_path / "lake" / "a.b"))
    make_at(one)
    with pytest.raises(LakeError, match="has the table of .*a.b under this name"):
        open_table(replace(one, location=str(tmp_path / "lake" / "a_b")))


def test_an_iceberg_table_is_never_there_without_its_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(UpdateSpec, "add_identity", killed)
        make(tmp_path, "iceberg")
    assert open_table(reference(tmp_path, "iceberg")).schema() is None
    add(make(tmp_path, "iceberg"), rows(0), 0)
    (file,) = make(tmp_path, "iceberg").files({"stream": "orders/1"})
    assert file.partition.keys() == {"bucket", "stream", "day"}


def test_metadata_of_iceberg_that_no_longer_counts_is_cleaned(tmp_path: Path) -> None:
    table = make(tmp_path, "iceberg")
    for batch in range(5):
        add(table, rows(batch), batch)
    version = table.current_version()
    table.compact(1 << 20, "joined")
    (tmp_path / "lake" / "orders" / "metadata" / "of-others.puffin").write_bytes(b"")
    before = {file.path for file in table.folder.walk("metadata")}
    table.clean(0, table.folder.now_s() + ORPHAN_S - 60)
    gone = before - {file.path for file in table.folder.walk("metadata")}
    assert not gone  # they may be of a commit that somebody is about to make
    table.clean(0, table.folder.now_s() + ORPHAN_S + 1)
    gone = before - {file.path for file in table.folder.walk("metadata")}
    assert len(gone) >= 10 and all(path.endswith(".avro") for path in gone)
    again = make(tmp_path, "iceberg")
    add(again, rows(5), 5)
    assert offsets(again) == list(range(6))
    assert seen_by_others(again.ref)["offset"].to_pylist() == list(range(6))
    with pytest.raises(LakeError, match="no such version of the table"):
        offsets(open_table(replace(again.ref, version=version)))


@pytest.mark.parametrize(
    ("name", "action"),
    [
        pytest.param(
            "deletionVectors",
            {
                "protocol": {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": ["deletionVectors"],
                    "writerFeatures": ["deletionVectors"],
                }
            },
            id="deletions",
        ),
        pytest.param("columnMapping", {"delta.columnMapping.mode": "name"}, id="names"),
    ],
)
def test_delta_tables_that_say_more_than_files_are_not_read(
    name: str, action: dict[str, Any], tmp_path: Path
) -> None:
    """Else rows that were deleted would be there again."""
    table = make(tmp_path, "delta")
    add(table, rows(0, 1), 0)
    log = tmp_path / "lake" / "orders" / "_delta_log"
    first, last = sorted(log.glob("*.json"))
    if "protocol" in action:
        last.write_text(f"{last.read_text()}\n{json.dumps(action)}")
    else:
        actions = [json.loads(line) for line in first.read_text().splitlines()]
        for each in actions:
            if "metaData" in each:
                each["metaData"]["configuration"] = action
        first.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(LakeError, match=f"has {name}, which cannot be read here"):
        offsets(open_table(table.ref))


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
