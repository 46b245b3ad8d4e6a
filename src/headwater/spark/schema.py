"""Columns: Spark's, the server's, and one into the other without looking at single records."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

KEY_HEADER = "key"
"""The header that a record's key is in."""

HEADERS_FIELD = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)

STREAM_ID_FIELD = StructField("stream_id", StringType())

COLUMNS = (
    StructField("key", BinaryType()),
    # Spark need not look for nulls, twice for each row, where there are none.
    StructField("value", BinaryType(), nullable=False),
    StructField("stream", StringType(), nullable=False),
    StructField("bucket", StringType(), nullable=False),
    StructField("offset", LongType(), nullable=False),
    StructField("timestamp", TimestampType(), nullable=False),
)

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))
_TIMESTAMP = pa.timestamp("us", "UTC")
_LAST_MS = (2**63 - 1) // 1000

_FIELDS = {
    field.name: field
    for field in (
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", _TIMESTAMP, nullable=False),
        pa.field("headers", _HEADERS),
        pa.field("stream_id", pa.string()),
    )
}


def schema(*, headers: bool, stream_ids: bool = False) -> StructType:
    more = [HEADERS_FIELD] * headers + [STREAM_ID_FIELD] * stream_ids
    return StructType([*COLUMNS, *more])


def archived(rows: Any, stream_id: str, *, headers: bool, stream_ids: bool) -> Any:
    """Records of an archive, which has Spark's columns already, as Spark's batches."""
    names = [field.name for field in schema(headers=headers).fields]
    fields = pa.schema([_FIELDS[name] for name in names])
    found = rows.select(names).cast(fields)
    if stream_ids:
        found = found.append_column("stream_id", repeated(stream_id, rows.num_rows))
    return found.to_batches()


def to_spark(
    batch: Any, bucket: str, stream: str, *, headers: bool, stream_id: str | None = None
) -> Any:
    """A batch of the server as Spark's columns."""
    rows = batch.num_rows
    sent = batch.column("headers")
    columns = {
        "key": _keys(sent),
        "value": batch.column("body"),
        "stream": repeated(stream, rows),
        "bucket": repeated(bucket, rows),
        "offset": batch.column("seq_num").view(pa.int64()),
        "timestamp": _times(batch.column("timestamp")),
    }
    if headers:
        columns["headers"] = _headers(sent)
    if stream_id is not None:
        columns["stream_id"] = repeated(stream_id, rows)
    fields = pa.schema([_FIELDS[name] for name in columns])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=fields)


def _times(sent: Any) -> Any:
    """Clients may give times of which Spark has none: they become the last that it has."""
    try:
        return sent.cast(_TIMESTAMP)
    except pa.ArrowInvalid:
        return pc.min_element_wise(sent.view(pa.int64()), _LAST_MS).cast(sent.type).cast(_TIMESTAMP)


def _keys(sent: Any) -> Any:
    """Of each record, the value of its first header called `key`, or null."""
    flat = sent.flatten()
    if not len(flat):
        return pa.nulls(len(sent), pa.binary())
    is_key = pc.equal(flat.field("name"), pa.scalar(KEY_HEADER.encode()))
    rows = pc.list_parent_indices(sent).filter(is_key)
    values = flat.field("value").filter(is_key)
    return values.take(pc.index_in(counting(len(sent)), value_set=rows))


def _headers(sent: Any) -> Any:
    flat = sent.flatten()
    names = as_text(flat.field("name"))
    pairs = pa.StructArray.from_arrays([names, flat.field("value")], fields=list(_HEADER))
    offsets = pc.subtract(sent.offsets, sent.offsets[0])
    return pa.ListArray.from_arrays(offsets, pairs, type=_HEADERS)


def as_text(names: Any) -> Any:
    """Bytes as text; what is not UTF-8 gets replacement characters."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [name.decode("utf-8", "replace") for name in names.to_pylist()]
        return pa.array(texts, pa.string())


def counting(count: int) -> Any:
    """0, 1, 2 …"""
    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    return pc.subtract(pc.cumulative_sum(ones), 1)


def repeated(text: str, rows: int) -> Any:
    """A column of one text."""
    return _repeated(text, 1 << (rows - 1).bit_length()).slice(0, rows)


@lru_cache(maxsize=8)
def _repeated(text: str, rows: int) -> Any:
    """A stream's batches are of about one length, so one column serves them all."""
    return pa.repeat(pa.scalar(text), rows)
