"""The streaming queries of a pipeline: one for each sink, one for each source of dead letters."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headwater.lake.ranges import read_ranges
from headwater.lake.tables import open_table
from headwater.pipeline import frames
from headwater.pipeline.context import Context
from headwater.pipeline.lake_source import FORMAT
from headwater.pipeline.spec import ANY_BUCKET, Archive, Sink, Spec
from headwater.spark.targets import IGNORED, WRITTEN
from headwater.spark.writer import QUERY_ID, MissingIds

DEAD_LETTERS = "dead-letters"
LOOK_S = 0.05


def start(spark: SparkSession, spec: Spec, context: Context) -> list[StreamingQuery]:
    """Start every query of a pipeline that is not a replay. If one does not start, none runs."""
    started: list[StreamingQuery] = []
    try:
        for name, writer in _writers(spark, spec, context):
            started.append(_begin(writer, name, spec, context))
    except BaseException:
        for query in started:
            query.stop()
        raise
    return started


def _begin(writer: DataStreamWriter, name: str, spec: Spec, context: Context) -> StreamingQuery:
    if context.once:
        writer = writer.trigger(availableNow=True)
    elif spec.trigger is not None:
        writer = writer.trigger(processingTime=spec.trigger)
    checkpoint = f"{context.checkpoint(spec)}/{name}"
    query = writer.queryName(name).option("checkpointLocation", checkpoint).start()
    _wait_for_source(query)
    return query


def _wait_for_source(query: StreamingQuery) -> None:
    """Queries begin one after another. All that read from one data source share a map in Spark,
    which each fills when it begins: two at the same moment can break it, until the driver ends."""
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(LOOK_S)


def _writers(
    spark: SparkSession, spec: Spec, context: Context
) -> Iterator[tuple[str, DataStreamWriter]]:
    if spec.archive is not None:
        yield "archive", archive(spark, spec.archive, context)
        return
    found = frames.build(spark, spec, context)
    for sink in spec.sinks:
        yield sink.name, _sink(found[sink.input], sink, context)
    bucket, stream = spec.dead_letters
    for source in spec.sources:
        bad = frames.dead_letters(spark, spec, source, context)
        if bad is not None:
            target = Sink(source.name, source.name, stream, bucket)
            yield f"{DEAD_LETTERS}-{source.name}", _to_stream(bad, target, context)


def _sink(frame: DataFrame, sink: Sink, context: Context) -> DataStreamWriter:
    if sink.table is None:
        return _to_stream(frame, sink, context)
    writer = frame.writeStream.format(FORMAT).outputMode(sink.mode)
    return writer.options(table=sink.table.encode(), **sink.options)


def _to_stream(frame: DataFrame, sink: Sink, context: Context) -> DataStreamWriter:
    """Rows with a `value` go as they are, others as JSON of all their columns."""
    frame = as_records(frame, by_column=sink.stream is None)
    options = {**context.connection, "bucket": sink.bucket, "contentType": sink.content_type}
    if sink.stream is not None:
        options["stream"] = sink.stream
    options |= sink.options
    if sink.mode == "update":
        return frame.writeStream.outputMode(sink.mode).foreachBatch(_updates(options))
    return frame.writeStream.format("headwater").outputMode(sink.mode).options(**options)


def _updates(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Spark has no update mode for sinks in Python. So each batch is written by itself, under the
    numbers that a streaming write would have had: a repeat adds nothing."""

    def write(batch: DataFrame, batch_id: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not query:
            raise MissingIds("Spark supplied no query id, so rows could be written twice")
        ids = {"producerId": query, "producerEpoch": str(batch_id)}
        batch.write.format("headwater").mode("append").options(**{**options, **ids}).save()

    return write


def as_records(frame: DataFrame, *, by_column: bool) -> DataFrame:
    names = frame.columns
    if "value" in names and all(name in (*WRITTEN, *IGNORED) for name in names):
        return frame
    columns = [F.to_json(F.struct("*")).alias("value")]
    if by_column:
        own = [F.col(name) for name in names if name != "stream"]
        columns = [F.to_json(F.struct(*own)).alias("value"), F.col("stream")]
    return frame.select(*columns)


# -- the archive


def archive(spark: SparkSession, job: Archive, context: Context) -> DataStreamWriter:
    more = {"includeStreamId": "true", **_continued(job, context)}
    if job.trim:
        # Should Spark ever repeat a batch that was trimmed, it finds the records in the table.
        more["archive"] = job.table.encode()
    frame = frames.read_stream(spark, job.source, context, **more)
    options = {
        **context.connection,
        "table": job.table.encode(),
        "archive": "true",
        "json": str(job.json).lower(),
        "trim": str(job.trim).lower(),
    }
    return frame.writeStream.format(FORMAT).outputMode("append").options(**options)


def _continued(job: Archive, context: Context) -> dict[str, str]:
    """A query without a checkpoint begins where the table ends, so nothing is archived twice.

    Spark does not look at it when there is a checkpoint.
    """
    table, streams = open_table(job.table), job.source.streams
    assert streams is not None
    if job.source.start != "earliest" or table.schema() is None:
        return {}
    ends = {each.key: each.end for each in read_ranges(table.folder)}
    every = streams.bucket == ANY_BUCKET
    begins = {}
    with context.client() as client:
        listed = client.streams(bucket=None if every else streams.bucket, pattern=streams.pattern)
        for stream in listed if ends else ():
            end = ends.get((stream.bucket, stream.name, stream.id))
            if end is not None:
                key = f"{stream.bucket}/{stream.name}" if every else stream.name
                begins[key] = end
    return {"startingOffsets": json.dumps(begins)} if begins else {}
