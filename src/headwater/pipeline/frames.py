"""Sources and transforms of a pipeline as data frames."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.pipeline.context import Context
from headwater.pipeline.lake_source import FORMAT
from headwater.pipeline.last_words import last_words
from headwater.pipeline.progress import COUNTED
from headwater.pipeline.spec import ANY_BUCKET, Source, Spec, Streams, Watermark
from headwater.spark.json_columns import RESCUED, from_json, why_unfit

_RAW = "_raw"


class PartError(Exception):
    """A source, transform or sink that Spark does not take, with its place in the file."""

    def __init__(self, spec: Spec, part: str, line: int | None, error: Exception) -> None:
        place = spec.file if line is None else f"{spec.file}:{line}"
        super().__init__(f"{place}: {part}: {last_words(error)}")


def selection(streams: Streams) -> dict[str, str]:
    """Which streams, as options of the data source."""
    bucket = {} if streams.bucket == ANY_BUCKET else {"bucket": streams.bucket}
    if streams.pattern is not None:
        return {"subscribePattern": streams.pattern, **bucket}
    return {"subscribe": json.dumps(streams.names), **bucket}


def source_options(source: Source, context: Context) -> dict[str, str]:
    assert source.streams is not None
    options = {**context.connection, **selection(source.streams), "includeHeaders": "true"}
    if source.start in ("earliest", "latest"):
        options["startingOffsets"] = source.start
    else:
        options["startingTimestamp"] = source.start
    if source.archive is not None:
        options["archive"] = source.archive.encode()
    return {**options, **source.options}


def read_stream(spark: SparkSession, source: Source, context: Context, **more: str) -> DataFrame:
    """The records of a source, as they come."""
    options = {**source_options(source, context), **more}
    return spark.readStream.format("headwater").options(**options).load()


def read_table(spark: SparkSession, encoded: str) -> DataFrame:
    return spark.read.format(FORMAT).option("table", encoded).load()


def build(spark: SparkSession, spec: Spec, context: Context) -> dict[str, DataFrame]:
    """A data frame for every source and transform. Raises PartError."""
    frames: dict[str, DataFrame] = {}
    for source in spec.sources:
        frames[source.name] = _source(spark, source, context)
        frames[source.name].createOrReplaceTempView(source.name)
    for transform in spec.transforms:
        try:
            if transform.sql is not None:
                frame = spark.sql(transform.sql)
            else:
                assert transform.function is not None
                frame = transform.function(*(frames[name] for name in transform.inputs))
            frame = _late(frame, transform.watermark)
        except Exception as error:
            raise PartError(spec, f"transform {transform.name}", transform.line, error) from error
        frames[transform.name] = frame
        frame.createOrReplaceTempView(transform.name)
    return frames


def _late(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    return frame if watermark is None else frame.withWatermark(watermark.column, watermark.delay)


def _source(spark: SparkSession, source: Source, context: Context) -> DataFrame:
    if source.table is not None:
        return read_table(spark, source.table.encode())
    frame = read_stream(spark, source, context)
    if source.schema is not None:
        frame = _good(with_schema(frame, source.schema), source)
    return _late(frame, source.watermark)


def with_schema(frame: DataFrame, schema: str) -> DataFrame:
    """The fields of JSON values as columns; `value` stays, and `_rescued` says what did not fit."""
    parsed = from_json(frame.withColumn(_RAW, F.col("value")), schema)
    return parsed.withColumnRenamed(_RAW, "value")


def _good(frame: DataFrame, source: Source) -> DataFrame:
    if source.bad_records == "keep":
        return frame
    if source.bad_records == "fail":
        place = F.format_string(
            "bad record: %s/%s at %d is not JSON that fits", "bucket", "stream", "offset"
        )
        refused = F.when(F.col(RESCUED).isNotNull(), F.raise_error(place).cast("boolean"))
        return frame.filter(F.coalesce(refused, F.lit(True))).drop(RESCUED)
    return frame.filter(F.col(RESCUED).isNull()).drop(RESCUED)


def dead_letters(
    spark: SparkSession, spec: Spec, source: Source, context: Context
) -> DataFrame | None:
    """The records of a source that its schema does not fit, as JSON with the reason."""
    if source.schema is None or not source.has_dead_letters:
        return None
    bad = with_schema(read_stream(spark, source, context), source.schema)
    text = F.col("value").cast("string")
    letter: Mapping[str, Any] = {
        "pipeline": F.lit(spec.name),
        "source": F.lit(source.name),
        "bucket": F.col("bucket"),
        "stream": F.col("stream"),
        "offset": F.col("offset"),
        "timestamp": F.col("timestamp"),
        "reason": why_unfit(text, source.schema),
        "value": text,
        "value_base64": F.when(F.encode(text, "utf-8") != F.col("value"), F.base64(F.col("value"))),
    }
    columns = [column.alias(name) for name, column in letter.items()]
    letters = bad.filter(F.col(RESCUED).isNotNull()).select(
        F.to_json(F.struct(*columns)).alias("value")
    )
    return letters.observe(COUNTED, F.count(F.lit(1)).alias("rows"))
