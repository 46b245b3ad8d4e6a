"""Micro-batches and their partitions: everything once, the same again, within the limits."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client import StreamSummary
from headwater.spark import plan
from headwater.spark.offsets import Cut, Mark, Offset, decode, encode
from headwater.spark.options import parse_source
from headwater.spark.plan import Backlog, Range

ranges = st.lists(
    st.builds(
        lambda name, first, rows: Range("b", f"s{name}", "1", first, first + rows),
        st.integers(0, 10**6),
        st.integers(0, 2**40),
        st.integers(1, 10**6),
    ),
    max_size=60,
    unique_by=lambda part: part.name,
)
cuts = st.builds(Cut, st.integers(100, 10**7), st.integers(1, 50))


@given(ranges, cuts)
def test_partitions_hold_every_record_once(found: list[Range], cut: Cut) -> None:
    parts = plan.split(found, cut)
    pieces = [piece for part in parts for piece in part]
    for whole in found:
        own = [piece for piece in pieces if piece.name == whole.name]
        assert own[0].first == whole.first and own[-1].end == whole.end
        assert all(one.end == other.first for one, other in zip(own, own[1:], strict=False))
    assert sum(piece.rows for piece in pieces) == sum(whole.rows for whole in found)
    for part in parts:
        assert 0 < sum(piece.rows for piece in part) <= cut.rows_max
    total = sum(whole.rows for whole in found)
    assert len(parts) >= min(total, cut.partitions_min)


def test_few_streams_have_partitions_of_their_own_and_many_share() -> None:
    few = [Range("b", f"s{number}", "1", 0, 10) for number in range(32)]
    assert plan.split(few, Cut(1000, 1)) == [(part,) for part in few]
    many = [Range("b", f"s{number}", "1", 0, 10) for number in range(10_000)]
    assert len(plan.split(many, Cut(100_000, 1))) == 33


backlogs = st.lists(
    st.builds(Backlog, st.text(), st.integers(0, 10**6), st.floats(0, 10**5)),
    max_size=30,
    unique_by=lambda backlog: backlog.key,
)
limits = st.one_of(st.none(), st.integers(1, 10**7))


@given(backlogs, limits, limits, st.integers(0, 100))
def test_a_micro_batch_keeps_its_limits_and_gets_on(
    found: list[Backlog], rows_max: int | None, bytes_max: int | None, turn: int
) -> None:
    shares = plan.admit(found, rows_max=rows_max, bytes_max=bytes_max, turn=turn)
    for backlog in found:
        assert 0 <= shares.get(backlog.key, 0) <= backlog.rows
    total = sum(shares.values())
    if rows_max is not None:
        assert total <= rows_max
    if bytes_max is not None and total > 1:
        size = sum(backlog.row_bytes * shares.get(backlog.key, 0) for backlog in found)
        assert size <= bytes_max * 1.01
    if any(backlog.rows for backlog in found):
        assert total > 0
    if rows_max is None and bytes_max is None:
        assert shares == {backlog.key: backlog.rows for backlog in found if backlog.rows}


def test_streams_share_a_micro_batch_by_what_each_has() -> None:
    found = [Backlog("a", 10, 1.0), Backlog("b", 30, 1.0), Backlog("c", 20, 1.0)]
    assert plan.admit(found, rows_max=12, bytes_max=None) == {"a": 2, "b": 6, "c": 4}
    assert plan.admit(found, rows_max=None, bytes_max=12) == {"a": 2, "b": 6, "c": 4}


def test_a_small_stream_is_read_beside_one_that_never_ends() -> None:
    found = [Backlog("large", 10**9, 100.0), Backlog("small", 1, 100.0)]
    assert plan.admit(found, rows_max=100, bytes_max=None) == {"large": 99, "small": 1}
    assert plan.admit(found, rows_max=None, bytes_max=10_000) == {"large": 99, "small": 1}


@pytest.mark.parametrize(("rows_max", "bytes_max"), [(3, None), (None, 350), (3, 350)])
def test_streams_take_turns_where_there_is_not_a_record_of_each(
    rows_max: int | None, bytes_max: int | None
) -> None:
    found = [Backlog(f"s{number}", 10**6, 100.0) for number in range(10)]
    read: Counter[str] = Counter()
    for _ in range(10):
        read.update(plan.admit(found, rows_max=rows_max, bytes_max=bytes_max, turn=read.total()))
    assert read == dict.fromkeys((f"s{number}" for number in range(10)), 3)


def test_records_without_a_byte_are_no_reason_to_wait() -> None:
    found = [Backlog("empty", 1000, 0.0)]
    assert plan.admit(found, rows_max=None, bytes_max=10_000) == {"empty": 1000}


def test_a_partition_is_about_128_mib_unless_an_option_says() -> None:
    size = 1000 * 1024
    stream = StreamSummary("1", "b", "s", "t", False, 0, 1000, size, 0, None, size)
    by_size = parse_source({"subscribe": "s"}, streaming=True)
    assert plan.choose_cut([stream], by_size) == Cut(128 * 1024, 1)
    told = parse_source(
        {"subscribe": "s", "maxRecordsPerPartition": "7", "minPartitions": "3"}, streaming=True
    )
    assert plan.choose_cut([stream], told) == Cut(7, 3)
    assert plan.choose_cut([], by_size).rows_max > 0


def test_an_offset_is_json_that_comes_back() -> None:
    offset = Offset(
        {"b/s": Mark("1", 5), "a/x/y": Mark("2", 9, 3), "c/z": Mark("3", 1, None, True)},
        Cut(100, 2),
    )
    shown = encode(offset)
    assert list(shown) == ["cut", "a/x/y", "b/s", "c/z"]
    assert shown["a/x/y"] == {"id": "2", "seq": 9, "from": 3}
    assert decode(shown) == offset


def test_a_range_begins_where_the_offset_before_ended_or_where_its_own_says() -> None:
    start = Offset({"b/s": Mark("1", 5), "b/t": Mark("2", 5)}, Cut(1, 1))
    end = Offset({"b/s": Mark("1", 9), "b/t": Mark("3", 4, 2), "b/u": Mark("4", 7, 7)}, Cut(10, 1))
    assert plan.ranges(start, end) == [
        Range("b", "s", "1", 5, 9),
        Range("b", "t", "3", 2, 4),
    ]
