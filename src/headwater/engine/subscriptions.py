"""Subscriptions: durable cursors that wake workers when their streams have news. PROTOCOL §6, §7.

This is what dialects call. Every answer comes when all that it depends on is durable. The rules
are in core/subscriptions.py; what appends change in subscription_registry.py, links in
subscription_linker.py, wakes and their delivery in subscription_wakes.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from headwater.core import subscriptions as rules
from headwater.core.errors import HeadwaterError, TooManyRequests
from headwater.core.pending import Pending
from headwater.core.subscription_config import (
    EXPLICIT_STREAMS_MAX,
    Ack,
    AckBody,
    Code,
    Config,
    SubscriptionError,
    refuse,
)
from headwater.core.subscriptions import Subscription
from headwater.core.types import Position
from headwater.core.webhook_urls import UrlRejected, WebhookPolicy, judge_url
from headwater.engine.documents import Documents
from headwater.engine.engine import Engine
from headwater.engine.signing import SigningKeys, Tokens
from headwater.engine.subscription_entry import Entry, SubscriptionDocuments
from headwater.engine.subscription_linker import Linker
from headwater.engine.subscription_registry import Registry
from headwater.engine.subscription_wakes import StreamInfo, WakeFigures, Wakes
from headwater.engine.webhooks import Courier
from headwater.wire import offsets

log = logging.getLogger("headwater.subscriptions")

SUBSCRIPTIONS_MAX = 10_000
"""Of all buckets together: each is looked at when a stream is new."""

T = TypeVar("T")


class View(msgspec.Struct, frozen=True):
    """A subscription as it was at one moment."""

    subscription: Subscription
    kid: str
    """The key that signs its webhooks now."""
    streams: list[StreamInfo]
    """All of them, or none in a list of subscriptions."""
    stream_count: int
    pending_count: int
    created: bool = False
    """By the request that this answers."""


class Claimed(msgspec.Struct, frozen=True):
    """The answer to a claim: the work, and the token to ack it with. PROTOCOL §7.2."""

    wake_id: str
    generation: int
    token: str
    streams: list[StreamInfo]
    lease_ttl_ms: int


class Acked(msgspec.Struct, frozen=True):
    """The answer to a callback or an ack."""

    ok: bool
    next_wake: bool
    """There is more to process: another wake has begun."""


class Subscriptions:
    """The subscriptions of all buckets of one server."""

    def __init__(
        self, engine: Engine, policy: WebhookPolicy | None = None, courier: Courier | None = None
    ) -> None:
        """Loads the keys, or makes them. `start` loads the subscriptions."""
        self.policy = WebhookPolicy() if policy is None else policy
        self.courier = courier or Courier(engine.loop, engine.clock, self.policy)
        self._engine = engine
        self._clock = engine.clock
        self._documents = Documents(engine)
        self._stored = SubscriptionDocuments(self._documents)
        self._signing = SigningKeys(self._documents, engine.clock)
        self._tokens = Tokens(self._documents, engine.clock)
        self._linker = Linker(engine, self._documents, self._stored)
        self._wakes = Wakes(
            engine, self._documents, self._stored, self.courier, self._signing, self._tokens
        )
        self.registry = Registry(self._linker, self._wakes)

    # -- beginning and end

    def start(self) -> None:
        """Take up what was there: retries at their time, leases until their end."""
        entries, ownerless = self._stored.load()
        for entry in entries:
            rules.resume(entry.subscription, self._clock.now_ms())
            self.registry.add(entry)
        self._engine.observers.append(self.registry.observe)
        self._engine.farewells.append(self._remove_bucket)
        for entry in entries:
            self._linker.run(self._linker.link_again(entry), self._linked_again(entry))
        self._linker.run(self._linker.drop_documents(ownerless), _log_failure)

    def close(self) -> None:
        """Stop before the engine does. What is under way is taken up after a restart."""
        if self.registry.observe in self._engine.observers:
            self._engine.observers.remove(self.registry.observe)
            self._engine.farewells.remove(self._remove_bucket)
        self._linker.close()
        self.courier.close()
        for entry in self.registry.entries():
            entry.removed = True
            self._wakes.stop(entry)

    @property
    def figures(self) -> WakeFigures:
        return self._wakes.figures

    def _linked_again(self, entry: Entry) -> Callable[[Exception | None], None]:
        def done(error: Exception | None) -> None:
            _log_failure(error)
            self._open(entry)

        return done

    def _open(self, entry: Entry) -> None:
        """The links are complete: from now on it wakes, and can be asked."""
        entry.ready = entry.created = True
        entry.release_waiting()
        self._wakes.proceed(entry)

    # -- the subscription itself

    def put(
        self, bucket: str, subscription_id: str, config: Config, *, root_url: str
    ) -> Pending[View]:
        """Create a subscription, or confirm that it is there. PROTOCOL §6.2."""
        if self.registry.find(bucket, subscription_id) is not None:
            return self._on(
                bucket, subscription_id, lambda entry: self._confirm(entry, config, root_url)
            )
        answer: Pending[View] = Pending()
        try:
            entry = self._new_entry(bucket, subscription_id, config, root_url)
        except (SubscriptionError, HeadwaterError) as error:
            self._complete(answer, error)
            return answer
        self.registry.add(entry)
        # Called when its streams are linked, or when it is deleted before that.
        entry.waiting.append(lambda: self._complete(answer, self._created(entry)))
        steps = self._linker.link_existing(entry, config.streams)
        self._linker.run(steps, lambda error: self._linked(entry, error))
        return answer

    def _new_entry(self, bucket: str, subscription_id: str, config: Config, root_url: str) -> Entry:
        if config.webhook_url is not None:
            try:
                judge_url(config.webhook_url, self.policy)
            except UrlRejected as error:
                raise SubscriptionError(Code.WEBHOOK_URL_REJECTED, str(error)) from error
        if len(self.registry) >= SUBSCRIPTIONS_MAX:
            raise TooManyRequests(f"there are {SUBSCRIPTIONS_MAX} subscriptions; delete some first")
        subscription = rules.new_subscription(
            config,
            bucket=bucket,
            subscription_id=subscription_id,
            uid=self._clock.random_bytes(8).hex(),
            root_url=root_url,
            at_ms=self._clock.now_ms(),
        )
        return Entry(subscription, created=False)

    def _linked(self, entry: Entry, error: Exception | None) -> None:
        if entry.removed:
            return
        if error is not None:
            entry.failure = error
            self._remove(entry)
            return
        self._stored.save(entry)
        self._open(entry)

    def _created(self, entry: Entry) -> View | Exception:
        if entry.removed:
            return entry.failure or _not_found(entry.subscription.id)
        return self._view(entry, created=True)

    def _confirm(self, entry: Entry, config: Config, root_url: str) -> View:
        subscription = entry.subscription
        rules.judge_existing(subscription, config)
        if subscription.root_url != root_url:
            subscription.root_url = root_url
            self._stored.save(entry)
        return self._view(entry)

    def get(self, bucket: str, subscription_id: str) -> Pending[View]:
        """PROTOCOL §6.3."""
        return self._on(bucket, subscription_id, self._view)

    def page(
        self,
        bucket: str,
        *,
        after: str,
        count_max: int,
        shows: Callable[[Entry], bool] = lambda entry: True,
    ) -> Pending[list[View]]:
        """Subscriptions of a bucket in order of their ids, without their streams."""
        entries = self.registry.of_bucket(bucket)
        ids = sorted(
            found
            for found, entry in entries.items()
            if found > after and entry.created and shows(entry)
        )
        answer: Pending[list[View]] = Pending()
        views = [self._view(entries[found], streams=False) for found in ids[:count_max]]
        self._complete(answer, views)
        return answer

    def delete(self, bucket: str, subscription_id: str) -> Pending[None]:
        """Gone for good when it resolves; there is no harm in doing it twice. PROTOCOL §6.3."""
        entry = self.registry.find(bucket, subscription_id)
        if entry is not None:
            self._remove(entry)
        answer: Pending[None] = Pending()
        self._complete(answer, None)
        return answer

    def _remove(self, entry: Entry) -> None:
        entry.removed = True
        self._wakes.stop(entry)
        self.registry.remove(entry)
        self._stored.drop(entry)
        names = self._stored.stored_links(entry)
        self._linker.run(self._linker.drop_documents(names), _log_failure)
        entry.release_waiting()

    def _remove_bucket(self, bucket: str) -> None:
        """Whoever makes a bucket of this name again has nothing to do with them."""
        for entry in tuple(self.registry.of_bucket(bucket).values()):
            self._remove(entry)

    def _view(self, entry: Entry, *, streams: bool = True, created: bool = False) -> View:
        return View(
            subscription=msgspec.structs.replace(entry.subscription),
            kid=self._signing.kid,
            streams=self._wakes.describe(entry, len(entry.links)) if streams else [],
            stream_count=len(entry.links),
            pending_count=entry.links.pending,
            created=created,
        )

    # -- its streams

    def add_streams(
        self, bucket: str, subscription_id: str, names: tuple[str, ...]
    ) -> Pending[None]:
        """Link streams by name. PROTOCOL §6.4."""

        def add(entry: Entry) -> None:
            subscription = entry.subscription
            if subscription.type == "pull-wake" and subscription.wake_stream in names:
                refuse("a subscription cannot watch its own wake_stream")
            if len(entry.links.explicit_names() | set(names)) > EXPLICIT_STREAMS_MAX:
                refuse(f"a subscription names at most {EXPLICIT_STREAMS_MAX} streams itself")
            for name in names:
                self._linker.link_explicit(entry, name)
            self.registry.forget_targets()

        return self._on(bucket, subscription_id, add)

    def remove_stream(self, bucket: str, subscription_id: str, name: str) -> Pending[None]:
        """Take back a link by name. PROTOCOL §6.4."""

        def remove(entry: Entry) -> None:
            self._linker.unlink_explicit(entry, name)
            self.registry.forget_targets()

        return self._on(bucket, subscription_id, remove)

    # -- its workers

    def claim(self, bucket: str, subscription_id: str, worker: str) -> Pending[Claimed]:
        """Take the work of a pull-wake subscription. PROTOCOL §7.2."""

        def claim(entry: Entry) -> Claimed:
            subscription = entry.subscription
            rules.judge_type(subscription, "pull-wake")
            self._wakes.proceed(entry)
            self._wakes.drop_idle_wake(entry)
            rules.judge_claim(subscription, pending=bool(entry.links.pending))
            assert subscription.wake_id is not None, "pending work has a wake once it proceeded"
            rules.claim(subscription, worker, self._clock.now_ms())
            self._stored.save(entry)
            self._wakes.proceed(entry)
            return Claimed(
                wake_id=subscription.wake_id,
                generation=subscription.generation,
                token=self._tokens.issue(subscription.uid, subscription.generation),
                streams=self._wakes.describe(entry),
                lease_ttl_ms=subscription.lease_ttl_ms,
            )

        return self._on(bucket, subscription_id, claim)

    def callback(
        self, bucket: str, subscription_id: str, token: str, body: AckBody
    ) -> Pending[Acked]:
        """A webhook's worker reports. PROTOCOL §7.1."""
        return self._on(
            bucket, subscription_id, lambda entry: self._ack(entry, "webhook", token, body)
        )

    def ack(self, bucket: str, subscription_id: str, token: str, body: AckBody) -> Pending[Acked]:
        """A worker that claimed reports, or shows that it is alive. PROTOCOL §7.2."""
        return self._on(
            bucket, subscription_id, lambda entry: self._ack(entry, "pull-wake", token, body)
        )

    def release(
        self, bucket: str, subscription_id: str, token: str, body: AckBody
    ) -> Pending[None]:
        """A worker gives the work back as it is. PROTOCOL §7.2."""

        def release(entry: Entry) -> None:
            self._judge_worker(entry, "pull-wake", token, body)
            rules.end_wake(entry.subscription)
            self._stored.save(entry)
            self._wakes.proceed(entry)

        return self._on(bucket, subscription_id, release)

    def _ack(self, entry: Entry, kind: rules.Kind, token: str, body: AckBody) -> Acked:
        self._judge_worker(entry, kind, token, body)
        acks = ((ack.name, _position(ack)) for ack in body.acks or ())
        moves = rules.judge_acks(entry.links, acks)
        self._stored.move(entry, moves)
        subscription, done = entry.subscription, body.done is True
        rules.note_delivered(subscription)
        if done:
            rules.end_wake(subscription)
        else:
            rules.extend_lease(subscription, self._clock.now_ms())
        self._stored.save(entry)
        self._wakes.proceed(entry)
        return Acked(ok=True, next_wake=done and entry.links.pending > 0)

    def _judge_worker(self, entry: Entry, kind: rules.Kind, token: str, body: AckBody) -> None:
        """Only the worker of the current wake may go on. PROTOCOL §7.3."""
        subscription = entry.subscription
        rules.judge_type(subscription, kind)
        generation = self._tokens.verify(token, subscription.uid)
        self._wakes.proceed(entry)  # the lease may be over, its timer just not called yet
        rules.judge_fence(subscription, body, token_generation=generation)

    # -- keys

    def jwks(self) -> Pending[dict[str, Any]]:
        """The public keys that webhooks are signed with. PROTOCOL §6.5."""
        answer: Pending[dict[str, Any]] = Pending()
        self._complete(answer, self._signing.jwks())
        return answer

    def rotate_keys(self) -> Pending[None]:
        """Sign with a new key. The old one stays published for a day."""
        self._signing.rotate()
        answer: Pending[None] = Pending()
        self._complete(answer, None)
        return answer

    # -- answers

    def _on(self, bucket: str, subscription_id: str, work: Callable[[Entry], T]) -> Pending[T]:
        """Do something with a subscription that is ready; answer when the effect is durable."""
        answer: Pending[T] = Pending()

        def run() -> None:
            outcome: T | Exception
            try:
                entry = self.registry.find(bucket, subscription_id)
                if entry is None:
                    raise _not_found(subscription_id)
                if not entry.ready:
                    entry.waiting.append(run)
                    return
                outcome = work(entry)
            except (SubscriptionError, HeadwaterError) as error:
                outcome = error
            self._complete(answer, outcome)

        run()
        return answer

    def _complete(self, answer: Pending[T], outcome: T | Exception) -> None:
        """Answer when everything that led to it is durable, a refusal as well."""

        def complete(failure: Exception | None) -> None:
            answer.complete(outcome if failure is None else failure)

        self._documents.after(complete)


def _position(ack: Ack) -> Position | None:
    """The position an ack names, if it names one: -1 and now do not."""
    try:
        found = offsets.parse(ack.offset)
    except HeadwaterError:
        return None
    return found if isinstance(found, Position) else None


def _not_found(subscription_id: str) -> SubscriptionError:
    return SubscriptionError(
        Code.SUBSCRIPTION_NOT_FOUND, f"no such subscription. id={subscription_id}"
    )


def _log_failure(error: Exception | None) -> None:
    if error is not None:
        log.error("the streams of a subscription could not all be looked at", exc_info=error)
