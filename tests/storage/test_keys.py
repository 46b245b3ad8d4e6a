"""Keys sort as what they stand for, and come apart again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.types import SeqNum, StreamId, TimestampMs
from headwater.storage import keys

u64 = st.integers(0, 2**64 - 2)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)


@settings(deadline=None)
@given(first=st.tuples(u64, u64), second=st.tuples(u64, u64))
def test_runs_sort_by_stream_then_by_record(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    low, high = sorted((first, second))
    low_key = keys.run(StreamId(low[0]), SeqNum(low[1]))
    high_key = keys.run(StreamId(high[0]), SeqNum(high[1]))
    assert low_key <= high_key
    assert keys.split_run(low_key) == low
    assert low_key < keys.run_end(StreamId(low[0]))
    if low[0] != high[0]:
        assert keys.run_end(StreamId(low[0])) <= high_key


@settings(deadline=None)
@given(first=st.tuples(u64, u64), second=st.tuples(u64, u64))
def test_deadlines_sort_by_time(first: tuple[int, int], second: tuple[int, int]) -> None:
    low, high = sorted((first, second))
    low_key = keys.deadline(TimestampMs(low[0]), StreamId(low[1]))
    assert low_key <= keys.deadline(TimestampMs(high[0]), StreamId(high[1]))
    assert keys.split_deadline(low_key) == low


@settings(deadline=None)
@given(bucket=names, name=names, other_bucket=names)
def test_a_name_comes_apart_and_stays_inside_its_bucket(
    bucket: str, name: str, other_bucket: str
) -> None:
    key = keys.name(bucket, name)
    assert keys.split_name(key) == (bucket, name)
    start = keys.name(other_bucket, "")
    inside = start <= key < keys.prefix_end(start)
    assert inside == (bucket == other_bucket)


@settings(deadline=None)
@given(collection=names, name=names)
def test_a_document_comes_apart(collection: str, name: str) -> None:
    assert keys.split_document(keys.document(collection, name)) == (collection, name)


@settings(deadline=None)
@given(stream_id=u64)
def test_ids_come_apart(stream_id: int) -> None:
    assert keys.unpack_id(keys.pack_id(stream_id)) == stream_id
    assert keys.split_garbage(keys.garbage(StreamId(stream_id))) == stream_id


def test_every_kind_of_key_has_a_first_byte_of_its_own() -> None:
    kinds = [
        keys.FORMAT,
        keys.name("b", "s"),
        keys.state(StreamId(1)),
        keys.run(StreamId(1), SeqNum(0)),
        keys.deadline(TimestampMs(0), StreamId(1)),
        keys.garbage(StreamId(1)),
        keys.document("c", "d"),
    ]
    assert len({key[:1] for key in kinds}) == len(kinds)
