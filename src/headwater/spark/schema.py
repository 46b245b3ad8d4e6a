"""Columns: Spark's, the server's, and one into the other without looking at single records."""

from __future__ import annotations

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
    StructField("value", BinaryType()),
    StructField("stream", StringType()),
    StructField("bucket", StringType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
)

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))
_TIMESTAMP = pa.timestamp("us", "UTC")

_ARROW = {
    "key": pa.binary(),
    "value": pa.binary(),
    "stream": pa.string(),
    "bucket": pa.string(),
    "offset": pa.int64(),
    "timestamp": _TIMESTAMP,
    "headers": _HEADERS,
    "stream_id": pa.string(),
}


def schema(*, headers: bool, stream_ids: bool = False) -> StructType:
    more = [HEADERS_FIELD] * headers + [STREAM_ID_FIELD] * stream_ids
    return StructType([*COLUMNS, *more])


def archived(rows: Any, stream_id: str, *, headers: bool, stream_ids: bool) -> Any:
    """Records of an archive, which has Spark's columns already, as Spark's batches."""
    names = [field.name for field in schema(headers=headers).fields]
    fields = pa.schema([(name, _ARROW[name]) for name in names])
    found = rows.select(names).cast(fields)
    if stream_ids:
        found = found.append_column("stream_id", pa.repeat(pa.scalar(stream_id), rows.num_rows))
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
        "stream": pa.repeat(pa.scalar(stream), rows),
        "bucket": pa.repeat(pa.scalar(bucket), rows),
        "offset": batch.column("seq_num").view(pa.int64()),
        "timestamp": batch.column("timestamp").cast(_TIMESTAMP),
    }
    if headers:
        columns["headers"] = _headers(sent)
    if stream_id is not None:
        columns["stream_id"] = pa.repeat(pa.scalar(stream_id), rows)
    fields = pa.schema([(name, _ARROW[name]) for name in columns])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=fields)


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
