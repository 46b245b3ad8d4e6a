"""Rows of a task into appends: the same appends again when the same rows come again.

The server tells a repeated append by its number alone, so what is in append n must not depend on
how Spark happened to batch or order the rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

from headwater.spark.schema import KEY_HEADER, counting

CHUNK_BYTES = 8 * 1024 * 1024
CHUNK_ROWS = 100_000
"""Frozen, as is everything in `cut` and `arrange`: a micro-batch that was begun by one release may
be finished by the next."""

HEADER = pa.struct([pa.field("name", pa.binary(), False), pa.field("value", pa.binary(), False)])
HEADERS = pa.list_(pa.field("item", HEADER, False))

ROW_BYTES = 16
"""What a row costs beside its body, roughly."""

Pairs = Sequence[tuple[str, str]]


def records(batch: Any, constant: Pairs) -> Any:
    """Spark's columns as the server's `body` and `headers`, with `offset` if there is one."""
    names = batch.schema.names
    # Large: a task may have more than 2 GiB for a stream, which are sorted in one piece.
    columns = {"body": batch.column("value").cast(pa.large_binary())}
    headers = _headers(batch, constant)
    if headers is not None:
        columns["headers"] = headers
    if "offset" in names:
        columns["offset"] = batch.column("offset").cast(pa.int64())
    return pa.table(columns)


def _bytes(column: Any) -> Any:
    return column.cast(pa.binary())


class _Some(NamedTuple):
    """Headers, each with the row that it belongs to."""

    rows: Any
    names: Any
    values: Any


def _headers(batch: Any, constant: Pairs) -> Any:
    """The option's headers, then the key, then the column's headers; None if there can be none.

    A key takes the place of a header of that name, which the source has made it from.
    """
    columns = batch.schema.names
    every = counting(batch.num_rows)
    found = [
        _Some(every, _repeat(name, batch.num_rows), _repeat(value, batch.num_rows))
        for name, value in constant
    ]
    if "key" in columns:
        keys = _bytes(batch.column("key"))
        held = keys.drop_null()
        found.append(_Some(every.filter(keys.is_valid()), _repeat(KEY_HEADER, len(held)), held))
    if "headers" in columns:
        found.append(_column_headers(batch.column("headers"), without_key="key" in columns))
    return _lists(batch.num_rows, found) if found else None


def _column_headers(column: Any, *, without_key: bool) -> _Some:
    flat = column.flatten()
    names, values = _bytes(flat.field(0)), _bytes(flat.field(1))
    kept = pc.is_valid(names)
    if without_key:
        kept = pc.and_(kept, pc.not_equal(names, pa.scalar(KEY_HEADER.encode())))
    rows = pc.list_parent_indices(column).cast(pa.int64())
    return _Some(rows.filter(kept), names.filter(kept), pc.fill_null(values.filter(kept), b""))


def _lists(rows: int, found: list[_Some]) -> Any:
    """A list of headers for each row."""
    parents = pa.concat_arrays([some.rows for some in found])
    order = pc.sort_indices(parents)  # stable, so each row has its headers in the order above
    names = pa.concat_arrays([some.names for some in found]).take(order)
    values = pa.concat_arrays([some.values for some in found]).take(order)
    counts = pc.value_counts(parents)
    at = pc.index_in(counting(rows), value_set=counts.field("values"))
    lengths = pc.fill_null(counts.field("counts").take(at), 0)
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    flat = pa.StructArray.from_arrays([names, values], fields=list(HEADER))
    return pa.ListArray.from_arrays(offsets, flat, type=HEADERS)


def _repeat(text: str, rows: int) -> Any:
    return pa.repeat(text.encode(), rows)


def sizes(table: Any) -> Any:
    """What each row adds to an append, running sum."""
    size = pc.add(pc.binary_length(table.column("body")).cast(pa.int64()), ROW_BYTES)
    if "headers" in table.schema.names:
        size = pc.add(size, _header_bytes(table.column("headers")))
    return pc.cumulative_sum(size).combine_chunks()


def _header_bytes(column: Any) -> Any:
    lists = column.combine_chunks()
    flat = lists.flatten()
    each = pc.add(pc.binary_length(flat.field("name")), pc.binary_length(flat.field("value")))
    ends = pc.cumulative_sum(pc.add(each.cast(pa.int64()), ROW_BYTES))
    before = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    offsets = pc.subtract(lists.offsets, lists.offsets[0])
    totals = before.take(offsets)
    return pc.subtract(totals.slice(1), totals.slice(0, len(totals) - 1))


def cut(table: Any) -> Iterator[Any]:
    """Pieces, each as long as it can be. At least one row each."""
    ends = sizes(table)
    at, used = 0, 0
    while at < table.num_rows:
        stop = bisect_right(ends, used + CHUNK_BYTES, lo=at, key=_value)
        stop = min(max(stop, at + 1), at + CHUNK_ROWS)
        yield table.slice(at, stop - at)
        at, used = stop, ends[stop - 1].as_py()


def _value(scalar: Any) -> int:
    found: int = scalar.as_py()
    return found


def arrange(table: Any) -> Any:
    """The rows in an order that depends on the rows alone: by `offset`, then by what they hold."""
    names = table.schema.names
    keys = [(name, "ascending") for name in ("offset", "body") if name in names]
    if "headers" in names:
        lists = table.column("headers").combine_chunks()
        flat = lists.flatten()
        for field in ("name", "value"):
            texts = pa.ListArray.from_arrays(lists.offsets, flat.field(field))
            table = table.append_column(f"headers.{field}", pc.binary_join(texts, b"\0"))
            keys.append((f"headers.{field}", "ascending"))
    return table.sort_by(keys)


def encode(table: Any) -> Any:
    """An append's body: an Arrow IPC stream."""
    wanted = [name for name in ("body", "headers") if name in table.schema.names]
    chunk = table.select(wanted).combine_chunks()
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, chunk.schema) as writer:
        writer.write_table(chunk)
    return sink.getvalue()
