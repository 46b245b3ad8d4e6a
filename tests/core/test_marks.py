"""Marks say by when records were written: few of them, and never too early."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.marks import (
    MARKS_MAX,
    MARKS_PER_SPAN,
    SPACING_MS_MIN,
    Mark,
    add_mark,
    clip,
    next_ms,
    reached,
)
from headwater.core.types import SeqNum, TimestampMs


def mark(seq: int, at_ms: int) -> Mark:
    return SeqNum(seq), TimestampMs(at_ms)


def test_marks_close_together_become_one() -> None:
    marks: list[Mark] = []
    for seq, at_ms in ((1, 0), (2, 1), (3, 999), (4, 2000), (5, 2001)):
        add_mark(marks, mark(seq, at_ms))
    assert marks == [(1, 0), (4, 2000), (5, 2001)]


def test_what_is_marked_by_a_time() -> None:
    marks = [mark(3, 10), mark(7, 20)]
    assert [reached(marks, at) for at in (9, 10, 19, 20, 99)] == [0, 3, 3, 7, 7]
    assert [next_ms(marks, SeqNum(seq)) for seq in (0, 2, 3, 6, 7)] == [10, 10, 20, 20, None]


@pytest.mark.parametrize("gap_ms", [1, 700, 60_000])
def test_thousands_of_marks_come_to_a_few_that_span_them_evenly(gap_ms: int) -> None:
    marks: list[Mark] = []
    for number in range(5000):
        add_mark(marks, mark(number + 1, number * gap_ms))
        assert len(marks) <= MARKS_MAX
    assert marks[0] == (1, 0)
    assert marks[-1] == (5000, 4999 * gap_ms)
    between = [later[1] - earlier[1] for earlier, later in pairwise(marks)]
    assert max(between) <= 3 * (4999 * gap_ms // MARKS_PER_SPAN) + 2 * max(gap_ms, SPACING_MS_MIN)


def test_what_marks_say_of_the_first_records() -> None:
    marks = [mark(3, 10), mark(7, 20), mark(9, 30)]
    assert clip(marks, SeqNum(2)) == [(2, 10)]
    assert clip(marks, SeqNum(3)) == [(3, 10)]
    assert clip(marks, SeqNum(5)) == [(3, 10), (5, 20)]
    assert clip(marks, SeqNum(9)) == marks
    assert clip(marks, SeqNum(11)) == [*marks, (11, 30)]


@settings(deadline=None)
@given(gaps=st.lists(st.integers(0, 100_000), min_size=1, max_size=60))
def test_no_record_is_taken_to_be_older_than_it_is_and_old_ones_are_recognised(
    gaps: list[int],
) -> None:
    marks: list[Mark] = []
    written: list[int] = []
    now = 0
    for gap in gaps:
        now += gap
        written.append(now)
        add_mark(marks, mark(len(written), now))
        assert len(marks) <= MARKS_MAX
    assert marks[-1] == (len(written), now)
    slack = (now - written[0]) // MARKS_PER_SPAN + max(gaps) + 1000
    for at in (0, now // 3, now // 2, now):
        found = reached(marks, at)
        assert found <= bisect_right(written, at)
        assert found >= bisect_right(written, at - slack)
