"""Wakes: when one begins, how it is delivered, when its lease ends. PROTOCOL §7.

`proceed` is the one place that decides what happens next to a subscription. Everything that
changes one ends with calling it: an append, an ack, an answer from a webhook, a timer.
"""

from __future__ import annotations

import logging
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from headwater.core import subscriptions as rules
from headwater.core.commands import Append
from headwater.core.subscription_links import Link
from headwater.core.types import Position, StreamId
from headwater.engine.documents import Documents
from headwater.engine.engine import Engine
from headwater.engine.signing import SigningKeys, Tokens
from headwater.engine.subscription_entry import Entry, SubscriptionDocuments
from headwater.engine.webhooks import Courier, DeliveryFailed, Errand, Letter, Reply
from headwater.wire import offsets

log = logging.getLogger("headwater.subscriptions")

WAKE_STREAMS_MAX = 1_000
"""A wake tells about this many streams, pending ones first; what it leaves out wakes again."""
DELIVERY_TIMEOUT_S = 10.0


class WakeFigures:
    """Counted here, shown on the metrics page."""

    __slots__ = ("deliveries", "failures", "wakes")

    def __init__(self) -> None:
        self.wakes = 0
        self.deliveries = 0
        self.failures = 0


class StreamInfo(msgspec.Struct, frozen=True):
    """A stream as workers are told about it."""

    path: str
    link_type: str
    acked_offset: str
    tail_offset: str
    has_pending: bool


class _Notice(msgspec.Struct, frozen=True):
    """The body of a webhook. PROTOCOL §7.1."""

    subscription_id: str
    wake_id: str
    generation: int
    streams: list[StreamInfo]
    callback_url: str
    callback_token: str


class _WakeEvent(msgspec.Struct, frozen=True, tag_field="type", tag="wake"):
    """What is appended to a wake stream. PROTOCOL §7.2."""

    subscription_id: str
    stream: str
    generation: int
    ts: int


class _Answer(msgspec.Struct):
    done: bool | None = None


class _Sent(NamedTuple):
    """One attempt: which wake, and the tails it told about."""

    wake_id: str
    tails: list[tuple[str, StreamId, Position]]


