"""Reading streams with Spark: every option, in batches and in streaming queries."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.spark import from_json, lag
from tests.spark.support import Streams, finish, numbers

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def values(frame: DataFrame) -> list[bytes]:
    """In the order of stream and offset."""
    rows = frame.select("stream", "offset", "value").collect()
    return [bytes(row.value) for row in sorted(rows)]


# -- batches


def test_a_row_says_everything_about_its_record(spark: SparkSession, streams: Streams) -> None:
    headers = [[(b"key", b"k1"), (b"trace", b"\xff")], [], [(b"key", b"k2"), (b"key", b"k3")]]
    streams.make("s", numbers(3), headers)
    rows = streams.read(spark, subscribe="s", includeHeaders=True).orderBy("offset").collect()
    assert [row.key and bytes(row.key) for row in rows] == [b"k1", None, b"k2"]
    assert [bytes(row.value) for row in rows] == numbers(3)
    assert {(row.bucket, row.stream) for row in rows} == {(streams.bucket, "s")}
    assert [row.offset for row in rows] == [0, 1, 2]
    assert [[(pair.key, bytes(pair.value)) for pair in row.headers] for row in rows] == [
        [("key", b"k1"), ("trace", b"\xff")],
        [],
        [("key", b"k2"), ("key", b"k3")],
    ]
    moment = rows[0].timestamp.replace(tzinfo=UTC)
    assert abs(moment - datetime.fromtimestamp(streams.at("s").created_at_ms / 1000, UTC)) < (
        timedelta(minutes=5)
    )


def test_streams_are_chosen_by_list_pattern_and_prefix(
    spark: SparkSession, streams: Streams
) -> None:
    for name in ("a/1", "a/2", "a/b/3", "c, d"):
        streams.make(name, [name.encode()])
    in_bucket: list[tuple[dict[str, str], list[bytes]]] = [
        ({"subscribe": "a/1, a/2"}, [b"a/1", b"a/2"]),
        ({"subscribe": json.dumps(["c, d", "a/1"])}, [b"a/1", b"c, d"]),
        ({"subscribePattern": "a/*"}, [b"a/1", b"a/2"]),
        ({"subscribePattern": "a/**"}, [b"a/1", b"a/2", b"a/b/3"]),
        ({"subscribePrefix": "a/b"}, [b"a/b/3"]),
        ({"subscribePrefix": "*"}, [b"a/1", b"a/2", b"a/b/3", b"c, d"]),
    ]
    for options, expected in in_bucket:
        assert values(streams.read(spark, **options)) == expected, options
    by_path = streams.read(spark, bucket=None, subscribe=f"{streams.bucket}/a/b/3")
    assert values(by_path) == [b"a/b/3"]
    everywhere = streams.read(spark, bucket=None, subscribePattern="a/b/*")
    assert values(everywhere.where(F.col("bucket") == streams.bucket)) == [b"a/b/3"]


def test_bounds_are_by_number_or_by_time(spark: SparkSession, streams: Streams) -> None:
    streams.make("s", numbers(10))
    streams.make("t", numbers(3))
    after = streams.at("s").last_record_at_ms
    assert after is not None

    def read(**options: Any) -> list[bytes]:
        return values(streams.read(spark, subscribe="s,t", **options))

    assert read(startingOffsets="latest") == []
    assert read(startingOffsets='{"s": 8}') == [b"8", b"9", *numbers(3)]
    assert read(startingOffsets='{"s": 8, "t": -1}', endingOffsets='{"s": 9}') == [b"8"]
    assert read(endingOffsets='{"s": "earliest", "t": 1}') == [b"0"]
    assert read(startingTimestamp="2001-01-01T00:00:00Z") == [*numbers(10), *numbers(3)]
    assert read(endingTimestamp="2001-01-01T00:00:00+01:00") == []
    assert read(startingTimestamp=after + 3_600_000) == []
    assert read(startingTimestamp=0, startingOffsets="latest") == [*numbers(10), *numbers(3)]


def test_partitions_are_as_many_as_asked_for(spark: SparkSession, streams: Streams) -> None:
    streams.make("s", numbers(100))
    for options, expected in (
        ({}, 1),
        ({"maxRecordsPerPartition": 30}, 4),
        ({"minPartitions": 3}, 3),
        ({"minPartitions": 3, "maxRecordsPerPartition": 10}, 10),
    ):
        frame = streams.read(spark, subscribe="s", **options)
        assert frame.rdd.getNumPartitions() == expected, options
        assert sorted(values(frame)) == sorted(numbers(100)), options


def test_long_messages_are_whole_and_commands_shown_when_asked_for(
    spark: SparkSession, streams: Streams
) -> None:
    long = b"x" * 2_500_000
    streams.make("s", [b"before", long, b"after"])
    assert values(streams.read(spark, subscribe="s", maxRecordsPerPartition=1)) == [
        b"before",
        long,
        b"after",
    ]
    stored = values(streams.read(spark, subscribe="s", includeCommands=True))
    assert b"".join(stored) == b"before" + long + b"after" and len(stored) == 5


def test_filters_narrow_what_is_read(spark: SparkSession, streams: Streams) -> None:
    streams.make("s", numbers(100))
    streams.make("t", numbers(100))
    frame = streams.read(spark, subscribePrefix="*", filterPushdown=True, maxRecordsPerPartition=10)
    narrow = frame.where("stream = 's' and offset >= 20 and offset < 35")
    assert values(narrow) == numbers(15, first=20)
    # 20 to 35 and one more, which Spark drops: without narrowing there were 20 partitions.
    assert narrow.rdd.getNumPartitions() == 2
    late = frame.where("timestamp > timestamp'2001-01-01 00:00:00' and stream like 't%'")
    assert values(late) == numbers(100)
    assert late.rdd.getNumPartitions() == 10
    assert values(frame.where("timestamp < timestamp'2001-01-01 00:00:00'")) == []
    assert values(frame.where("offset = 7 and stream in ('s', 'u')")) == [b"7"]
    assert values(frame.where("offset in (7, null) and stream in ('s', null)")) == [b"7"]


def test_a_stream_that_is_not_there_is_an_error_in_a_batch(
    spark: SparkSession, streams: Streams
) -> None:
    streams.make("s", numbers(2))
    with pytest.raises(PySparkException, match="there is no stream typo in the bucket"):
        streams.read(spark, subscribe="s,typo").collect()
    assert values(streams.read(spark, subscribe="s,typo", failOnDataLoss=False)) == numbers(2)


def test_bounds_outside_of_what_is_there_are_data_loss(
    spark: SparkSession, streams: Streams
) -> None:
    streams.make("s", numbers(10))
    streams.trim("s", 4)
    with pytest.raises(PySparkException, match="begins at 4, and was to be read from 2"):
        streams.read(spark, subscribe="s", startingOffsets='{"s": 2}').collect()
    with pytest.raises(PySparkException, match="ends at 10, and was to be read to 11"):
        streams.read(spark, subscribe="s", endingOffsets='{"s": 11}').collect()
    loose = {"startingOffsets": '{"s": 2}', "endingOffsets": '{"s": 11}', "failOnDataLoss": False}
    assert values(streams.read(spark, subscribe="s", **loose)) == numbers(6, first=4)


def test_a_wrong_option_is_found_before_anything_runs(
    spark: SparkSession, streams: Streams
) -> None:
    with pytest.raises(PySparkException, match="did you mean startingOffsets?"):
        streams.read(spark, subscribe="s", startingOfsets="earliest")
    with pytest.raises(PySparkException, match="one of subscribe, subscribePattern"):
        streams.read(spark).collect()
    with pytest.raises(PySparkException, match=r"leave out schema\(\)"):
        spark.read.schema("value string").format("headwater").load().collect()


def test_a_view_of_sql_reads_streams_and_a_table_says_what_to_do(
    spark: SparkSession, streams: Streams
) -> None:
    streams.make("s", numbers(3))
    given = f"endpoint '{streams.url}', bucket '{streams.bucket}', subscribe 's'"
    spark.sql(f"create or replace temporary view v using headwater options ({given})")
    assert spark.sql("select max(offset) from v").collect()[0][0] == 2
    with pytest.raises(PySparkException, match="make a TEMPORARY VIEW"):
        spark.sql(f"create table t using headwater options ({given})")


def test_reading_does_not_renew_a_ttl(spark: SparkSession, streams: Streams) -> None:
    streams.send("PUT", "s", Stream_TTL="3600", Stream_TTL_Anchor="access")
    streams.add("s", numbers(3))
    before = expires_at(streams)
    assert values(streams.read(spark, subscribe="s")) == numbers(3)
    streams.run(streams.follow(spark, subscribe="s"), stream="out")
    assert expires_at(streams) == before


def expires_at(streams: Streams) -> int:
    _, body = streams.client.fetch(info_of(streams, "s"))
    found: int = json.loads(body)["lifetime"]["expires_at_ms"]
    return found


def info_of(streams: Streams, name: str) -> Any:
    from headwater.client.protocol import Request

    return Request("GET", f"/v1/log/info/{streams.bucket}/{name}")


def test_json_becomes_columns_and_what_does_not_fit_is_rescued(
    spark: SparkSession, streams: Streams
) -> None:
    good, wrong, broken = b'{"a": 1, "b": ["x"]}', b'{"a": "one"}', b"{no json"
    more = b'{"a": 1},0]x'
    streams.make("s", [good, wrong, broken, b"5", b'{"c": 1}', more])
    frame = from_json(streams.read(spark, subscribe="s"), "a int, b array<string>")
    assert frame.columns == ["key", "stream", "bucket", "offset", "timestamp", "a", "b", "_rescued"]
    rows = frame.orderBy("offset").select("a", "b", "_rescued").collect()
    assert [tuple(row) for row in rows] == [
        (1, ["x"], None),
        (None, None, wrong.decode()),
        (None, None, broken.decode()),
        (None, None, "5"),
        (None, None, None),
        (1, None, more.decode()),
    ]
    with pytest.raises(ValueError, match=r"there already.*\['offset'\]"):
        from_json(streams.read(spark, subscribe="s"), "offset int")


# -- streaming


def batches(query: Any) -> list[int]:
    """Rows of each micro-batch."""
    return [progress["numInputRows"] for progress in query.recentProgress]


def test_available_now_reads_in_steps_what_there_is_and_ends(
    spark: SparkSession, streams: Streams
) -> None:
    streams.make("s", numbers(100))
    streams.make("t", numbers(50))
    follow = streams.follow(spark, subscribe="s,t", maxOffsetsPerTrigger=60)
    query = streams.run(follow, stream="out")
    assert batches(query) == [60, 60, 30]
    assert sorted(streams.bodies("out")) == sorted([*numbers(100), *numbers(50)])
    # Nothing new: it ends without a micro-batch.
    assert batches(streams.run(follow, stream="out")) in ([], [0])
    streams.add("s", [b"late"])
    streams.run(follow, stream="out")
    assert streams.bodies("out")[-1] == b"late"
    assert streams.at("out").tail == 151


def test_a_limit_in_bytes_is_kept_roughly(spark: SparkSession, streams: Streams) -> None:
    streams.make("s", [b"x" * 1000] * 100)
    follow = streams.follow(spark, subscribe="s", maxBytesPerTrigger=25_000)
    assert batches(streams.run(follow, stream="out")) == [25, 25, 25, 25]


def test_a_query_from_latest_begins_where_its_first_start_found_the_streams(
    spark: SparkSession, streams: Streams
) -> None:
    streams.make("s", numbers(5))
    follow = streams.follow(spark, subscribe="s", startingOffsets="latest")
    streams.run(follow, stream="out")
    streams.add("s", [b"new"])
    streams.run(follow, stream="out")
    assert streams.bodies("out") == [b"new"]


def test_new_streams_that_match_are_picked_up_while_running(
    spark: SparkSession, streams: Streams
) -> None:
    streams.make("in/1", [b"one"])
    follow = streams.follow(spark, subscribePattern="in/*", startingOffsets="latest")
    writer = follow.writeStream.format("headwater").trigger(processingTime="0 seconds")
    given = {"endpoint": streams.url, "bucket": streams.bucket, "stream": "out"}
    query = writer.options(checkpointLocation=str(streams.folder / "checkpoint"), **given).start()
    try:
        while query.lastProgress is None:
            query.processAllAvailable()
        streams.make("in/2", [b"two"])
        streams.add("in/1", [b"more"])
        while streams.client.stream(streams.bucket, "out") is None or streams.at("out").tail < 2:
            query.processAllAvailable()
        assert sorted(streams.bodies("out")) == [b"more", b"two"]
    finally:
        query.stop()


def test_progress_tells_the_lag_of_each_stream(spark: SparkSession, streams: Streams) -> None:
    streams.make("s", numbers(10))
    streams.make("t", numbers(4))
    follow = streams.follow(spark, subscribe="s,t", maxOffsetsPerTrigger=7)
    query = streams.run(follow, stream="out")
    seen = [lag(progress) for progress in query.recentProgress]
    assert seen == [
        {f"{streams.bucket}/s": 5, f"{streams.bucket}/t": 2},
        {f"{streams.bucket}/s": 0, f"{streams.bucket}/t": 0},
    ]


@pytest.mark.parametrize("what", ["trimmed", "deleted", "made again"])
def test_lost_records_end_the_query_or_are_passed_over(
    spark: SparkSession, streams: Streams, what: str
) -> None:
    streams.make("s", numbers(5))
    streams.make("t", numbers(2))
    strict = streams.follow(spark, subscribe="s,t")
    streams.run(strict, stream="out")
    streams.add("s", numbers(5, first=5))
    if what == "trimmed":
        streams.trim("s", 8)
    else:
        streams.remove("s")
    if what == "made again":
        streams.make("s", [b"again"] * 20)
    message = {
        "trimmed": "begins at 8, and was to be read from 5",
        "deleted": "s was deleted",
        "made again": "s was deleted and made again",
    }
    with pytest.raises(StreamingQueryException, match=message[what]):
        streams.run(strict, stream="out")
    assert streams.at("out").tail == 7

    loose = streams.follow(spark, subscribe="s,t", failOnDataLoss=False)
    streams.run(loose, stream="out")
    rest = {"trimmed": numbers(2, first=8), "deleted": [], "made again": [b"again"] * 20}
    assert streams.bodies("out")[7:] == rest[what]


def test_a_closed_stream_that_was_read_may_go_away(spark: SparkSession, streams: Streams) -> None:
    streams.make("s", numbers(5))
    streams.make("t", numbers(5))
    streams.client.close_stream(streams.bucket, "s")
    follow = streams.follow(spark, subscribePattern="*")
    streams.run(follow, stream="out", bucket=f"{streams.bucket}-out")
    streams.remove("s")
    streams.add("t", [b"more"])
    streams.run(follow, stream="out", bucket=f"{streams.bucket}-out")
    streams.client.close_stream(streams.bucket, "t")  # after its last record was read
    streams.run(follow, stream="out", bucket=f"{streams.bucket}-out")
    streams.remove("t")
    streams.run(follow, stream="out", bucket=f"{streams.bucket}-out")


def test_a_query_may_go_on_with_other_streams(spark: SparkSession, streams: Streams) -> None:
    streams.make("s", [b"s1"])
    streams.make("t", [b"t1"])
    streams.run(streams.follow(spark, subscribe="s,t"), stream="out")
    streams.add("s", [b"s2"])
    streams.add("t", [b"t2"])
    streams.make("u", [b"u1"])
    streams.run(streams.follow(spark, subscribe="s,u"), stream="out")
    assert sorted(streams.bodies("out")) == [b"s1", b"s2", b"t1", b"u1"]
    streams.run(streams.follow(spark, subscribe="s,t,u"), stream="out")
    assert sorted(streams.bodies("out")) == [b"s1", b"s2", b"t1", b"t2", b"u1"]


def test_options_that_are_not_for_streaming_are_refused(
    spark: SparkSession, streams: Streams
) -> None:
    follow = streams.follow(spark, subscribe="s", endingOffsets="latest")
    with pytest.raises(StreamingQueryException, match="endingOffsets is for batch reads"):
        finish(streams.start(follow, stream="out").start())
