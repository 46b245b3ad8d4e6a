"""The streaming queries of a pipeline: one for each sink, one for each source of dead letters."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, is_remote
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headwater.pipeline import frames, starts
from headwater.pipeline.context import Context
from headwater.pipeline.lake_source import FORMAT
from headwater.pipeline.last_words import last_words
from headwater.pipeline.spec import Archive, Sink, Source, Spec
from headwater.spark.targets import IGNORED, WRITTEN
from headwater.spark.writer import QUERY_ID, MissingIds

DEAD_LETTERS = "dead-letters"
LOOK_S = 0.05

_GLOB = re.compile(r"[*?{}\[\]\\]")
"""What a path that Spark reads must not have as it is."""


def start(spark: SparkSession, spec: Spec, context: Context) -> list[StreamingQuery]:
    """Start every query of a pipeline that is not a replay. If one does not start, none runs."""
    started: list[StreamingQuery] = []
    try:
        for name, writer in _writers(spark, spec, context):
            try:
                started.append(_begin(writer, name, spec, context))
            except AnalysisException as error:
                raise _part_error(spec, name, error) from error
    except BaseException:
        for query in started:
            query.stop()
        raise
    return started


def _part_error(spec: Spec, query: str, error: Exception) -> frames.PartError:
    """Spark does not take a query: because of its sink, but for those that we make ourselves."""
    lines = {sink.name: sink.line for sink in spec.sinks}
    part = f"sink {query}" if query in lines else query
    return frames.PartError(spec, part, lines.get(query), error)


def _begin(writer: DataStreamWriter, name: str, spec: Spec, context: Context) -> StreamingQuery:
    if context.once:
        writer = writer.trigger(availableNow=True)
    elif spec.trigger is not None:
        writer = writer.trigger(processingTime=spec.trigger)
    checkpoint = _checkpoint(spec, name, context)
    query = writer.queryName(name).option("checkpointLocation", checkpoint).start()
    _wait_for_source(query)
    return query


def _checkpoint(spec: Spec, name: str, context: Context) -> str:
    return f"{context.checkpoint(spec)}/{name}"


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
    sources = starts.settle(spec.sources, _names(spec), context.checkpoint(spec), context)
    spec = replace(spec, sources=sources)
    found = frames.build(spark, spec, context)
    for sink in spec.sinks:
        checkpoint = _checkpoint(spec, sink.name, context)
        try:
            writer = _sink(found[sink.input], sink, context, checkpoint)
        except (AnalysisException, ValueError) as error:
            raise _part_error(spec, sink.name, error) from error
        yield sink.name, writer
    bucket, stream = spec.dead_letters
    for source in spec.sources:
        bad = frames.dead_letters(spark, spec, source, context)
        if bad is not None:
            target = Sink(source.name, source.name, stream, bucket)
            yield _dead_letters(source), _to_stream(bad, target, context)


def _names(spec: Spec) -> list[str]:
    """Of the queries that there can be."""
    return [*(sink.name for sink in spec.sinks), *map(_dead_letters, spec.sources)]


def _dead_letters(source: Source) -> str:
    return f"{DEAD_LETTERS}-{source.name}"


def _sink(frame: DataFrame, sink: Sink, context: Context, checkpoint: str) -> DataStreamWriter:
    if sink.table is not None:
        writer = frame.writeStream.format(FORMAT).outputMode(sink.mode)
        return writer.options(table=sink.table.encode())
    if sink.mode == "update":
        rows, options = _records(frame, sink, context)
        return rows.writeStream.outputMode(sink.mode).foreachBatch(_updates(options, checkpoint))
    return _to_stream(frame, sink, context)


def _to_stream(frame: DataFrame, sink: Sink, context: Context) -> DataStreamWriter:
    rows, options = _records(frame, sink, context)
    return rows.writeStream.format("headwater").outputMode(sink.mode).options(**options)


def _records(frame: DataFrame, sink: Sink, context: Context) -> tuple[DataFrame, dict[str, str]]:
    """What is written to a stream, and the options to write it with."""
    return as_records(frame, by_column=sink.stream is None), sink_options(sink, context)


def sink_options(sink: Sink, context: Context) -> dict[str, str]:
    options = {**context.connection, "bucket": sink.bucket, "contentType": sink.content_type}
    if sink.stream is not None:
        options["stream"] = sink.stream
    return {**options, **sink.options}


def _updates(options: Mapping[str, str], checkpoint: str) -> Callable[[DataFrame, int], None]:
    """Spark has no update mode for sinks in Python. So each batch is written by itself, under the
    numbers that a streaming write would have had: a repeat adds nothing."""

    def write(batch: DataFrame, batch_id: int) -> None:
        query = _query_id(batch.sparkSession, checkpoint)
        if not query:
            raise MissingIds("Spark supplied no query id, so rows could be written twice")
        ids = {"producerId": query, "producerEpoch": str(batch_id)}  # the sink may name its own id
        writer = batch.write.format("headwater").mode("append").options(**{**ids, **options})
        try:
            writer.save()
        except Py4JJavaError as error:
            # Spark looks through this for what says that it was stopped, with a search that takes
            # more stack than there is when it is pages long.
            raise RuntimeError(f"py4j.protocol.Py4JJavaError: {last_words(error)}") from None

    return write


def _query_id(spark: SparkSession, checkpoint: str) -> str | None:
    """Of the query that hands over a batch.

    Spark Connect hands it to a process of its own, which has no context to ask, and a session in
    which no query runs. The checkpoint has the id since before the first batch.
    """
    if not is_remote():
        return spark.sparkContext.getLocalProperty(QUERY_ID)
    metadata = _GLOB.sub(r"\\\g<0>", f"{checkpoint}/metadata")
    row = spark.read.schema("id string").json(metadata).first()
    return None if row is None else row["id"]


def as_records(frame: DataFrame, *, by_column: bool) -> DataFrame:
    """Rows with a `value` go as they are, others as JSON of all their columns."""
    names = frame.columns
    if "value" in names and all(name in (*WRITTEN, *IGNORED) for name in names):
        return frame
    columns = [F.to_json(F.struct("*")).alias("value")]
    if by_column:
        if "stream" not in map(str.lower, names):
            raise ValueError(f"there is no column stream among {', '.join(names)}")
        own = [_column(name) for name in names if name != "stream"]
        columns = [F.to_json(F.struct(*own)).alias("value"), F.col("stream")]
    return frame.select(*columns)


def _column(name: str) -> Column:
    """In quotes, since a dot would lead into a struct."""
    return F.col("`" + name.replace("`", "``") + "`")


# -- the archive


def archive(spark: SparkSession, job: Archive, context: Context) -> DataStreamWriter:
    more = {"includeStreamId": "true", "includeHeaders": "true"}
    if job.trim:
        # Should Spark ever repeat a batch that was trimmed, it finds the records in the table.
        more["archive"] = job.table.encode()
    frame = frames.read_stream(spark, starts.continued(job, context), context, **more)
    options = {
        **context.connection,
        "table": job.table.encode(),
        "archive": "true",
        "json": str(job.json).lower(),
        "trim": str(job.trim).lower(),
    }
    return frame.writeStream.format(FORMAT).outputMode("append").options(**options)
