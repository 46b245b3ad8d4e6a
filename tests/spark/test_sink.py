"""Writing streams with Spark: where rows go, what becomes of them, and that each arrives once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pytest import MonkeyPatch

from headwater.client import Appended, Client, Producer
from headwater.spark.options import parse_sink
from headwater.spark.source import HeadwaterDataSource
from headwater.spark.writer import BatchWriter, StreamWriter, write_rows
from tests.spark.support import Streams, numbers
from tests.support.log import encode_records

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def rows(spark: SparkSession, *found: tuple[Any, ...], schema: str) -> DataFrame:
    return spark.createDataFrame(list(found), schema)


# -- where rows go, and what becomes of them


def test_rows_go_where_the_columns_say(spark: SparkSession, streams: Streams) -> None:
    other = f"{streams.bucket}-other"
    frame = rows(
        spark,
        ("a", streams.bucket, "1"),
        ("b", streams.bucket, "2"),
        ("a", other, "3"),
        ("a", streams.bucket, "4"),
        schema="stream string, bucket string, value string",
    )
    streams.write(frame.coalesce(1), bucket=None)
    assert streams.bodies("a") == [b"1", b"4"]
    assert streams.bodies("b") == [b"2"]
    elsewhere = Streams(streams.url, other, streams.folder)
    assert elsewhere.bodies("a") == [b"3"]
    elsewhere.client.close()

    streams.write(frame, stream="all")
    assert sorted(streams.bodies("all")) == [b"1", b"2", b"3", b"4"]


def test_keys_and_headers_are_written_and_come_back(spark: SparkSession, streams: Streams) -> None:
    frame = rows(
        spark,
        ("k", b"1", [("a", b"x"), ("key", b"old"), ("a", None)]),
        (None, b"2", []),
        (None, b"3", None),
        schema="key string, value binary, headers array<struct<key:string,value:binary>>",
    )
    streams.write(frame.coalesce(1), stream="s", headers='{"from": "spark"}')
    table = streams.table("s")
    found = [
        [(pair["name"], pair["value"]) for pair in row]
        for row in table.column("headers").to_pylist()
    ]
    assert found == [
        [(b"from", b"spark"), (b"key", b"k"), (b"a", b"x"), (b"a", b"")],
        [(b"from", b"spark")],
        [(b"from", b"spark")],
    ]
    # What was read can be written as it is.
    streams.write(streams.read(spark, subscribe="s", includeHeaders=True), stream="copy")
    copied = streams.read(spark, subscribe="copy").orderBy("offset").collect()
    assert [row.key and bytes(row.key) for row in copied] == [b"k", None, None]


def test_streams_are_made_with_the_content_type_and_closed_at_the_end(
    spark: SparkSession, streams: Streams
) -> None:
    frame = rows(spark, ('{"a":1}', "s"), schema="value string, stream string")
    streams.write(frame, contentType="application/json", closeOnFinish=True)
    assert streams.at("s").content_type == "application/json" and streams.at("s").closed
    streams.write(frame.limit(0), stream="empty", closeOnFinish=True)
    assert streams.at("empty").closed
    with pytest.raises(PySparkException, match="the stream is closed"):
        streams.write(frame)


def test_a_missing_stream_is_an_error_when_none_may_be_made(
    spark: SparkSession, streams: Streams
) -> None:
    frame = rows(spark, ("1",), schema="value string")
    with pytest.raises(PySparkException, match="no such stream"):
        streams.write(frame, stream="s", createIfMissing=False)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("a string", {"stream": "s"}, "column a has no place in a stream"),
        ("key string", {"stream": "s"}, "there is no column value"),
        ("value string", {}, "say where to write"),
        ("value int", {"stream": "s"}, "column value is binary or string"),
        ("value string, headers string", {"stream": "s"}, "headers is array<struct"),
        ("value string", {"strean": "s"}, "did you mean stream?"),
        ("value string", {"stream": "s", "order": "any"}, "order is one of auto, kept"),
        ("value string", {"stream": "s", "producerEpoch": "1"}, "together with producerId"),
    ],
)
def test_rows_that_cannot_be_written_are_refused_before_anything_runs(
    spark: SparkSession, streams: Streams, columns: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        streams.write(spark.createDataFrame([], columns), **options)


def test_a_row_without_a_value_or_a_stream_is_an_error(
    spark: SparkSession, streams: Streams
) -> None:
    frame = rows(spark, (None, "s"), schema="value string, stream string")
    with pytest.raises(PySparkException, match="a row has no value"):
        streams.write(frame)
    frame = rows(spark, ("1", None), schema="value string, stream string")
    with pytest.raises(PySparkException, match="a row has no stream"):
        streams.write(frame)


def test_streams_are_not_overwritten(spark: SparkSession, streams: Streams) -> None:
    frame = rows(spark, ("1",), schema="value string")
    options = {"endpoint": streams.url, "bucket": streams.bucket, "stream": "s"}
    with pytest.raises(PySparkException, match="only ever appended to"):
        frame.write.format("headwater").options(**options).mode("overwrite").save()


# -- exactly once


def test_a_batch_write_with_a_producer_can_be_repeated(
    spark: SparkSession, streams: Streams
) -> None:
    frame = rows(spark, ("1",), ("2",), schema="value string").coalesce(1)
    for epoch in (0, 0, 1, 1):
        streams.write(frame, stream="s", producerId="job", producerEpoch=epoch)
    assert streams.bodies("s") == [b"1", b"2", b"1", b"2"]
    with pytest.raises(PySparkException, match="a later micro-batch"):
        streams.write(frame, stream="s", producerId="job", producerEpoch=0)
    streams.write(frame, stream="s")
    streams.write(frame, stream="s")
    assert streams.at("s").tail == 8
    for _ in range(2):
        streams.write(frame, stream="t", producerId="job", producerEpoch=0, closeOnFinish=True)
    assert streams.bodies("t") == [b"1", b"2"]


class FailingStreamWriter(StreamWriter):
    """Every first attempt fails once its first append is on disk."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        with failing_after_an_append():
            return super().write(iterator)


