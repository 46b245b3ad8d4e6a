"""Options: text to values, and mistakes that say what to do."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import example
from hypothesis import given as given_any
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo

from headwater.spark.options import (
    EPOCH,
    Bound,
    OptionError,
    parse_sink,
    parse_source,
    parse_time,
)
from headwater.spark.pushdown import Narrowed


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": "a, b/c"}, (("durable-streams", "a"), ("b", "c"))),
        ({"subscribe": "a, b/c", "bucket": "x"}, (("x", "a"), ("x", "b/c"))),
        ({"subscribe": '["a,b", "a,b"]', "bucket": "x"}, (("x", "a,b"),)),
        ({"subscribe": "/a"}, (("durable-streams", "/a"),)),
    ],
    ids=["by path", "in a bucket", "as JSON", "not a path"],
)
def test_names_are_in_a_bucket_or_have_it_in_front(
    given: dict[str, str], expected: tuple[tuple[str, str], ...]
) -> None:
    assert parse_source(given, streaming=False).selection.names == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Bound("earliest")),
        ({"startingOffsets": "LATEST"}, Bound("latest")),
        (
            {
                "subscribe": "a,b,c,d",
                "startingOffsets": '{"a": 5, "b": -1, "c": "earliest", "d": {"id": "1", "seq": 9}}',
            },
            Bound(
                "earliest",
                {
                    ("durable-streams", "a"): 5,
                    ("durable-streams", "b"): "latest",
                    ("durable-streams", "c"): "earliest",
                    ("durable-streams", "d"): 9,
                },
            ),
        ),
        ({"startingTimestamp": "1970-01-01T01:00:01+01:00"}, Bound("earliest", at_ms=1000)),
        ({"startingTimestamp": "17", "startingOffsets": "latest"}, Bound("earliest", at_ms=17)),
    ],
    ids=["none", "a word", "each stream", "a time", "a time wins"],
)
def test_a_bound_is_a_word_or_numbers_or_a_time(given: dict[str, str], expected: Bound) -> None:
    assert parse_source({"subscribe": "a", **given}, streaming=False).start == expected


@given_any(st.integers(0, 4_000_000_000_000))
@example(1_092_748_005_452)  # as a float, the product is a little less
def test_a_time_is_exact_to_the_millisecond(at_ms: int) -> None:
    moment = EPOCH + timedelta(milliseconds=at_ms)
    assert parse_time("startingTimestamp", moment.isoformat()) == at_ms
    assert Narrowed.of([EqualTo(("timestamp",), moment)])[-2:] == (at_ms, at_ms + 1)


def test_offsets_of_a_pattern_may_be_of_streams_that_are_yet_to_come() -> None:
    given = {"subscribePattern": "*", "bucket": "x", "startingOffsets": '{"a": 3}'}
    assert parse_source(given, streaming=True).start.each == {("x", "a"): 3}


def test_a_streaming_query_begins_at_the_end_unless_told() -> None:
    assert parse_source({"subscribe": "a"}, streaming=True).start == Bound("latest")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "a", "subscribePattern": "b"}, "one of subscribe, subscribePattern"),
        ({"subscribe": "[1]"}, "subscribe is a list of names"),
        ({"subscribe": " , "}, "subscribe is a list of names"),
        ({"subscribe": '["a", ""]'}, "subscribe is a list of names"),
        ({"subscribe": "a", "startingOffsets": "first"}, "earliest, latest or a JSON object"),
        ({"subscribe": "a", "startingOffsets": "{a"}, "startingOffsets is not valid JSON"),
        ({"subscribe": "a", "startingOffsets": '{"a": -3}'}, "a number for each stream"),
        ({"subscribe": "a", "startingOffsets": '{"b": 3}'}, "streams that subscribe names.*'b'"),
        ({"subscribe": "a", "endingOffsets": '{"x/a": 3}'}, "streams that subscribe names.*'x/a'"),
        ({"subscribe": "a", "startingOffsets": '{"a": true}'}, "a number for each stream"),
        (
            {"subscribe": "a", "startingOffsets": '{"a": 5}', "endingOffsets": '{"a": 4}'},
            "endingOffsets is before startingOffsets. durable-streams/a: 4 < 5",
        ),
        (
            {"subscribe": "a", "startingTimestamp": "5", "endingTimestamp": "4"},
            "endingTimestamp is before startingTimestamp",
        ),
        ({"subscribe": "a", "startingTimestamp": "2030-01-01T00:00:00"}, "a time with its zone"),
        ({"subscribe": "a", "startingTimestamp": "soon"}, "a time with its zone"),
        ({"subscribe": "a", "startingTimestamp": str(2**63)}, "a time with its zone"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions is a whole number from 1"),
        ({"subscribe": "a", "failOnDataLoss": "no"}, "failOnDataLoss is true or false"),
        ({"subscribe": "a", "retryTimeout": "long"}, "retryTimeout is a number of seconds"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "5"}, "is for streaming queries"),
        ({"subscribe": "a", "endpoint": "localhost:4437"}, "the endpoint is a URL such as"),
        ({"subscribe": "a", "endpoint": "http://user@x"}, "no user, query or fragment"),
        ({"subscribe": "a", "token": "a\nb"}, "the token has characters that a header of HTTP"),
        ({"subscribe": "a", "encryptionKey": "→"}, "the encryption key has characters"),
        ({"subscribed": "a"}, "no option subscribed; did you mean subscribe?"),
        ({"path": "a"}, "there is no path to load"),
        ({"zzz": "a"}, "known: endpoint, token"),
    ],
)
def test_a_mistake_says_what_is_right(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message.replace("?", r"\?")):
        parse_source(given, streaming=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"closeOnFinish": "true"}, "closeOnFinish is for batch writes"),
        ({"producerId": "a", "producerEpoch": "1"}, "producerEpoch is for batch writes"),
        ({"headers": '{"a": 1}'}, "headers is a JSON object of texts"),
        ({"headers": "[]"}, "headers is a JSON object of texts"),
    ],
)
def test_a_sink_says_what_is_right(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_sink({"stream": "s", **given}, streaming=True)


def test_what_spark_hands_to_every_sink_is_not_a_mistake() -> None:
    given = {"Stream": "s", "checkpointLocation": "/tmp/x", "queryName": "q"}
    assert parse_sink(given, streaming=True).stream == "s"


def test_secrets_are_not_shown() -> None:
    given = {"subscribe": "a", "token": "hush", "encryptionKey": "quiet"}
    shown = repr(parse_source(given, streaming=True))
    assert "hush" not in shown and "quiet" not in shown
