"""Types that Spark's SQL makes: every format takes them, and other programs read them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.lake.tables import FORMATS, TableRef, open_table
from headwater.lake.types import plain_schema, plain_type
from tests.lake.others import seen_by_others
from tests.lake.tables import add, read

NOON = datetime(2026, 1, 31, 12, 30, 15, 123456, tzinfo=UTC)
WINDOW = pa.struct(
    [
        pa.field("start", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("end", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
STRUCT = pa.struct([pa.field("k", pa.string(), nullable=False)])

VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "boolean": (pa.bool_(), True),
    "int": (pa.int32(), 1),
    "float": (pa.float32(), 1.5),
    "decimal": (pa.decimal128(10, 2), Decimal("1.50")),
    "date": (pa.date32(), date(2026, 1, 31)),
    "timestamp": (pa.timestamp("us", "UTC"), NOON),
    "timestamp_ntz": (pa.timestamp("us"), NOON.replace(tzinfo=None)),
    "window": (WINDOW, {"start": NOON, "end": NOON}),
    "collect_list": (pa.list_(pa.field("element", pa.string(), nullable=False)), ["a"]),
    "list of structs": (pa.list_(pa.field("element", STRUCT, nullable=False)), [{"k": "x"}]),
    "map": (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), [("a", 1)]),
    "text": (pa.large_string(), "x"),
    "bytes": (pa.large_binary(), b"x"),
}


@pytest.mark.parametrize("format", FORMATS)
def test_a_table_has_the_types_that_it_is_given(format: str, tmp_path: Path) -> None:
    found = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
    wanted = plain_schema(pa.schema([("stream", pa.string()), ("offset", pa.int64()), *found]))
    ref = TableRef(format, str(tmp_path / "lake" / "orders"))
    open_table(ref).evolve(wanted)
    table = open_table(ref)
    known = table.schema()
    assert known is not None
    assert plain_schema(known).equals(wanted)
    row = {"stream": "s", **{name: value for name, (_, value) in VALUES.items()}}
    for batch in range(2):
        add(table, pa.Table.from_pylist([{**row, "offset": batch}], wanted), batch)
    table.compact(1 << 20, "joined")
    for rows in (read(table), seen_by_others(ref)):
        assert rows.drop_columns("offset").to_pylist() == [row, row]


PARTITIONS = ("boolean", "int", "date", "timestamp", "timestamp_ntz", "decimal")


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("name", PARTITIONS)
def test_values_of_partitions_are_read_by_others(name: str, format: str, tmp_path: Path) -> None:
    kind, value = VALUES[name]
    ref = TableRef(format, str(tmp_path / "lake" / "orders"), ("x",))
    table = open_table(ref)
    schema = pa.schema([("stream", pa.string()), ("offset", pa.int64()), ("x", kind)])
    table.evolve(schema)
    new = [{"stream": "s", "offset": at, "x": each} for at, each in enumerate((value, None))]
    add(table, pa.Table.from_pylist(new, schema), 0)
    assert read(table)["x"].to_pylist() == [value, None]
    assert seen_by_others(ref)["x"].to_pylist() == [value, None]


def test_nulls_are_allowed_throughout() -> None:
    inner = pa.field("element", pa.struct([pa.field("a", pa.large_string(), nullable=False)]))
    assert plain_type(pa.large_list(inner)) == pa.list_(pa.struct([("a", pa.string())]))
