"""Subscriptions over an engine that the test moves, with workers and receivers beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from headwater.core.commands import Append
from headwater.core.pending import Pending
from headwater.core.subscription_config import (
    AckBody,
    Code,
    SubscriptionError,
    parse_ack,
    parse_config,
)
from headwater.core.webhook_urls import WebhookPolicy
from headwater.engine.subscriptions import Acked, Claimed, Subscriptions, View
from headwater.engine.webhooks import Courier
from headwater.storage.store import Store
from headwater.wire import offsets
from tests.support import builders
from tests.support.builders import BUCKET, JSON
from tests.support.clock import FakeClock
from tests.support.engines import WAIT_S, EngineRunner
from tests.support.webhooks import Receiver

T = TypeVar("T")

ROOT_URL = "http://streams.example/v1/stream"
ZERO = "0000000000000000_0000000000000000"


class Hub:
    """One server's subscriptions, and what people do with them."""

    def __init__(
        self,
        store: Store | None = None,
        clock: FakeClock | None = None,
        courier: Callable[[EngineRunner], Courier] | None = None,
    ) -> None:
        self.runner = EngineRunner(store, clock)
        self.clock = self.runner.clock
        self.loop = self.runner.loop
        self.receiver = Receiver(self.loop)
        self.subscriptions = Subscriptions(
            self.runner.engine,
            WebhookPolicy(allow_local=True),
            None if courier is None else courier(self.runner),
        )
        self.subscriptions.start()

    # -- time

    def until(self, condition: Callable[[], object]) -> None:
        """Let the loop run until something is so."""
        deadline = self.loop.time() + WAIT_S
        while not condition():
            assert self.loop.time() < deadline, "it did not come about"
            self.runner.turn()

    def settle(self) -> None:
        """Run until no delivery is under way and everything is saved."""
        entries = self.subscriptions.registry.entries
        courier = self.subscriptions.courier
        while True:
            self.runner.settle()
            if not courier.active and not any(entry.delivering for entry in entries()):
                return
            self.until(lambda: not courier.active)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.settle()

    def result(self, pending: Pending[T]) -> T:
        """The value of a pending answer. Raises its failure."""
        outcome: Any = self.runner.outcome(pending)
        if isinstance(outcome, Exception):
            raise outcome
        value: T = outcome
        return value

    # -- streams

    def create(self, name: str, body: bytes = b"", **options: Any) -> None:
        self.runner.create(builders.create(name, content_type=JSON, body=body, **options))
        self.runner.settle()

    def append(self, name: str, body: bytes = b'{"n": 1}') -> str:
        """Append, and return the new tail as a token."""
        at_ms = self.clock.now_ms()
        done = self.runner.append(Append(BUCKET, name, at_ms, JSON, body))
        return offsets.render(done.tail).decode()

    def delete(self, name: str) -> None:
        self.runner.delete(builders.delete(name, at_ms=self.clock.now_ms()))
        self.runner.settle()

    def content(self, name: str) -> list[Any]:
        found: list[Any] = json.loads(self.runner.content(name))
        return found

    # -- subscriptions

    def put(self, subscription_id: str = "s", **fields: Any) -> View:
        return self.result(self.put_later(subscription_id, **fields))

    def put_later(self, subscription_id: str = "s", **fields: Any) -> Pending[View]:
        """A webhook subscription to `events/*` at the receiver, unless told otherwise."""
        asked: dict[str, Any] = {"type": "webhook", "pattern": "events/*"}
        if fields.get("type", "webhook") == "webhook":
            asked["webhook"] = {"url": self.receiver.url}
        config = parse_config(json.dumps(asked | fields).encode())
        return self.subscriptions.put(BUCKET, subscription_id, config, root_url=ROOT_URL)

    def put_pull(self, subscription_id: str = "s", **fields: Any) -> View:
        """A pull-wake subscription to `events/*`, with `wake` as its wake stream."""
        asked = {"type": "pull-wake", "wake_stream": "wake"} | fields
        return self.put(subscription_id, **asked)

    def get(self, subscription_id: str = "s") -> View:
        return self.result(self.subscriptions.get(BUCKET, subscription_id))

    def acked(self, name: str, subscription_id: str = "s") -> str | None:
        """The cursor of one stream."""
        streams = self.get(subscription_id).streams
        return next((info.acked_offset for info in streams if info.path == name), None)

    def claim(self, worker: str = "w1", subscription_id: str = "s") -> Claimed:
        return self.result(self.subscriptions.claim(BUCKET, subscription_id, worker))

    def ack(self, claimed: Claimed, *, done: bool = True, **changed: Any) -> Acked:
        """Report as the worker of a claim; by default everything it was given is processed."""
        body = ack_body(claimed, done=done, **changed)
        return self.result(self.subscriptions.ack(BUCKET, "s", claimed.token, body))

    def release(self, claimed: Claimed) -> None:
        body = ack_body(claimed, acks=[])
        self.result(self.subscriptions.release(BUCKET, "s", claimed.token, body))

    def callback(self, notice: dict[str, Any], *, done: bool = True, **changed: Any) -> Acked:
        """Report as the receiver of a webhook."""
        acks = [
            {"stream": info["path"], "offset": info["tail_offset"]} for info in notice["streams"]
        ]
        whole = {"wake_id": notice["wake_id"], "generation": notice["generation"], "acks": acks}
        body = parse_ack(json.dumps(whole | {"done": done} | changed).encode())
        token = notice["callback_token"]
        return self.result(self.subscriptions.callback(BUCKET, "s", token, body))

    def remove(self, subscription_id: str = "s") -> None:
        self.result(self.subscriptions.delete(BUCKET, subscription_id))

    # -- the receiver

    def notice(self, number: int) -> dict[str, Any]:
        """The body of the webhook of that number, from 1 on; waits for it."""
        self.until(lambda: len(self.receiver.requests) >= number)
        return self.receiver.requests[number - 1].json

    @property
    def notices(self) -> int:
        return len(self.receiver.requests)

    # -- the end

    def close(self) -> None:
        """End well, so that the store can be opened again."""
        self._stop()
        self.runner.close()

    def abandon(self) -> None:
        self._stop()
        self.runner.abandon()

    def _stop(self) -> None:
        self.subscriptions.close()
        self.until(lambda: not self.subscriptions.courier.active)
        self.receiver.close()
        self.runner.turn(5)


def ack_body(claimed: Claimed, **changed: Any) -> AckBody:
    acks = [{"stream": info.path, "offset": info.tail_offset} for info in claimed.streams]
    whole = {"wake_id": claimed.wake_id, "generation": claimed.generation, "acks": acks}
    return parse_ack(json.dumps(whole | changed).encode())


def refusal(call: Callable[[], object]) -> SubscriptionError:
    """The error that a call is refused with."""
    try:
        call()
    except SubscriptionError as error:
        return error
    raise AssertionError("it was not refused")


def refused(call: Callable[[], object]) -> Code:
    return refusal(call).code


@contextmanager
def hub(
    store: Store | None = None,
    clock: FakeClock | None = None,
    courier: Callable[[EngineRunner], Courier] | None = None,
) -> Iterator[Hub]:
    found = Hub(store, clock, courier)
    try:
        yield found
    finally:
        if not found.loop.is_closed():
            found.abandon()
