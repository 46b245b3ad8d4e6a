"""The streaming queries of a pipeline: one for each sink, one for each source of dead letters."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession, is_remote
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headwater.lake.ranges import read_ranges
from headwater.lake.tables import open_table
from headwater.pipeline import frames
from headwater.pipeline.context import Context
from headwater.pipeline.lake_source import FORMAT
from headwater.pipeline.spec import Archive, Sink, Source, Spec
from headwater.spark import streams
from headwater.spark.options import LATEST, Selection, parse_source
from headwater.spark.targets import IGNORED, WRITTEN
from headwater.spark.writer import QUERY_ID, MissingIds

DEAD_LETTERS = "dead-letters"
LOOK_S = 0.05
BEGIN = "startingOffsets"

_GLOB = re.compile(r"[*?{}\[\]\\]")
"""What a path that Spark reads must not have as it is."""


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
    spec = replace(spec, sources=tuple(settle_start(each, context) for each in spec.sources))
    found = frames.build(spark, spec, context)
    for sink in spec.sinks:
        checkpoint = _checkpoint(spec, sink.name, context)
        yield sink.name, _sink(found[sink.input], sink, context, checkpoint)
    bucket, stream = spec.dead_letters
    for source in spec.sources:
        bad = frames.dead_letters(spark, spec, source, context)
        if bad is not None:
            target = Sink(source.name, source.name, stream, bucket)
            yield f"{DEAD_LETTERS}-{source.name}", _to_stream(bad, target, context)


def settle_start(source: Source, context: Context) -> Source:
    """The same, with numbers for `latest`: all queries of a source begin at the same record.

    Else what comes between their beginnings is new to some of them only, and a bad record could be
    missing in the sinks and among the dead letters. Streams that are made later are read whole.
    Spark does not look at it when there is a checkpoint.
    """
    if source.streams is None:
        return source
    options = parse_source(frames.source_options(source, context), streaming=True)
    begin = options.start
    if begin.at_ms is not None or LATEST not in (begin.default, *begin.each.values()):
        return source
    places = dict(begin.each)
    with options.connection.open() as client:
        for stream in streams.find(client, options.selection).values():
            key = stream.bucket, stream.name
            if begin.each.get(key, begin.default) == LATEST:
                places[key] = stream.tail
    others = {
        name: value for name, value in source.options.items() if name.lower() != BEGIN.lower()
    }
    return replace(source, options={**others, BEGIN: _by_name(places, options.selection)})


def _by_name(places: Mapping[tuple[str, str], int | str], selection: Selection) -> str:
    """As startingOffsets has streams: by name, with the bucket unless there is only one."""
    named = selection.bucket is not None
    return json.dumps(
        {name if named else f"{bucket}/{name}": at for (bucket, name), at in places.items()}
    )


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
        ids = {"producerId": query, "producerEpoch": str(batch_id)}
        batch.write.format("headwater").mode("append").options(**{**options, **ids}).save()

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
    table = open_table(job.table)
    if job.source.start != "earliest" or table.schema() is None:
        return {}
    ends = {each.key: each.end for each in read_ranges(table.folder)}
    if not ends:
        return {}
    options = parse_source(frames.source_options(job.source, context), streaming=True)
    begins: dict[tuple[str, str], int | str] = {}
    with options.connection.open() as client:
        for stream in streams.find(client, options.selection).values():
            end = ends.get((stream.bucket, stream.name, stream.id))
            if end is not None:
                begins[stream.bucket, stream.name] = end
    return {BEGIN: _by_name(begins, options.selection)} if begins else {}
