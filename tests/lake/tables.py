"""Tables of every format, on a disk or in an object store, and rows to put into them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.lake.files import read_file, write_files
from headwater.lake.tables import FORMATS, LakeTable, Mark, TableRef, open_table
from tests.support.object_store import ObjectStore

PARTITIONS = ("bucket", "stream", "day")

SCHEMA = pa.schema(
    [
        ("bucket", pa.string()),
        ("stream", pa.string()),
        ("day", pa.date32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def rows(*offsets: int, stream: str = "orders/1", day: int = 1) -> pa.Table:
    found = [
        {
            "bucket": "shop",
            "stream": stream,
            "day": date(2026, 1, day),
            "offset": offset,
            "timestamp": datetime(2026, 1, day, 12, tzinfo=UTC),
            "value": b"%d" % offset,
            "headers": [{"key": "k", "value": b"v"}],
        }
        for offset in offsets
    ]
    return pa.Table.from_pylist(found, SCHEMA)


def reference(folder: Path, format: str, **values: Any) -> TableRef:
    return TableRef(format, str(folder / "lake" / "orders"), PARTITIONS, **values)


def place(store: ObjectStore | None, folder: Path, format: str) -> TableRef:
    """On disk, or in a bucket of a store: the catalog of Iceberg is on disk then."""
    if store is None:
        return reference(folder, format)
    return at_url(f"s3://{store.make_bucket()}/lake", folder, format, storage=store.storage)


def at_url(url: str, folder: Path, format: str, **values: Any) -> TableRef:
    if format != "iceberg":
        return TableRef(format, f"{url}/orders", PARTITIONS, **values)
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/iceberg.db", "warehouse": url}
    return TableRef(format, "lake.orders", PARTITIONS, catalog, **values)


def make(folder: Path, format: str) -> LakeTable:
    return make_at(reference(folder, format))


def make_at(ref: TableRef) -> LakeTable:
    table = open_table(ref)
    table.evolve(SCHEMA)
    return table


def add(table: LakeTable, new: pa.Table, batch: int, query: str = "q") -> None:
    """One batch, as a query commits it."""
    files = write_files(table.layout, new, f"{query}-{batch}")
    mark = Mark(query, batch)
    if not table.committed(mark):
        table.commit(files, mark)


def read(table: LakeTable) -> pa.Table:
    """What our own reader sees."""
    schema = table.schema()
    assert schema is not None
    batches = [batch for file in table.files() for batch in read_file(table.folder, file, schema)]
    return pa.Table.from_batches(batches, schema).sort_by(
        [("stream", "ascending"), ("offset", "ascending")]
    )


def offsets(table: LakeTable) -> list[int]:
    found: list[int] = read(table)["offset"].to_pylist()
    return found


__all__ = [
    "FORMATS",
    "PARTITIONS",
    "SCHEMA",
    "add",
    "at_url",
    "make",
    "make_at",
    "offsets",
    "place",
    "read",
    "reference",
    "rows",
]
