"""Filters that narrow a read: whatever passes them is still read."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from headwater.client import StreamSummary
from headwater.spark.options import EPOCH
from headwater.spark.pushdown import Narrowed


class Record(NamedTuple):
    """What filters look at."""

    bucket: str
    stream: str
    offset: int
    timestamp: datetime


# Few values, so that filters often meet one another and the records.
names = st.sampled_from(["a", "ab"])
microseconds = st.integers(0, 8).map(lambda halves: halves * 500)


def moment(at_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=at_us)


@st.composite
def streams(draw: st.DrawFn) -> list[Record]:
    """The records of one stream. Their times are in milliseconds, and never decrease."""
    bucket, stream, first = draw(names), draw(names), draw(st.integers(0, 2))
    times_ms = sorted(draw(st.lists(st.integers(0, 4), min_size=1, max_size=5)))
    return [
        Record(bucket, stream, first + at, moment(time_ms * 1000))
        for at, time_ms in enumerate(times_ms)
    ]


COMPARED: dict[type[Any], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def filters_on(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    attribute = (column,)
    some = st.lists(st.one_of(values, st.none()), max_size=3).map(tuple)
    compared = [st.builds(kind, st.just(attribute), values) for kind in COMPARED]
    others = [st.builds(In, st.just(attribute), some), st.just(IsNotNull(attribute))]
    return st.one_of(*compared, *others)


texts = [
    st.builds(kind, st.just((column,)), names)
    for kind in (StringStartsWith, StringContains)
    for column in ("stream", "bucket")
]
plain = st.one_of(
    filters_on("bucket", names),
    filters_on("stream", names),
    filters_on("offset", st.integers(-1, 7)),
    filters_on("timestamp", microseconds.map(moment)),
    *texts,
)
filters = st.lists(st.one_of(plain, st.builds(Not, plain)), max_size=2)


def passes(record: Record, one: Filter) -> bool:
    """As SQL has it; what is compared with null does not pass."""
    if isinstance(one, Not):
        # Never true of what a null leaves open.
        unknown = isinstance(one.child, In) and None in one.child.value
        return not passes(record, one.child) and not unknown
    found = getattr(record, one.attribute[0])  # type: ignore[attr-defined]
    match one:
        case IsNotNull():
            return True
        case In():
            return found in one.value
        case StringStartsWith():
            return bool(found.startswith(one.value))
        case StringContains():
            return one.value in found
    return COMPARED[type(one)](found, one.value)  # type: ignore[attr-defined]


@settings(max_examples=500)
@given(streams(), filters)
def test_what_passes_the_filters_is_read(records: list[Record], found: list[Filter]) -> None:
    narrowed = Narrowed.of(found)
    times = [record.timestamp for record in records]

    def seq_at(stream: StreamSummary, at_ms: int) -> int:
        return stream.first + bisect_left(times, moment(at_ms * 1000))

    one = records[0]
    tail = one.offset + len(records)
    stream = StreamSummary("1", *one[:2], "t", False, one.offset, tail, 0, 0, None, 0)
    first, end = narrowed.bounds(stream, seq_at)
    for record in records:
        if all(passes(record, each) for each in found):
            assert narrowed.admits(record.bucket, record.stream)
            assert first <= record.offset < end


def test_a_time_without_a_zone_is_utc() -> None:
    zoned = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    for each in (zoned, zoned.replace(tzinfo=None)):
        assert Narrowed.of([EqualTo(("timestamp",), each)]) == Narrowed.of(
            [EqualTo(("timestamp",), zoned)]
        )
