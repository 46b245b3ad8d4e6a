"""Iceberg tables that others work on too, with engines of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import DayTransform

from headwater.lake.locations import absolute
from headwater.lake.tables import ORPHAN_S, LakeError, TableRef, open_table
from tests.lake.tables import PARTITIONS, SCHEMA, add, make, make_at, offsets, rows

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def theirs(catalog: dict[str, str]) -> Any:
    return load_catalog("headwater", **catalog).load_table("lake.orders")


@pytest.mark.parametrize("scheme", ["", "file://", "file:"])
def test_files_of_others_are_kept_whatever_their_names_begin_with(
    tmp_path: Path, scheme: str
) -> None:
    warehouse = f"{scheme}{tmp_path}/warehouse"
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": warehouse}
    table = make_at(TableRef("iceberg", "lake.orders", PARTITIONS, catalog))
    add(table, rows(0), 0)
    add(table, rows(1), 1)
    theirs(catalog).append(rows(5, 6))
    assert offsets(table) == [0, 1, 5, 6]
    table.clean(0, table.folder.now_s() + ORPHAN_S + 1)
    assert sorted(theirs(catalog).scan().to_arrow()["offset"].to_pylist()) == [0, 1, 5, 6]
    assert table.compact(1 << 20, "joined") == 3
    table.clean(0, table.folder.now_s() + ORPHAN_S + 1)
    assert sorted(theirs(catalog).scan().to_arrow()["offset"].to_pylist()) == [0, 1, 5, 6]


def test_paths_of_java_are_paths() -> None:
    for location in ("/a/b", "file:/a/b", "file:///a/b/"):
        assert absolute(location) == "/a/b"


def test_a_column_that_was_renamed_is_not_taken_for_none(tmp_path: Path) -> None:
    """Files are read by names: it would be null, and for good once they are joined."""
    table = make(tmp_path, "iceberg")
    for batch in range(2):
        add(table, rows(batch), batch)
    other = table._existing()  # type: ignore[attr-defined]  # noqa: SLF001
    with other.update_schema() as update:
        update.rename_column("value", "body")
    for act in (table.files, lambda: table.compact(1 << 20, "joined")):
        with pytest.raises(LakeError, match="the column body .* was renamed"):
            act()
    assert sorted(other.refresh().scan().to_arrow()["body"].to_pylist()) == [b"0", b"1"]


def test_a_column_is_not_taken_for_one_that_was_dropped(tmp_path: Path) -> None:
    table = make(tmp_path, "iceberg")
    add(table, rows(0), 0)
    other = table._existing()  # type: ignore[attr-defined]  # noqa: SLF001
    with other.update_schema() as update:
        update.delete_column("value")
    assert offsets(table) == [0]
    table.evolve(SCHEMA)
    with pytest.raises(LakeError, match="the column value .* took the name of another"):
        table.files()


def test_partitions_may_be_computed(tmp_path: Path) -> None:
    table = make_at(TableRef("iceberg", str(tmp_path / "lake" / "orders")))
    with table._existing().update_spec() as update:  # type: ignore[attr-defined]  # noqa: SLF001
        update.add_field("timestamp", DayTransform(), "timestamp_day")
    table = open_table(table.ref)
    for batch in range(2):
        add(table, pa.concat_tables([rows(batch)]), batch)
    add(table, rows(2, day=2), 2)
    assert offsets(table) == [0, 1, 2]
    assert table.compact(1 << 20, "joined") == 2
    assert offsets(table) == [0, 1, 2]
