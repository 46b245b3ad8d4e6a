"""Idempotent producers: is a batch new, a repeat, late, early or fenced. PROTOCOL §5.2.1."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headwater.core import limits
from headwater.core.errors import InvalidRequest, ProducerFenced, ProducerGap, TooManyRequests
from headwater.core.types import BatchSeq, Epoch, TimestampMs


class ProducerClaim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one request says about its producer."""

    id: str
    epoch: Epoch
    seq: BatchSeq


class ProducerMark(msgspec.Struct, array_like=True, gc=False):
    """The last batch accepted from one producer."""

    epoch: Epoch
    seq: BatchSeq
    at_ms: TimestampMs


def judge(last: ProducerMark | None, claim: ProducerClaim) -> bool:
    """Return True to append the batch, False to acknowledge it as a repeat."""
    if last is not None and claim.epoch < last.epoch:
        raise ProducerFenced(last.epoch)
    if last is not None and claim.epoch > last.epoch:
        if claim.seq != 0:
            raise InvalidRequest(
                f"Producer-Seq starts at 0 in a new Producer-Epoch. received={claim.seq}"
            )
        return True

    expected = BatchSeq(0 if last is None else last.seq + 1)
    if claim.seq > expected:
        raise ProducerGap(expected=expected, received=claim.seq)
    return claim.seq == expected


def has(producers: Mapping[str, ProducerMark], claim: ProducerClaim) -> bool:
    """Is the batch there already?"""
    last = producers.get(claim.id)
    return last is not None and claim.epoch == last.epoch and claim.seq <= last.seq


def remember(producers: dict[str, ProducerMark], claim: ProducerClaim, at_ms: TimestampMs) -> None:
    """Record an accepted batch, and forget the producers not heard of for longest.

    The dict is kept in order of last use, so this looks at one entry or two, never at all of them.
    """
    producers.pop(claim.id, None)
    producers[claim.id] = ProducerMark(claim.epoch, claim.seq, at_ms)
    for _ in range(2):
        oldest = next(iter(producers))
        idle_ms = at_ms - producers[oldest].at_ms
        crowded = len(producers) > limits.PRODUCERS_KEPT_MAX
        if idle_ms <= limits.PRODUCER_IDLE_MS_MIN:
            return
        if not crowded and idle_ms <= limits.PRODUCER_IDLE_MS_MAX:
            return
        del producers[oldest]


def check_room(producers: dict[str, ProducerMark], claim: ProducerClaim) -> None:
    """Refuse a new producer when a stream has an absurd number of recent ones."""
    if len(producers) >= limits.PRODUCERS_HARD_MAX and claim.id not in producers:
        raise TooManyRequests("too many producers write to this stream; reuse producer ids")
