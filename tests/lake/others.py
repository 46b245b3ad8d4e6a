"""The rows of a table as programs read them that know nothing of us."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from headwater.lake.tables import TableRef
from tests.support.object_store import ObjectStore

ORDER = 'select * from found order by stream, "offset"'


def seen_by_others(ref: TableRef, store: ObjectStore | None = None) -> pa.Table:
    """In the order of streams and offsets. `store` is where the table is, if not on disk."""
    readers = {"delta": _delta, "iceberg": _iceberg, "parquet": _parquet}
    connection = duckdb.connect()
    connection.register("found", readers[ref.format](ref, store))
    relation = connection.sql(ORDER)
    assert relation is not None
    return relation.to_arrow_table()


def _delta(ref: TableRef, store: ObjectStore | None) -> pa.Table:
    options = None if store is None else store.for_delta
    return DeltaTable(ref.location, storage_options=options).to_pyarrow_table()


def _iceberg(ref: TableRef, store: ObjectStore | None) -> pa.Table:
    if store is None:
        uri = f"sqlite:///{Path(ref.location).parent}/iceberg.db"
        catalog, name = load_catalog("headwater", type="sql", uri=uri), "headwater.orders"
    else:
        given = {**ref.catalog, **store.for_iceberg}
        catalog, name = load_catalog("headwater", **given), ref.location
    return catalog.load_table(name).scan().to_arrow()


def _parquet(ref: TableRef, store: ObjectStore | None) -> pa.Table:
    """Two kinds of readers: Arrow, like Spark, takes every file whose name begins with no
    underscore, and DuckDB those that end in .parquet. They have to see the same files."""
    found = pads.dataset(
        ref.location.removeprefix("s3://"),
        filesystem=None if store is None else store.filesystem(),
        format="parquet",
        partitioning="hive",
    )
    if store is not None:
        assert all(path.endswith(".parquet") for path in found.files)
        return found.to_table()
    relation = duckdb.sql(
        f"select * from read_parquet('{ref.location}/**/*.parquet', "
        "hive_partitioning=true, union_by_name=true, filename=true)"
    )
    assert relation is not None
    rows = relation.to_arrow_table()
    assert set(rows["filename"].to_pylist()) == set(found.files)
    return rows.drop_columns("filename")