class FailingBatchWriter(BatchWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        with failing_after_an_append():
            return super().write(iterator)


@contextmanager
def failing_after_an_append() -> Iterator[None]:
    context = TaskContext.get()
    assert context is not None
    append = Client.append

    def fail(*args: Any) -> Appended:
        append(*args)
        raise RuntimeError("injected: the task fails after an append")

    with MonkeyPatch.context() as patch:
        if context.attemptNumber() == 0:
            patch.setattr(Client, "append", fail)
        yield


class FailingSink(HeadwaterDataSource):
    @classmethod
    def name(cls) -> str:
        return "failing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return FailingStreamWriter(parse_sink(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        written = super().writer(schema, overwrite)
        assert isinstance(written, BatchWriter)
        return FailingBatchWriter(written.options, written.write_id)


def test_a_task_that_fails_after_its_append_adds_nothing_twice(
    spark: SparkSession, streams: Streams
) -> None:
    spark.dataSource.register(FailingSink)
    streams.make("in", numbers(1000))
    follow = streams.follow(
        spark, subscribe="in", maxOffsetsPerTrigger=600, maxRecordsPerPartition=300
    )
    by_stream = follow.select("value", F.concat(F.lit("out/"), F.col("offset") % 3).alias("stream"))
    streams.run(by_stream, format="failing")
    found = [body for number in range(3) for body in streams.bodies(f"out/{number}")]
    assert Counter(found) == Counter(numbers(1000))

    frame = streams.read(spark, subscribe="in", maxRecordsPerPartition=500).select("value")
    options = {"endpoint": streams.url, "bucket": streams.bucket, "stream": "batch"}
    frame.write.format("failing").options(**options).mode("append").save()
    assert Counter(streams.bodies("batch")) == Counter(numbers(1000))


def reordered(batches: Iterator[Any]) -> Iterator[Any]:
    """The rows of a task as a shuffle may hand them over: each attempt in another order."""
    context = TaskContext.get()
    assert context is not None
    found = list(batches)
    if context.attemptNumber():
        found = [batch.take(list(range(batch.num_rows))[::-1]) for batch in found[::-1]]
    yield from found


def test_a_shuffle_and_more_rows_than_an_append_holds_are_still_written_once(
    spark: SparkSession, streams: Streams
) -> None:
    spark.dataSource.register(FailingSink)
    bodies = [b"%06d" % number + os.urandom(1000) for number in range(24_000)]
    streams.make("in")
    for at in range(0, len(bodies), 6000):
        streams.add("in", bodies[at : at + 6000])
    follow = streams.follow(spark, subscribe="in", maxRecordsPerPartition=3000)
    rows = follow.repartition(2).select("value").mapInArrow(reordered, "value binary")
    streams.run(rows, format="failing", stream="out")
    assert Counter(streams.bodies("out")) == Counter(bodies)
    assert streams.at("out").bytes / 2 > 8 * 1024 * 1024  # each task made several appends


def test_order_is_kept_within_a_task_by_offset_or_on_request(
    spark: SparkSession, streams: Streams
) -> None:
    bodies = [os.urandom(1000) for _ in range(20_000)]
    streams.make("in")
    for at in range(0, len(bodies), 5000):
        streams.add("in", bodies[at : at + 5000])
    read = streams.read(spark, subscribe="in")
    streams.write(read, stream="by-offset")
    assert streams.bodies("by-offset") == bodies
    streams.write(read.select("value"), stream="kept", order="kept")
    assert streams.bodies("kept") == bodies
    streams.write(read.select("value"), stream="sorted")
    assert streams.bodies("sorted") == sorted(bodies)


def test_a_replayed_micro_batch_has_the_partitions_it_had(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    """A batch is planned and written but not committed; then the query starts with other options,
    and streams have changed."""
    streams.make("in", numbers(100))
    streams.run(streams.follow(spark, subscribe="in", maxRecordsPerPartition=10), stream="out")
    commits = streams.folder / "checkpoint" / "commits"
    for commit in (*commits.glob("0"), *commits.glob(".0.crc")):
        commit.unlink()
    streams.make("in2", numbers(50, first=200))
    streams.add("in", numbers(50, first=100))
    changed = streams.follow(
        spark, subscribe="in,in2", maxRecordsPerPartition=7, startingOffsets="latest"
    )
    streams.run(changed, stream="out")
    assert Counter(streams.bodies("out")) == Counter([*numbers(150), *numbers(50, first=200)])


def test_a_task_of_an_older_micro_batch_is_fenced(spark: SparkSession, streams: Streams) -> None:
    streams.make("in", numbers(10))
    query = streams.run(streams.follow(spark, subscribe="in", maxOffsetsPerTrigger=5), stream="out")
    zombie = Producer(f"{query.id}/0", 0, 0)
    options = parse_sink(
        {"endpoint": streams.url, "bucket": streams.bucket, "stream": "out"}, streaming=True
    )
    batch = streams.table("in").select(["body"]).rename_columns(["value"]).to_batches()[0]
    with pytest.raises(RuntimeError, match="this task is out of date"):
        write_rows(options, zombie, iter([batch]))
    assert streams.at("out").tail == 10


def test_ids_that_spark_does_not_supply_are_an_error(spark: SparkSession, streams: Streams) -> None:
    """The tasks of a batch have none."""
    given = {"endpoint": streams.url, "bucket": streams.bucket, "stream": "out"}
    writer = StreamWriter(parse_sink(given, streaming=True))

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        writer.write(batches)
        yield from ()

    frame = rows(spark, ("1",), schema="value string").mapInArrow(write, "value string")
    with pytest.raises(PySparkException, match="supplied no query id or no batch id"):
        frame.collect()
    assert streams.client.stream(streams.bucket, "out") is None


def test_two_writers_may_interleave(streams: Streams) -> None:
    """Two attempts of one task at the same time, as speculation has them."""
    streams.make("s")
    chunks = [encode_records([b"%d" % number]) for number in range(3)]
    for number in (0, 0, 1, 0, 1, 2, 2, 1):
        streams.client.append(streams.bucket, "s", chunks[number], Producer("q/0", 5, number))
    assert streams.bodies("s") == [b"0", b"1", b"2"]
