"""Cursors: which interval it is, and how a reader is moved past the one it knows. PROTOCOL §10."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.types import TimestampMs
from headwater.wire import cursors

NOW = TimestampMs(1_800_000_000_000)
CURRENT = 3_578_400
INTERVALS_AHEAD_MAX = cursors.JITTER_S_MAX * 1000 // cursors.INTERVAL_MS
FRACTIONS = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("since_epoch_ms", "expected"),
    [
        pytest.param(-1, 0, id="before the first day"),
        pytest.param(0, 0, id="the first moment"),
        pytest.param(19_999, 0, id="end of the first interval"),
        pytest.param(20_000, 1, id="second interval"),
    ],
)
def test_a_cursor_counts_intervals_of_20_seconds(since_epoch_ms: int, expected: int) -> None:
    assert cursors.current(TimestampMs(1_728_432_000_000 + since_epoch_ms)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(None, None, id="absent"),
        pytest.param("0", 0, id="zero"),
        pytest.param("3578400", CURRENT, id="a number"),
        pytest.param("", None, id="empty"),
        pytest.param("-1", None, id="negative"),
        pytest.param("+1", None, id="signed"),
        pytest.param("1.0", None, id="with a point"),
        pytest.param("abc", None, id="letters"),
        pytest.param("1\n", None, id="line end"),
        pytest.param("\u0661", None, id="digits of another script"),
        pytest.param("9" * 5000, None, id="absurdly long"),
    ],
)
def test_only_what_we_could_have_sent_is_understood(text: str | None, expected: int | None) -> None:
    assert cursors.parse(text) == expected


@pytest.mark.parametrize("client", [None, 0, CURRENT - 1])
def test_without_a_cursor_or_with_an_old_one_it_is_the_current_interval(client: int | None) -> None:
    assert cursors.following(client, NOW, 0.5) == CURRENT


@given(client=st.integers(CURRENT, CURRENT + 10**9), fraction=FRACTIONS)
def test_a_reader_that_is_not_behind_gets_a_later_one(client: int, fraction: float) -> None:
    following = cursors.following(client, NOW, fraction)
    assert client < following <= client + INTERVALS_AHEAD_MAX


@given(
    waits=st.lists(st.tuples(st.integers(0, 10**6), FRACTIONS), min_size=1, max_size=20),
)
def test_an_echoed_cursor_never_goes_back(waits: list[tuple[int, float]]) -> None:
    now, cursor = NOW, None
    for wait_ms, fraction in waits:
        now = TimestampMs(now + wait_ms)
        found = cursors.following(cursor, now, fraction)
        assert cursor is None or found > cursor
        assert cursors.parse(str(found)) == found
        cursor = found
