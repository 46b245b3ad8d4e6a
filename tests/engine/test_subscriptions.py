"""Subscriptions: creating, confirming, ending; who may speak; when an answer is due."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from headwater.core import subscriptions as rules
from headwater.core.errors import StorageFailed, TooManyRequests
from headwater.core.pending import Pending
from headwater.core.subscription_config import Code, Config, SubscriptionError
from headwater.core.subscriptions import Subscription
from headwater.core.webhook_urls import Target, WebhookPolicy
from headwater.engine import subscriptions as module
from headwater.engine.subscription_entry import LINKS, SUBSCRIPTIONS
from headwater.engine.webhooks import Connection, Courier
from headwater.storage import keys
from tests.support.builders import BUCKET
from tests.support.engines import EngineRunner
from tests.support.stores import DiskError, FaultyStore, VolatileStore
from tests.support.subscriptions import ROOT_URL, ZERO, ack_body, hub, refused
from tests.support.webhooks import DONE

# -- the subscription itself


def test_a_repeated_put_confirms_and_a_different_one_conflicts() -> None:
    with hub() as h:
        assert h.put().created
        assert not h.put().created
        conflict = refused(lambda: h.put(pattern="other/*"))
        assert conflict is Code.SUBSCRIPTION_ALREADY_EXISTS


def test_a_bucket_that_is_deleted_takes_its_subscriptions_along() -> None:
    with hub() as h:
        h.create("events/e", b"1")
        h.put()
        engine = h.runner.engine
        h.result(engine.delete_bucket(BUCKET))
        for _ in range(3):
            engine.sweeper.sweep()
            h.settle()
        assert engine.bucket(BUCKET) is None
        assert refused(h.get) is Code.SUBSCRIPTION_NOT_FOUND
        assert list(engine.shard.documents(SUBSCRIPTIONS)) == []


def test_callbacks_go_where_the_last_put_came_from() -> None:
    with hub() as h:
        view = h.put()
        assert view.subscription.root_url == ROOT_URL
        config = Config("webhook", "events/*", (), h.receiver.url, None, 30_000, None)
        h.result(h.subscriptions.put(BUCKET, "s", config, root_url="https://new.example"))
        h.create("events/e", b"1")
        url = h.notice(1)["callback_url"]
        assert url == "https://new.example/__ds/subscriptions/s/callback"


def test_an_unsafe_url_is_rejected() -> None:
    with hub() as h:
        error = refused(lambda: h.put(webhook={"url": "http://10.0.0.1/hook"}))
        assert error is Code.WEBHOOK_URL_REJECTED
        assert refused(h.get) is Code.SUBSCRIPTION_NOT_FOUND


def test_there_is_an_end_to_the_number_of_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SUBSCRIPTIONS_MAX", 1)
    with hub() as h:
        h.put("one")
        with pytest.raises(TooManyRequests):
            h.put("two")
        h.remove("one")
        h.put("two")


def test_subscriptions_are_listed_in_pages() -> None:
    with hub() as h:
        for subscription_id in ("b", "a", "c"):
            h.put(subscription_id)
        page = h.subscriptions.page
        first = h.result(page(BUCKET, after="", count_max=2))
        rest = h.result(page(BUCKET, after="b", count_max=2))
        assert [view.subscription.id for view in first + rest] == ["a", "b", "c"]
        assert h.result(page("elsewhere", after="", count_max=2)) == []


def test_a_deleted_subscription_is_over_for_everybody() -> None:
    with hub() as h:
        h.create("wake")
        h.put_pull()
        h.create("events/e", b"1")
        claimed = h.claim()
        h.remove()
        h.remove()
        assert refused(lambda: h.ack(claimed)) is Code.SUBSCRIPTION_NOT_FOUND
        assert refused(lambda: h.release(claimed)) is Code.SUBSCRIPTION_NOT_FOUND
        h.settle()
        assert list(h.runner.engine.shard.documents(LINKS)) == []
        h.put_pull()
        h.append("events/e")
        assert refused(lambda: h.ack(claimed)) is Code.TOKEN_INVALID
        h.advance(60)
        assert h.acked("events/e") == f"{1:016}_{1:016}"


def test_a_delivery_that_outlives_its_subscription_concerns_nobody() -> None:
    with hub() as h:
        h.put()
        h.receiver.replies.append(None)
        h.create("events/e", b"1")
        h.notice(1)
        h.remove()
        h.put()
        h.receiver.always = DONE
        h.receiver.release()
        h.settle()
        assert h.acked("events/e") == f"{1:016}_{1:016}"  # linked at its tail, not acked
        assert h.get().subscription.generation == 0


# -- who may speak


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        pytest.param({"wake_id": "w_other"}, Code.FENCED, id="another wake"),
        pytest.param({"wake_id": None}, Code.FENCED, id="no wake"),
        pytest.param({"generation": 7}, Code.FENCED, id="another generation"),
        pytest.param(
            {"acks": [{"stream": "events/x", "offset": ZERO}]}, Code.INVALID_OFFSET, id="unknown"
        ),
        pytest.param(
            {"acks": [{"stream": "events/e", "offset": "-1"}]}, Code.INVALID_OFFSET, id="-1"
        ),
        pytest.param(
            {"acks": [{"stream": "events/e", "offset": "now"}]}, Code.INVALID_OFFSET, id="now"
        ),
        pytest.param(
            {"acks": [{"stream": "events/e", "offset": "soon"}]}, Code.INVALID_OFFSET, id="no token"
        ),
        pytest.param(
            {"acks": [{"stream": "events/e", "offset": f"{9:016}_{9:016}"}]},
            Code.INVALID_OFFSET,
            id="past the tail",
        ),
    ],
)
def test_what_is_wrong_about_an_ack_changes_nothing(changed: dict[str, Any], code: Code) -> None:
    with hub() as h:
        h.create("wake")
        h.put_pull()
        h.create("events/e", b"1")
        claimed = h.claim()
        assert refused(lambda: h.ack(claimed, **changed)) is code
        assert h.acked("events/e") == ZERO
        assert h.ack(claimed).ok


def test_a_cursor_never_goes_back() -> None:
    with hub() as h:
        h.create("wake")
        h.put_pull()
        h.create("events/e", b"1")
        claimed = h.claim()
        h.ack(claimed, done=False)
        back = [{"stream": "events/e", "offset": ZERO}]
        assert refused(lambda: h.ack(claimed, acks=back)) is Code.INVALID_OFFSET


def test_tokens_are_for_one_subscription_and_expire() -> None:
    with hub() as h:
        h.create("wake")
        h.put_pull(lease_ttl_ms=600_000)
        h.put_pull("other")
        h.create("events/e", b"1")
        claimed, other = h.claim(), h.claim(subscription_id="other")
        body = ack_body(claimed)
        ack = h.subscriptions.ack
        for token in ("", "x", "x.y", other.token, claimed.token + "x", claimed.token.upper()):
            answer = ack(BUCKET, "s", token, body)
            assert refused(partial(h.result, answer)) is Code.TOKEN_INVALID
        for _ in range(24 * 6):
            h.ack(claimed, done=False, acks=[])
            h.clock.advance(600 - 0.001)
        h.ack(claimed, done=False, acks=[])
        h.clock.advance(1)
        assert refused(lambda: h.ack(claimed)) is Code.TOKEN_EXPIRED


def test_each_type_has_its_own_ways() -> None:
    with hub() as h:
        h.create("wake")
        h.put_pull("pull")
        h.put("hook")
        h.create("events/e", b"1")
        calls = h.subscriptions
        body = ack_body(h.claim(subscription_id="pull"))
        answers: list[Pending[Any]] = [
            calls.claim(BUCKET, "hook", "w"),
            calls.ack(BUCKET, "hook", "t", body),
            calls.release(BUCKET, "hook", "t", body),
            calls.callback(BUCKET, "pull", "t", body),
        ]
        for answer in answers:
            assert refused(partial(h.result, answer)) is Code.INVALID_REQUEST


# -- durability


def on_disk(store: VolatileStore, subscription_id: str = "s") -> Subscription | None:
    """The subscription, as it would be if the power went at this moment."""
    found = store.crash().get(keys.document(SUBSCRIPTIONS, f"{BUCKET}/{subscription_id}"))
    return None if found is None else rules.decode(found)


def test_an_answer_comes_when_all_that_it_tells_is_on_disk() -> None:
    store = VolatileStore()
    seen: list[tuple[Any, Subscription | None]] = []

    def look(answer: Pending[Any]) -> None:
        answer.deliver(lambda outcome: seen.append((outcome, on_disk(store))))

    with hub(store) as h:
        h.create("wake")
        h.create("events/e")
        look(h.put_later(type="pull-wake", wake_stream="wake"))
        h.until(lambda: len(seen) == 1)
        assert seen[0][1] is not None
        h.append("events/e")
        look(h.subscriptions.claim(BUCKET, "s", "w1"))
        look(h.subscriptions.claim(BUCKET, "s", "w2"))
        look(h.subscriptions.get(BUCKET, "s"))
        h.until(lambda: len(seen) == 4)
        claimed = seen[1][0]
        for _, found in seen[1:]:
            # Who is refused the work is told so when it is certain that another has it.
            assert found is not None and found.holder == "w1"
        body = ack_body(claimed, done=True)
        look(h.subscriptions.ack(BUCKET, "s", claimed.token, body))
        look(h.subscriptions.ack(BUCKET, "s", claimed.token, body))
        h.until(lambda: len(seen) == 6)
        assert isinstance(seen[5][0], SubscriptionError)
        for _, found in seen[4:]:
            assert found is not None and found.wake_id is None
        look(h.subscriptions.delete(BUCKET, "s"))
        look(h.subscriptions.get(BUCKET, "s"))
        h.until(lambda: len(seen) == 8)
        assert [found for _, found in seen[6:]] == [None, None]


def test_a_wake_is_on_disk_before_it_is_delivered() -> None:
    store = VolatileStore()
    seen: list[Subscription | None] = []

    async def dial(address: str, target: Target, tls: object) -> Connection:
        seen.append(on_disk(store))
        return await asyncio.open_connection(address, target.port)

    def courier(runner: EngineRunner) -> Courier:
        return Courier(runner.loop, runner.clock, WebhookPolicy(allow_local=True), dial=dial)

    with hub(store, courier=courier) as h:
        h.put()
        h.create("events/e", b"1")
        notice = h.notice(1)
        h.settle()
        [found] = seen
        assert found is not None
        assert (found.wake_id, found.generation) == (notice["wake_id"], 1)


def test_when_storage_fails_nothing_is_promised() -> None:
    store = FaultyStore()
    with hub(store) as h:
        h.put()
        store.sync_error = DiskError()
        answers: list[Pending[Any]] = [
            h.put_later("other"),
            h.put_later("with streams", streams=["a"]),
            h.subscriptions.delete(BUCKET, "s"),
        ]
        for answer in answers:
            with pytest.raises(StorageFailed):
                h.result(answer)
        with pytest.raises(StorageFailed):
            h.put("later")
