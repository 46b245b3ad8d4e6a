"""Records on their way into an archive: as rows, with the columns of their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.archive import SCHEMA
from headwater.lake.columns import (
    KINDS,
    Column,
    infer,
    kinds_of,
    known_columns,
    parse_objects,
    settle,
)
from headwater.lake.ranges import Range

_LAST_DAY = pa.scalar(date.max, pa.date32()).cast(pa.int32())
"""Clients may give later times than all formats have days for."""


def to_rows(records: pa.Table, known: pa.Schema | None, *, json: bool) -> pa.Table:
    """Records as rows of an archive: with their day, and the fields of their JSON."""
    times = records["timestamp"].cast(SCHEMA.field("timestamp").type)  # else days of another zone
    days = times.cast(pa.date32()).cast(pa.int32())
    day = pc.min_element_wise(days, _LAST_DAY, skip_nulls=False).cast(pa.date32())
    columns = [day if name == "day" else records[name] for name in SCHEMA.names]
    rows = pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )
    if not json:
        return rows
    kinds = {} if known is None else known_columns(known, SCHEMA.names)
    objects = parse_objects(rows["value"].to_pylist())
    for name, column in infer(objects, kinds, SCHEMA.names).items():
        rows = rows.append_column(name, column)
    return rows


def join_rows(tables: Sequence[pa.Table], known: pa.Schema) -> pa.Table:
    """Rows that were made apart from each other as one table: their JSON columns agree then."""
    kinds = known_columns(known, SCHEMA.names)
    found = [kinds_of(table.schema, SCHEMA.names) for table in tables]
    settled = [
        change_columns(table, changed)
        for table, changed in zip(tables, settle(found, kinds), strict=True)
    ]
    return pa.concat_tables(settled, promote_options="default")


def change_columns(rows: pa.Table, changed: Mapping[str, Column | None]) -> pa.Table:
    """The same rows with other names or kinds of some columns, and without those that are None."""
    kept = rows.drop_columns(list(changed))
    for name, column in changed.items():
        if column is None:
            continue
        values = rows[name].cast(KINDS[column.kind], safe=False)  # as near as fractions come
        if column.name in kept.column_names:  # a field has the name that another one's values get
            at = kept.column_names.index(column.name)
            kept = kept.set_column(at, column.name, pc.coalesce(kept[column.name], values))
        else:
            kept = kept.append_column(column.name, values)
    return kept


def ranges_of(rows: pa.Table, batch: int) -> list[Range]:
    """What of which streams some rows are."""
    keys = ["bucket", "stream", "stream_id"]
    found = rows.group_by(keys).aggregate([("offset", "min"), ("offset", "max")])
    return [
        Range(
            row["bucket"],
            row["stream"],
            row["stream_id"],
            row["offset_min"],
            row["offset_max"] + 1,
            batch,
        )
        for row in found.to_pylist()
    ]