class Wakes:
    """Begins, delivers and ends the wakes of all subscriptions."""

    def __init__(
        self,
        engine: Engine,
        documents: Documents,
        stored: SubscriptionDocuments,
        courier: Courier,
        signing: SigningKeys,
        tokens: Tokens,
    ) -> None:
        self.figures = WakeFigures()
        self._engine = engine
        self._clock = engine.clock
        self._documents = documents
        self._stored = stored
        self._courier = courier
        self._signing = signing
        self._tokens = tokens

    def proceed(self, entry: Entry) -> None:
        """Do what is due now, and set the timer for what comes next."""
        if entry.removed or not entry.ready:
            return
        subscription, now = entry.subscription, self._clock.now_ms()
        changed = not entry.delivering and rules.expire_lease(subscription, now)
        if rules.may_wake(subscription, now):
            if entry.links.pending:
                self._begin(entry)
                changed = True
            elif subscription.next_attempt_at_ms is not None:
                rules.note_delivered(subscription)  # what was to be retried is gone
                changed = True
        if changed:
            self._stored.save(entry)
        if not entry.delivering and rules.is_due(subscription, now):
            self._deliver(entry)
        self._set_timer(entry)

    def _begin(self, entry: Entry) -> None:
        """A new wake. The caller saves it."""
        wake_id = f"w_{self._clock.random_bytes(12).hex()}"
        rules.begin_wake(entry.subscription, wake_id, self._clock.now_ms())
        self.figures.wakes += 1

    def stop(self, entry: Entry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None

    def drop_idle_wake(self, entry: Entry) -> None:
        """End a wake whose work is gone, so that the next work begins another."""
        subscription = entry.subscription
        if subscription.wake_id is None or subscription.holder is not None or entry.links.pending:
            return
        rules.note_delivered(subscription)
        rules.end_wake(subscription)
        self._stored.save(entry)

    def describe(self, entry: Entry, count_max: int = WAKE_STREAMS_MAX) -> list[StreamInfo]:
        """The streams of a subscription as workers are told about them."""
        return [_describe(name, link) for name, link in entry.links.sample(count_max)]

    def _set_timer(self, entry: Entry) -> None:
        self.stop(entry)
        if entry.delivering:
            return  # its end comes back to `proceed`
        subscription = entry.subscription
        times = (subscription.lease_until_ms, subscription.next_attempt_at_ms)
        due_ms = min((time for time in times if time is not None), default=None)
        if due_ms is not None:
            delay_s = max(0, due_ms - self._clock.now_ms()) / 1000
            entry.timer = self._clock.call_later(delay_s, lambda: self.proceed(entry))

    def _deliver(self, entry: Entry) -> None:
        entry.delivering = True
        if entry.subscription.type == "pull-wake":
            # The event follows the wake through the same log, so it is never ahead of it.
            self._append_event(entry)
        else:
            self._documents.after(lambda failure: self._send(entry, failure))

    # -- pull-wake

    def _append_event(self, entry: Entry) -> None:
        subscription, now = entry.subscription, self._clock.now_ms()
        assert subscription.wake_stream is not None
        event = _WakeEvent(subscription.id, entry.links.first_pending, subscription.generation, now)
        command = Append(
            subscription.bucket,
            subscription.wake_stream,
            now,
            "application/json",
            msgspec.json.encode(event),
        )
        wake_id = subscription.wake_id
        self._engine.append(command).deliver(
            lambda outcome: self._finish(
                entry, wake_id, str(outcome) if isinstance(outcome, Exception) else None
            )
        )

    # -- webhook

    def _send(self, entry: Entry, failure: Exception | None) -> None:
        """The wake is on disk: line up to tell the other side."""
        if failure is not None:
            return  # the engine has stopped, and so have we
        assert entry.subscription.webhook_url is not None
        sent = _Sent("", [])

        def prepare() -> Letter | None:
            nonlocal sent
            if self._is_moot(entry):
                entry.delivering = False
                self.proceed(entry)
                return None
            sent, letter = self._write_letter(entry)
            return letter

        def done(outcome: Reply | DeliveryFailed) -> None:
            self._delivered(entry, sent, outcome)

        self._courier.send(Errand(entry.subscription.webhook_url, prepare, done))

    def _is_moot(self, entry: Entry) -> bool:
        """Its turn has come, but there is nothing to deliver any more."""
        subscription = entry.subscription
        if entry.removed or not rules.is_due(subscription, self._clock.now_ms()):
            return True
        self.drop_idle_wake(entry)
        return subscription.wake_id is None

    def _write_letter(self, entry: Entry) -> tuple[_Sent, Letter]:
        """What is true now, not when it was lined up. The lease begins with each attempt."""
        subscription = entry.subscription
        assert subscription.wake_id is not None
        rules.extend_lease(subscription, self._clock.now_ms())
        sample = entry.links.sample(WAKE_STREAMS_MAX)
        quoted = quote(subscription.id, safe="")
        notice = _Notice(
            subscription_id=subscription.id,
            wake_id=subscription.wake_id,
            generation=subscription.generation,
            streams=[_describe(name, link) for name, link in sample],
            callback_url=f"{subscription.root_url}/__ds/subscriptions/{quoted}/callback",
            callback_token=self._tokens.issue(subscription.uid, subscription.generation),
        )
        body = msgspec.json.encode(notice)
        headers = {
            "Content-Type": "application/json",
            "Webhook-Signature": self._signing.sign(body),
        }
        timeout_s = min(DELIVERY_TIMEOUT_S, subscription.lease_ttl_ms / 1000)
        tails = [(name, link.stream_id, link.tail) for name, link in sample]
        return _Sent(notice.wake_id, tails), Letter(body, headers, timeout_s)

    def _delivered(self, entry: Entry, sent: _Sent, outcome: Reply | DeliveryFailed) -> None:
        if isinstance(outcome, DeliveryFailed):
            self._finish(entry, sent.wake_id, str(outcome))
        elif not 200 <= outcome.status < 300:
            self._finish(entry, sent.wake_id, f"the webhook answered {outcome.status}")
        else:
            if _says_done(outcome.body) and entry.subscription.wake_id == sent.wake_id:
                self._acknowledge(entry, sent)
            self._finish(entry, sent.wake_id, None)

    def _acknowledge(self, entry: Entry, sent: _Sent) -> None:
        """The webhook is done with what it was told about. PROTOCOL §7.1."""
        if entry.removed:
            return
        moves = {}
        for name, stream_id, tail in sent.tails:
            link = entry.links.get(name)
            if link is not None and link.stream_id == stream_id and tail > link.acked:
                moves[name] = tail
        self._stored.move(entry, moves)
        rules.note_delivered(entry.subscription)
        rules.end_wake(entry.subscription)
        self._stored.save(entry)

    # -- both

    def _finish(self, entry: Entry, wake_id: str | None, error: str | None) -> None:
        """An attempt is over. Its wake may be, too: then the outcome concerns nobody."""
        entry.delivering = False
        self.figures.deliveries += 1
        self.figures.failures += error is not None
        subscription = entry.subscription
        waits = subscription.wake_id == wake_id and subscription.next_attempt_at_ms is not None
        if waits and not entry.removed:
            if error is None:
                rules.note_delivered(subscription)
            else:
                chance = self._clock.random_fraction()
                rules.note_failed(subscription, self._clock.now_ms(), error=error, chance=chance)
                log.info(
                    "a wake could not be delivered: %s. subscription=%s attempts=%d",
                    error,
                    subscription.key,
                    subscription.attempts,
                )
            self._stored.save(entry)
        self.proceed(entry)


def _describe(name: str, link: Link) -> StreamInfo:
    return StreamInfo(
        path=name,
        link_type=link.link_type,
        acked_offset=offsets.render(link.acked).decode(),
        tail_offset=offsets.render(link.tail).decode(),
        has_pending=link.pending,
    )


def _says_done(body: bytes) -> bool:
    try:
        return msgspec.json.decode(body, type=_Answer).done is True
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
