"""Idempotent producers: the table of verdicts, and what is forgotten when. PROTOCOL §5.2.1."""

from __future__ import annotations

import pytest

from headwater.core import limits, producer
from headwater.core.errors import InvalidRequest, ProducerFenced, ProducerGap, TooManyRequests
from headwater.core.producer import ProducerMark
from headwater.core.types import BatchSeq, Epoch, TimestampMs
from tests.support.builders import claim

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS


def mark(epoch: int, seq: int, at_ms: int = 0) -> ProducerMark:
    return ProducerMark(Epoch(epoch), BatchSeq(seq), TimestampMs(at_ms))


@pytest.mark.parametrize(
    ("last", "epoch", "seq", "is_new"),
    [
        pytest.param(None, 0, 0, True, id="an unknown producer begins at 0"),
        pytest.param(None, 7, 0, True, id="an unknown producer may begin in any epoch"),
        pytest.param(mark(3, 4), 3, 5, True, id="the next batch"),
        pytest.param(mark(3, 4), 3, 4, False, id="the last batch again"),
        pytest.param(mark(3, 4), 3, 0, False, id="an old batch again"),
        pytest.param(mark(3, 4), 4, 0, True, id="a new epoch begins at 0"),
        pytest.param(mark(3, 4), 900, 0, True, id="epochs may jump"),
        pytest.param(
            mark(0, limits.PRODUCER_NUMBER_MAX - 1),
            0,
            limits.PRODUCER_NUMBER_MAX,
            True,
            id="the largest sequence",
        ),
    ],
)
def test_a_batch_is_new_or_a_repeat(
    last: ProducerMark | None, epoch: int, seq: int, is_new: bool
) -> None:
    assert producer.judge(last, claim(epoch=epoch, seq=seq)) is is_new


@pytest.mark.parametrize(
    ("last", "seq", "expected"),
    [
        pytest.param(None, 1, 0, id="an unknown producer that does not begin at 0"),
        pytest.param(mark(0, 4), 6, 5, id="one batch is missing"),
        pytest.param(mark(0, 4), limits.PRODUCER_NUMBER_MAX, 5, id="many are missing"),
    ],
)
def test_a_gap_says_which_batch_was_expected(
    last: ProducerMark | None, seq: int, expected: int
) -> None:
    with pytest.raises(ProducerGap) as caught:
        producer.judge(last, claim(seq=seq))
    assert (caught.value.expected, caught.value.received) == (expected, seq)


@pytest.mark.parametrize("seq", [0, 4, 5, 99])
def test_an_older_epoch_is_fenced_whatever_its_sequence(seq: int) -> None:
    with pytest.raises(ProducerFenced) as caught:
        producer.judge(mark(3, 4), claim(epoch=2, seq=seq))
    assert caught.value.current == 3


def test_a_new_epoch_that_does_not_begin_at_0_is_a_bad_request() -> None:
    with pytest.raises(InvalidRequest, match="starts at 0"):
        producer.judge(mark(3, 4), claim(epoch=4, seq=1))


def known(ages_ms: list[int], now_ms: int) -> dict[str, ProducerMark]:
    """Producers by age, the oldest first."""
    ages = sorted(ages_ms, reverse=True)
    return {f"old-{n}": mark(0, 0, now_ms - age) for n, age in enumerate(ages)}


NOW_MS = 100 * DAY_MS


def test_a_producer_is_forgotten_after_seven_idle_days() -> None:
    producers = known([7 * DAY_MS + 1, 7 * DAY_MS, 1], NOW_MS)
    producer.remember(producers, claim("new"), TimestampMs(NOW_MS))
    assert list(producers) == ["old-1", "old-2", "new"]


def test_an_accepted_batch_makes_its_producer_the_youngest() -> None:
    producers = known([3 * DAY_MS, 2 * DAY_MS, DAY_MS], NOW_MS)
    producer.remember(producers, claim("old-0", seq=1), TimestampMs(NOW_MS))
    assert list(producers) == ["old-1", "old-2", "old-0"]
    assert producers["old-0"] == mark(0, 1, NOW_MS)


def test_beyond_ten_thousand_the_oldest_is_forgotten() -> None:
    producers = known([2 * HOUR_MS] * limits.PRODUCERS_KEPT_MAX, NOW_MS)
    producer.remember(producers, claim("new"), TimestampMs(NOW_MS))
    assert len(producers) == limits.PRODUCERS_KEPT_MAX
    assert "old-0" not in producers
    assert "new" in producers


def test_nobody_is_forgotten_within_the_hour_however_crowded_it_is() -> None:
    producers = known([HOUR_MS] * (limits.PRODUCERS_KEPT_MAX + 5), NOW_MS)
    producer.remember(producers, claim("new"), TimestampMs(NOW_MS))
    assert len(producers) == limits.PRODUCERS_KEPT_MAX + 6


def test_a_crowd_shrinks_when_its_hour_has_passed() -> None:
    producers = known([HOUR_MS] * (limits.PRODUCERS_KEPT_MAX + 5), NOW_MS)
    for seq in range(10):
        producer.remember(producers, claim("new", seq=seq), TimestampMs(NOW_MS + 1))
    assert len(producers) == limits.PRODUCERS_KEPT_MAX


def test_a_forgotten_producer_gets_the_gap_answer_and_is_never_taken_for_a_repeat() -> None:
    producers = known([8 * DAY_MS], NOW_MS)
    producer.remember(producers, claim("new"), TimestampMs(NOW_MS))
    with pytest.raises(ProducerGap):
        producer.judge(producers.get("old-0"), claim("old-0", seq=1))


def test_an_absurd_number_of_recent_producers_is_refused_but_known_ones_go_on() -> None:
    producers = known([0] * limits.PRODUCERS_HARD_MAX, NOW_MS)
    producer.check_room(producers, claim("old-5", seq=1))
    with pytest.raises(TooManyRequests):
        producer.check_room(producers, claim("one more"))
