"""What every format does: files count once they are committed, and only once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from headwater.lake.files import write_files
from headwater.lake.tables import FORMATS, LakeError, LakeTable, Mark, TableRef, open_table
from tests.lake.tables import add, make, offsets, read, reference, rows

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTable:
    return make(tmp_path, request.param)


def seen_by_others(table: LakeTable) -> pa.Table:
    """The rows as a program reads them that knows nothing of us."""
    location = table.folder.location
    connection = duckdb.connect()
    if table.ref.format == "delta":
        connection.register("found", DeltaTable(location).to_pyarrow_table())
    elif table.ref.format == "iceberg":
        parent = Path(table.ref.location).parent
        catalog = load_catalog("headwater", type="sql", uri=f"sqlite:///{parent}/iceberg.db")
        connection.register("found", catalog.load_table("headwater.orders").scan().to_arrow())
    else:
        connection.execute(
            f"create view found as select * from read_parquet('{location}/**/*.parquet', "
            "hive_partitioning=true, union_by_name=true)"
        )
    relation = connection.sql(
        """select bucket, stream, cast(day as varchar) as day, "offset", value from found
        order by stream, "offset" """
    )
    assert relation is not None
    return relation.to_arrow_table()


def test_rows_come_back_as_they_were(table: LakeTable) -> None:
    new = pa.concat_tables([rows(0, 1), rows(2, day=2), rows(0, stream="a b/ü%2F")])
    add(table, new, 0)
    wanted = new.sort_by([("stream", "ascending"), ("offset", "ascending")])
    assert read(table).select(new.column_names).to_pylist() == wanted.to_pylist()


def test_other_programs_see_the_same_rows(table: LakeTable) -> None:
    add(table, pa.concat_tables([rows(0, 1), rows(2, day=2), rows(0, stream="x/y=z %")]), 0)
    add(table, rows(3, 4), 1)
    own = read(table)
    theirs = seen_by_others(table)
    for column in ("bucket", "stream", "offset", "value"):
        assert theirs[column].to_pylist() == own[column].to_pylist()
    assert theirs["day"].to_pylist() == [str(day) for day in own["day"].to_pylist()]


def test_a_batch_counts_once(table: LakeTable) -> None:
    for _ in range(3):
        add(table, rows(0, 1), 0)
    add(table, rows(2), 1)
    add(table, rows(0, 1), 0)
    assert offsets(table) == [0, 1, 2]


def test_queries_do_not_know_each_others_batches(table: LakeTable) -> None:
    add(table, rows(0), 0, "one")
    add(table, rows(1), 0, "two")
    assert offsets(table) == [0, 1]


def test_files_that_were_not_committed_are_not_seen(table: LakeTable) -> None:
    add(table, rows(0), 0)
    write_files(table.layout, rows(1), "lost")
    assert offsets(table) == [0]
    assert seen_by_others(table)["offset"].to_pylist() == [0]


def test_an_empty_batch_is_remembered(table: LakeTable) -> None:
    table.commit([], Mark("q", 0))
    assert table.committed(Mark("q", 0))
    assert not table.committed(Mark("q", 1))


def test_columns_are_added_and_are_null_before(table: LakeTable) -> None:
    add(table, rows(0), 0)
    wider = rows(1).append_column("amount", pa.array([2.5]))
    table.evolve(wider.schema)
    add(table, wider, 1)
    add(table, rows(2), 2)
    assert read(table)["amount"].to_pylist() == [None, 2.5, None]
    assert seen_by_others(table)["offset"].to_pylist() == [0, 1, 2]


def test_an_overwrite_replaces_everything(table: LakeTable) -> None:
    add(table, rows(0, 1), 0)
    files = write_files(table.layout, rows(7), "new")
    table.commit(files, Mark("q", 1), overwrite=True)
    assert offsets(table) == [7]
    assert seen_by_others(table)["offset"].to_pylist() == [7]


def test_files_of_one_partition_can_be_asked_for(table: LakeTable) -> None:
    add(table, pa.concat_tables([rows(0), rows(5, day=2), rows(1, stream="other")]), 0)
    found = table.files({"stream": "orders/1", "day": "2026-01-02"})
    assert [(file.low, file.high) for file in found] == [({"offset": 5}, {"offset": 5})]


def test_an_earlier_version_stays_readable(table: LakeTable) -> None:
    add(table, rows(0), 0)
    version = table.current_version()
    add(table, rows(1), 1)
    assert offsets(open_table(replace(table.ref, version=version))) == [0]
    assert offsets(table) == [0, 1]


def test_small_files_are_joined(table: LakeTable) -> None:
    for batch in range(5):
        add(table, pa.concat_tables([rows(batch), rows(batch, day=2)]), batch)
    assert table.compact(1 << 20, "joined") == 10
    assert len(table.files()) == 2
    assert offsets(table) == sorted([*range(5), *range(5)])
    assert seen_by_others(table).num_rows == 10
    assert table.compact(1 << 20, "again") == 0
    add(table, rows(9), 5)
    assert 9 in offsets(table)


def test_what_no_longer_counts_is_cleaned(table: LakeTable) -> None:
    for batch in range(3):
        add(table, rows(batch), batch)
    write_files(table.layout, rows(99), "lost")
    table.compact(1 << 20, "joined")
    in_an_hour = 4102444800.0
    assert table.clean(0, in_an_hour) > 0
    assert [file.path for file in table.folder.walk() if "lost" in file.path] == []
    assert offsets(table) == [0, 1, 2]
    assert seen_by_others(table)["offset"].to_pylist() == [0, 1, 2]


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
