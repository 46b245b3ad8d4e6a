"""Which snapshot replaces which, and what may be dropped."""

from __future__ import annotations

import pytest

from headwater.core.errors import Conflict, OffsetTrimmed
from headwater.core.snapshots import judge_snapshot, judge_trim
from headwater.core.stream import Snapshot, StreamState, decode_state, encode_state
from headwater.core.types import StreamId, TimestampMs
from tests.support.builders import position


def snapshot(seq: int, digest: str = "a") -> Snapshot:
    return Snapshot(position(seq, seq), digest, "text/plain", 1, 7)


def stream(current: Snapshot | None = None, first: int = 0) -> StreamState:
    at = position(first, first)
    return StreamState(
        id=StreamId(1),
        bucket="b",
        name="s",
        created_at_ms=TimestampMs(0),
        content_type="text/plain",
        first_seq=at.seq,
        first_byte=at.byte,
        snapshot=current,
    )


def test_the_first_and_a_later_one_are_taken() -> None:
    assert judge_snapshot(stream(), snapshot(3), None)
    assert judge_snapshot(stream(snapshot(3)), snapshot(4), None)


def test_a_repeat_changes_nothing_whatever_it_expects() -> None:
    assert not judge_snapshot(stream(snapshot(3)), snapshot(3), None)
    assert not judge_snapshot(stream(snapshot(3)), snapshot(3), "other")


@pytest.mark.parametrize(
    ("offered", "match"),
    [(snapshot(3, "b"), None), (snapshot(2), None), (snapshot(4), "x"), (snapshot(4), "none")],
)
def test_what_contradicts_the_current_one_is_refused(offered: Snapshot, match: str | None) -> None:
    with pytest.raises(Conflict):
        judge_snapshot(stream(snapshot(3)), offered, match)


def test_one_of_what_is_not_retained_is_refused() -> None:
    with pytest.raises(OffsetTrimmed):
        judge_snapshot(stream(first=5), snapshot(4), None)


def test_only_what_a_snapshot_stands_for_may_go() -> None:
    judge_trim(stream(snapshot(5), first=2), position(5, 5))
    judge_trim(stream(snapshot(5), first=2), position(2, 2))
    for state, seq in ((stream(), 0), (stream(snapshot(5)), 6), (stream(snapshot(5), first=2), 1)):
        with pytest.raises(Conflict):
            judge_trim(state, position(seq, seq))


def test_it_is_part_of_the_checkpoint() -> None:
    state = stream(snapshot(3))
    assert decode_state(encode_state(state)).snapshot == snapshot(3)
