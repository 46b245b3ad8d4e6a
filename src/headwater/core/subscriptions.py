"""The rules of a subscription: wakes, generations, leases, cursors. PROTOCOL §6, §7.

Pure: time, ids and chance come in as values. What a subscription is in:

    idle        no wake                       pending work begins one, unless it is backing off
    due         a wake to be delivered        `next_attempt_at_ms` is set
    delivered   waiting for a callback, or    `lease_until_ms` is set for a webhook;
                for somebody to claim it      one that nobody claims has none
    claimed     `holder` works on it          `lease_until_ms` is set

A failed delivery moves `next_attempt_at_ms` into the future. If the lease ends before that, the
wake ends with it, and what follows then, no sooner than that time, is a wake of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from headwater.core.subscription_config import (
    AckBody,
    Code,
    Config,
    SubscriptionError,
    relative,
)
from headwater.core.subscription_links import LinkSet
from headwater.core.types import Position, TimestampMs

Kind = Literal["webhook", "pull-wake"]

RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 60_000
RETRY_JITTER = 0.2
"""A retry comes up to this share earlier or later. PROTOCOL §7.1."""
ERROR_CHARACTERS_MAX = 200


class Subscription(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One subscription without its links. Saved whole as a document.

    Fields are only ever added, with a default: old documents must load.
    """

    uid: str
    """Tells subscriptions apart that had the same id one after the other."""
    bucket: str
    id: str
    type: Kind
    pattern: str | None = None
    webhook_url: str | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int
    description: str | None = None
    config_hash: str
    created_at_ms: TimestampMs
    root_url: str
    """Where the last PUT reached the stream root: callback URLs begin with it."""

    generation: int = 0
    wake_id: str | None = None
    holder: str | None = None
    lease_until_ms: int | None = None
    next_attempt_at_ms: int | None = None
    attempts: int = 0
    """Failed deliveries since the last good one."""
    last_error: str = ""

    @property
    def key(self) -> str:
        """Names it within the server: a bucket name has no slash."""
        return f"{self.bucket}/{self.id}"

    @property
    def status(self) -> Literal["active", "failed"]:
        return "failed" if self.attempts else "active"


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Subscription)


def encode(subscription: Subscription) -> bytes:
    return _encoder.encode(subscription)


def decode(data: bytes) -> Subscription:
    return _decoder.decode(data)


def new_subscription(
    config: Config,
    *,
    bucket: str,
    subscription_id: str,
    uid: str,
    root_url: str,
    at_ms: TimestampMs,
) -> Subscription:
    return Subscription(
        uid=uid,
        bucket=bucket,
        id=subscription_id,
        type=config.type,
        pattern=config.pattern,
        webhook_url=config.webhook_url,
        wake_stream=config.wake_stream,
        lease_ttl_ms=config.lease_ttl_ms,
        description=config.description,
        config_hash=config.hash(),
        created_at_ms=at_ms,
        root_url=root_url,
    )


def judge_existing(subscription: Subscription, config: Config) -> None:
    """Accept a repeated PUT, or raise: the id is taken by another configuration."""
    if subscription.config_hash != config.hash():
        raise SubscriptionError(
            Code.SUBSCRIPTION_ALREADY_EXISTS,
            "a subscription of this id exists with another configuration; delete it first",
        )


# -- wakes


def may_wake(subscription: Subscription, at_ms: TimestampMs) -> bool:
    """Idle, and not backing off after failed deliveries."""
    if subscription.wake_id is not None:
        return False
    return subscription.next_attempt_at_ms is None or subscription.next_attempt_at_ms <= at_ms


def is_due(subscription: Subscription, at_ms: TimestampMs) -> bool:
    """There is a wake, and it is time to deliver it."""
    due_ms = subscription.next_attempt_at_ms
    return subscription.wake_id is not None and due_ms is not None and due_ms <= at_ms


def begin_wake(subscription: Subscription, wake_id: str, at_ms: TimestampMs) -> None:
    """Pending work: a new generation, to be delivered from now on."""
    assert subscription.wake_id is None
    subscription.generation += 1
    subscription.wake_id = wake_id
    subscription.next_attempt_at_ms = at_ms


def end_wake(subscription: Subscription) -> None:
    """Nobody works on it any more; tokens of this wake are worth nothing from now on."""
    subscription.wake_id = None
    subscription.holder = None
    subscription.lease_until_ms = None
    subscription.next_attempt_at_ms = None


def extend_lease(subscription: Subscription, at_ms: TimestampMs) -> None:
    subscription.lease_until_ms = at_ms + subscription.lease_ttl_ms


