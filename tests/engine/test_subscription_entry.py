"""What is left of subscriptions after a restart or a crash."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from headwater.core.errors import Corruption, StorageFailed
from headwater.core.subscription_config import Code, SubscriptionError
from headwater.engine.subscription_entry import LINKS, SUBSCRIPTIONS
from headwater.engine.subscriptions import Subscriptions
from headwater.storage.memory import MemoryStore
from headwater.storage.rocks import RocksStore
from headwater.wire import offsets
from tests.support import builders
from tests.support.builders import BUCKET
from tests.support.clock import FakeClock
from tests.support.engines import EngineRunner
from tests.support.stores import VolatileStore
from tests.support.subscriptions import ZERO, Hub, ack_body, hub, refusal, refused
from tests.support.webhooks import DONE, reply


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    with hub(RocksStore(tmp_path), clock) as h:
        url = h.receiver.url
        h.receiver.always = reply(500)
        h.create("events/old")
        h.append("events/old")
        h.put(streams=["named"], description="d", lease_ttl_ms=600_000)
        h.create("wake")
        h.put_pull("pull")
        h.create("events/new", b"1")
        before, keys = h.get(), h.result(h.subscriptions.jwks())
        claimed = h.claim(subscription_id="pull")
        h.settle()
        before = h.get()
        assert before.subscription.status == "failed"
        h.close()
    with hub(RocksStore(tmp_path), clock) as h:
        after = h.get()
        assert after.subscription == before.subscription
        assert after.subscription.next_attempt_at_ms is not None
        assert sorted(after.streams, key=lambda i: i.path) == sorted(
            before.streams, key=lambda i: i.path
        )
        assert (after.kid, h.result(h.subscriptions.jwks())) == (before.kid, keys)
        assert not h.put(
            streams=["named"], description="d", lease_ttl_ms=600_000, webhook={"url": url}
        ).created
        held = refusal(lambda: h.claim("w2", "pull"))
        assert held.details["current_holder"] == "w1"
        acked = h.subscriptions.ack(BUCKET, "pull", claimed.token, ack_body(claimed, done=True))
        assert h.result(acked).ok
        # The retry comes when it was to come, not sooner.
        due_ms = after.subscription.next_attempt_at_ms
        h.advance((due_ms - clock.now_ms()) / 1000 - 0.001)
        assert h.get().subscription.attempts == 1
        h.advance(0.001)
        assert h.get().subscription.attempts == 2  # nobody listens there any more
        h.close()
    with hub(RocksStore(tmp_path), clock) as h:
        assert h.acked("events/new", "pull") == claimed.streams[0].tail_offset
        assert h.get("pull").pending_count == 0


def test_a_crash_between_an_append_and_its_wake_loses_no_wake() -> None:
    """The subscriptions stop observing, as if the process had died right after the commit."""
    store, clock = MemoryStore(), FakeClock()
    with hub(store, clock) as h:
        url = h.receiver.url
        h.create("events/old", b"1")
        h.put(webhook={"url": url}, streams=["named"])
        h.create("events/gone", b"1")
        h.receiver.always = DONE
        h.settle()
        acked = h.acked("events/old")
        h.subscriptions.close()
        h.append("events/old")
        h.create("events/new", b"1")
        h.create("named", b"1")
        h.runner.together(builders.delete("events/gone"), builders.create("events/gone", body=b"x"))
        h.delete("events/gone")
    with hub(store, clock) as h:
        view = h.get()
        infos = {info.path: info for info in view.streams}
        assert set(infos) == {"events/old", "events/new", "named"}
        assert infos["events/old"].acked_offset == acked
        assert all(info.has_pending for info in view.streams)
        assert view.subscription.wake_id is not None


def test_a_wake_that_was_not_delivered_is_delivered_after_a_restart() -> None:
    store, clock = MemoryStore(), FakeClock()
    with hub(store, clock) as h:
        h.create("wake")
        h.put_pull()
        h.put("hook", webhook={"url": "http://127.0.0.1:1/"})
        h.create("events/e", b"1")
        h.settle()
        generation = h.get("hook").subscription.generation
    with hub(store, clock) as h:
        assert h.get("hook").subscription.generation == generation
        h.settle()
        # The event was written, so it is not written again.
        assert len(h.content("wake")) == 1
        h.advance(2)
        assert h.get("hook").subscription.attempts == 2


def test_a_stream_created_anew_while_nobody_looked_starts_anew() -> None:
    store, clock = MemoryStore(), FakeClock()
    with hub(store, clock) as h:
        h.create("named", b"[1,2,3]")
        h.put(pattern=None, streams=["named"], webhook={"url": "http://127.0.0.1:1/"})
        assert h.acked("named") == f"{3:016}_{3:016}"
        h.subscriptions.close()
        h.runner.together(builders.delete("named"), builders.create("named", body=b"x"))
    with hub(store, clock) as h:
        assert h.acked("named") == ZERO
        assert h.get().pending_count == 1


def test_links_without_a_subscription_are_swept_away() -> None:
    store, clock = MemoryStore(), FakeClock()
    with hub(store, clock) as h:
        h.put(streams=["a", "b"])
        h.result(h.runner.engine.save_document(SUBSCRIPTIONS, f"{BUCKET}/s", None))
    with hub(store, clock) as h:
        h.settle()
        assert list(h.runner.engine.shard.documents(LINKS)) == []
        assert refused(h.get) is Code.SUBSCRIPTION_NOT_FOUND


def test_discovering_streams_writes_nothing() -> None:
    with hub() as h:
        h.put()
        h.create("events/e")
        h.settle()
        assert h.get().stream_count == 1
        assert list(h.runner.engine.shard.documents(LINKS)) == []


def test_a_document_that_cannot_be_read_stops_the_server_from_starting() -> None:
    store = MemoryStore()
    with hub(store) as h:
        h.result(h.runner.engine.save_document(SUBSCRIPTIONS, f"{BUCKET}/s", b"?"))
    with EngineRunner(store) as runner, pytest.raises(Corruption):
        Subscriptions(runner.engine).start()


@pytest.mark.parametrize("operations", range(0, 60, 3))
@pytest.mark.parametrize("flushed", [0, 10_000], ids=["synced only", "everything written"])
def test_what_was_answered_before_the_power_went_is_there_after(
    operations: int, flushed: int
) -> None:
    """Two workers' days, cut off at one moment after the other."""
    clock, first = FakeClock(), VolatileStore()
    with hub(first, clock) as h:
        h.create("wake")
        h.create("events/old", b"1")
    store = first.crash()
    subscribed, appended, acked = False, 0, ""
    with hub(store, clock) as h, suppress(StorageFailed):
        store.cut_power_after(operations)
        h.put_pull(lease_ttl_ms=600_000)
        subscribed = True
        for number in range(4):
            h.create(f"events/{number}", b"1")
            appended += 1
            h.append("events/old")
            claimed = h.claim()
            h.ack(claimed)
            acked = next(i.tail_offset for i in claimed.streams if i.path == "events/old")
    with hub(store.crash(flushed=flushed), clock) as h:
        if not subscribed and refused_or_none(h) is Code.SUBSCRIPTION_NOT_FOUND:
            return
        infos = {info.path: info for info in h.get().streams}
        assert len(infos) >= appended + 1
        assert infos["events/old"].acked_offset >= acked
        for name, info in infos.items():
            tail = h.runner.engine.open(BUCKET, name).tail
            assert info.tail_offset == offsets.render(tail).decode()
        h.advance(600)  # should somebody have had the work when the power went
        pending = h.get().pending_count
        assert (h.get().subscription.wake_id is not None) == bool(pending)
        if pending:
            h.ack(h.claim())
        assert h.get().pending_count == 0


def refused_or_none(h: Hub) -> Code | None:
    try:
        h.get()
    except SubscriptionError as error:
        return error.code
    return None
