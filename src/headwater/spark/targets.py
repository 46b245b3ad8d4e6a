"""Which stream a row goes to: by option, or by the columns `stream` and `bucket`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructType

from headwater.spark.options import DEFAULT_BUCKET, OptionError, SinkOptions

WRITTEN = ("value", "key", "headers", "stream", "bucket")
IGNORED = ("offset", "timestamp")
"""Columns of the source that the server gives anew. `offset` may say in which order rows go."""

_BETWEEN = "\0"
"""Joins the names of a bucket and a stream. The server allows it in neither."""


class Target(NamedTuple):
    """A stream to write to."""

    bucket: str
    name: str


def named(options: SinkOptions) -> Target:
    """The stream that the options name."""
    assert options.stream is not None
    return Target(options.bucket or DEFAULT_BUCKET, options.stream)


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Raises OptionError unless these rows can be written."""
    names = schema.fieldNames()
    for name in names:
        if name not in WRITTEN and name not in IGNORED:
            raise OptionError(
                f"the column {name} has no place in a stream; these have: {', '.join(WRITTEN)}. "
                "To write whole rows as JSON: select(to_json(struct('*')).alias('value'))"
            )
    if "value" not in names:
        raise OptionError("there is no column value, which is what is written to the stream")
    if options.stream is None and "stream" not in names:
        raise OptionError("say where to write: with the option stream, or a column stream")
    for name in ("value", "key"):
        if name in names:
            _check_type(name, schema[name].dataType, (BinaryType, StringType))
    for name in ("stream", "bucket"):
        if name in names:
            _check_type(name, schema[name].dataType, (StringType,))
    if "headers" in names and not _is_headers(schema["headers"].dataType):
        found = schema["headers"].dataType.simpleString()
        raise OptionError(f"headers is array<struct<key:string,value:binary>>. received={found}")


def _check_type(name: str, found: DataType, allowed: tuple[type[DataType], ...]) -> None:
    if not isinstance(found, allowed):
        kinds = " or ".join(kind.typeName() for kind in allowed)
        raise OptionError(f"the column {name} is {kinds}; cast it. received={found.simpleString()}")


def _is_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = found.elementType.fields
    return len(fields) == 2 and all(
        isinstance(f.dataType, (StringType, BinaryType)) for f in fields
    )


def split(batch: Any, options: SinkOptions) -> Iterator[tuple[Target, Any]]:
    """The rows of each stream, in the order in which they came. Raises ValueError for rows without
    a value or a stream."""
    _check_nulls(batch, "value")
    by_bucket = options.bucket is None and "bucket" in batch.schema.names
    if options.stream is not None and not by_bucket:
        yield named(options), batch
        return
    if options.stream is None:
        _check_nulls(batch, "stream")
        stream = _texts(batch, "stream")
    else:
        stream = pa.repeat(options.stream, batch.num_rows)
    bucket = (
        pc.fill_null(_texts(batch, "bucket"), DEFAULT_BUCKET)
        if by_bucket
        else pa.repeat(options.bucket or DEFAULT_BUCKET, batch.num_rows)
    )
    keys = pc.binary_join_element_wise(bucket, stream, _BETWEEN).dictionary_encode()
    order = pc.sort_indices(keys.indices)  # stable
    ordered = batch.take(order)
    at = 0
    counts = pc.value_counts(keys.indices.take(order))
    for code, count in zip(
        counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True
    ):
        key: str = keys.dictionary[code].as_py()
        yield Target(*key.split(_BETWEEN, 1)), ordered.slice(at, count)
        at += count


def _texts(batch: Any, name: str) -> Any:
    """A column of names, whichever kind of text Spark was told to send."""
    texts = batch.column(name).cast(pa.string())
    if pc.any(pc.equal(texts, "")).as_py():
        raise ValueError(f"a row has an empty {name}; filter such rows out, or give them one")
    return texts


def _check_nulls(batch: Any, name: str) -> None:
    if batch.column(name).null_count:
        raise ValueError(f"a row has no {name}; filter such rows out, or give them one")