def expire_lease(subscription: Subscription, at_ms: TimestampMs) -> bool:
    """End the wake if its lease has run out. A retry that is scheduled keeps its time. §7.3."""
    if subscription.lease_until_ms is None or subscription.lease_until_ms > at_ms:
        return False
    retry_at_ms = subscription.next_attempt_at_ms
    end_wake(subscription)
    subscription.next_attempt_at_ms = retry_at_ms
    return True


def note_delivered(subscription: Subscription) -> None:
    """The other side has the wake: no more attempts."""
    subscription.next_attempt_at_ms = None
    subscription.attempts = 0
    subscription.last_error = ""


def note_failed(
    subscription: Subscription, at_ms: TimestampMs, *, error: str, chance: float
) -> None:
    """A delivery did not succeed: try again, later each time. `chance` is in [0, 1). §7.1."""
    subscription.attempts += 1
    subscription.last_error = error[:ERROR_CHARACTERS_MAX]
    subscription.next_attempt_at_ms = at_ms + backoff_ms(subscription.attempts, chance)


def backoff_ms(attempts: int, chance: float) -> int:
    """How long to wait after that many failures: 1 s, doubled up to 60 s, more or less 20 %."""
    base = min(RETRY_MS_MIN << min(attempts - 1, 16), RETRY_MS_MAX)
    return round(base * (1 + RETRY_JITTER * (2 * chance - 1)))


def resume(subscription: Subscription, at_ms: TimestampMs) -> None:
    """After a restart: times stay, unless the clock was set back and they would be far off."""
    if subscription.next_attempt_at_ms is not None:
        latest_ms = at_ms + round(RETRY_MS_MAX * (1 + RETRY_JITTER))
        subscription.next_attempt_at_ms = min(subscription.next_attempt_at_ms, latest_ms)
    if subscription.lease_until_ms is not None:
        latest_ms = at_ms + subscription.lease_ttl_ms
        subscription.lease_until_ms = min(subscription.lease_until_ms, latest_ms)


# -- what workers ask


def judge_type(subscription: Subscription, expected: Kind) -> None:
    if subscription.type != expected:
        raise SubscriptionError(
            Code.INVALID_REQUEST, f"this is a {subscription.type} subscription, not {expected}"
        )


def judge_claim(subscription: Subscription, *, pending: bool) -> None:
    """May somebody take the work? Raises ALREADY_CLAIMED or NO_PENDING_WORK."""
    if subscription.holder is not None:
        raise SubscriptionError(
            Code.ALREADY_CLAIMED,
            "another worker holds the lease",
            current_holder=subscription.holder,
            generation=subscription.generation,
        )
    if not pending:
        raise SubscriptionError(Code.NO_PENDING_WORK, "there is nothing to process")


def claim(subscription: Subscription, worker: str, at_ms: TimestampMs) -> None:
    """Give the wake to a worker. Whether its event was written matters no more."""
    note_delivered(subscription)
    subscription.holder = worker
    extend_lease(subscription, at_ms)


def judge_fence(subscription: Subscription, body: AckBody, *, token_generation: int) -> None:
    """Only the current wake may speak. Raises FENCED. PROTOCOL §7.3."""
    generation = subscription.generation
    current = (
        subscription.wake_id is not None
        and token_generation == generation
        and body.generation == generation
        and body.wake_id == subscription.wake_id
    )
    if not current:
        raise SubscriptionError(
            Code.FENCED, "this wake is over; a newer one may have begun", generation=generation
        )


def judge_acks(links: LinkSet, acks: Iterable[tuple[str, Position | None]]) -> dict[str, Position]:
    """Where each cursor goes. All are checked before any moves. Raises INVALID_OFFSET.

    None stands for an offset that is no position in a stream. A name may have slashes around it
    that mean nothing, but those of one that was found by a pattern are its own.
    """
    moves: dict[str, Position] = {}
    for given, position in acks:
        name = given if given in links else relative(given)
        link = links.get(name)
        if link is None:
            raise _invalid_offset("the stream is not part of this subscription", name)
        if position is None:
            raise _invalid_offset("the offset is not one that this server gave out", name)
        if position < moves.get(name, link.acked):
            raise _invalid_offset("the offset is before one that was acked", name)
        if _is_past(position, link.tail):
            raise _invalid_offset("the offset is past the tail of the stream", name)
        moves[name] = position
    return moves


def _is_past(position: Position, tail: Position) -> bool:
    if position.seq >= tail.seq:
        return position != tail
    return position.byte > tail.byte


def _invalid_offset(message: str, name: str) -> SubscriptionError:
    return SubscriptionError(Code.INVALID_OFFSET, message, stream=name)
