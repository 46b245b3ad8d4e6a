"""Wakes: who is told, when, how often, and for how long they have the work."""

from __future__ import annotations

import pytest

from headwater.core.subscription_config import Code
from headwater.engine import subscription_wakes
from headwater.engine.streams import Stream
from headwater.engine.subscription_wakes import StreamInfo
from headwater.engine.webhooks import CONCURRENT_PER_HOST_MAX
from tests.support.stores import DiskError, FaultyStore
from tests.support.subscriptions import ROOT_URL, ZERO, hub, refusal, refused
from tests.support.webhooks import DONE, reply


def paths(streams: list[StreamInfo]) -> list[str]:
    return sorted(info.path for info in streams)


# -- webhooks


def test_a_webhook_tells_all_that_its_worker_needs() -> None:
    with hub() as h:
        h.put("with/slash and ü")
        h.create("events/e", b"1")
        notice = h.notice(1)
        [request] = h.receiver.requests
        assert request.line == "POST /hook HTTP/1.1"
        assert request.headers["content-type"] == "application/json"
        assert request.headers["host"] == f"127.0.0.1:{h.receiver.port}"
        assert set(notice) == {
            "subscription_id",
            "wake_id",
            "generation",
            "streams",
            "callback_url",
            "callback_token",
        }
        assert notice["subscription_id"] == "with/slash and ü"
        assert notice["generation"] == 1 and notice["wake_id"].startswith("w_")
        quoted = "with%2Fslash%20and%20%C3%BC"
        assert notice["callback_url"] == f"{ROOT_URL}/__ds/subscriptions/{quoted}/callback"


def test_an_answer_that_says_done_acks_what_it_was_told() -> None:
    with hub() as h:
        h.put()
        h.receiver.always = DONE
        h.create("events/e", b"1")
        tail = h.notice(1)["streams"][0]["tail_offset"]
        h.settle()
        assert h.acked("events/e") == tail
        assert h.get().subscription.wake_id is None
        h.advance(3600)
        assert h.notices == 1


def test_what_arrives_during_a_delivery_wakes_again() -> None:
    with hub() as h:
        h.put()
        h.receiver.replies.append(None)
        h.receiver.always = DONE
        h.create("events/e", b"1")
        first = h.notice(1)
        latest = h.append("events/e")
        h.runner.settle()
        assert h.notices == 1  # one wake at a time
        h.receiver.release()
        second = h.notice(2)
        assert second["generation"] == 2 and second["wake_id"] != first["wake_id"]
        assert second["streams"][0]["acked_offset"] == first["streams"][0]["tail_offset"]
        assert second["streams"][0]["tail_offset"] == latest
        h.settle()
        assert h.acked("events/e") == latest


def test_a_wake_that_cannot_tell_all_leaves_the_rest_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription_wakes, "WAKE_STREAMS_MAX", 2)
    with hub() as h:
        h.receiver.replies.append(None)
        h.receiver.always = DONE
        h.put()
        for number in range(5):
            h.create(f"events/{number}", b"1")
        h.notice(1)
        h.receiver.release()
        h.until(lambda: h.get().pending_count == 0)
        told = [request.json["streams"] for request in h.receiver.requests]
        assert {info["path"] for infos in told for info in infos} == set(paths(h.get().streams))
        assert max(len(infos) for infos in told) == 2


def test_a_callback_acks_and_ends_the_wake() -> None:
    with hub() as h:
        h.put()
        h.create("events/e", b"1")
        notice = h.notice(1)
        h.settle()
        acked = h.callback(notice)
        assert (acked.ok, acked.next_wake) == (True, False)
        assert refused(lambda: h.callback(notice)) is Code.FENCED
        assert h.acked("events/e") == notice["streams"][0]["tail_offset"]


def test_a_callback_that_leaves_work_is_followed_by_a_wake() -> None:
    with hub() as h:
        h.put()
        h.create("events/e", b"1")
        notice = h.notice(1)
        h.settle()
        h.append("events/e")
        assert h.callback(notice).next_wake is True
        assert h.notice(2)["generation"] == 2
        assert refused(lambda: h.callback(notice)) is Code.FENCED


def test_a_callback_may_come_before_the_webhook_is_answered() -> None:
    with hub() as h:
        h.put()
        h.receiver.replies.append(None)
        h.create("events/e", b"1")
        notice = h.notice(1)
        h.append("events/e")
        assert h.callback(notice).next_wake is True
        h.runner.settle()
        assert h.notices == 1  # the next one waits for its turn
        h.receiver.release()
        assert h.notice(2)["generation"] == 2


def test_callbacks_keep_the_lease_and_its_end_wakes_again() -> None:
    with hub() as h:
        h.put(lease_ttl_ms=5000)
        h.create("events/e", b"1")
        notice = h.notice(1)
        h.settle()
        for _ in range(3):
            h.advance(4)
            h.callback(notice, done=False, acks=[])
        h.advance(4.9)
        assert h.notices == 1
        h.advance(0.1)
        assert h.notice(2)["generation"] == 2
        assert refused(lambda: h.callback(notice)) is Code.FENCED


def test_a_lease_without_work_ends_quietly() -> None:
    with hub() as h:
        h.put(lease_ttl_ms=5000)
        h.create("events/e", b"1")
        notice = h.notice(1)
        h.settle()
        h.callback(notice, done=False)
        h.advance(5)
        assert h.notices == 1
        assert h.get().subscription.wake_id is None
        assert refused(lambda: h.callback(notice)) is Code.FENCED


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(reply(500), id="an error"),
        pytest.param(reply(302, b"", "Location: http://127.0.0.1:1/"), id="a redirect"),
        pytest.param(b"", id="no answer"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="not HTTP"),
    ],
)
def test_a_failed_delivery_is_retried_and_shows(answer: bytes) -> None:
    with hub() as h:
        h.put()
        h.receiver.replies.append(answer)
        h.create("events/e", b"1")
        first = h.notice(1)
        h.settle()
        subscription = h.get().subscription
        assert subscription.status == "failed" and subscription.last_error
        assert subscription.next_attempt_at_ms is not None
        delay_ms = subscription.next_attempt_at_ms - h.clock.now_ms()
        assert 800 <= delay_ms <= 1200
        h.advance(delay_ms / 1000 - 0.001)
        assert h.notices == 1
        h.advance(0.001)
        again = h.notice(2)
        h.settle()
        assert (again["wake_id"], again["generation"]) == (first["wake_id"], 1)
        assert h.get().subscription.status == "active"


def test_retries_slow_down_and_a_lease_does_not_speed_them_up() -> None:
    with hub() as h:
        h.receiver.always = reply(503)
        h.put(lease_ttl_ms=1000)
        h.create("events/e", b"1")
        delays = []
        for number in range(1, 9):
            h.notice(number)
            h.settle()
            due_ms = h.get().subscription.next_attempt_at_ms
            assert due_ms is not None
            delays.append(due_ms - h.clock.now_ms())
            h.append("events/e")  # news do not bring it forward either
            h.advance((due_ms - h.clock.now_ms()) / 1000)
        bases = [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]
        assert all(0.8 <= delay / base <= 1.2 for delay, base in zip(delays, bases, strict=True))
        assert h.notices == 9
        # The lease ended while it waited, so that each attempt was a wake of its own.
        assert h.receiver.requests[-1].json["generation"] > 5


def test_a_callback_stops_the_retries_of_what_did_arrive() -> None:
    with hub() as h:
        h.put()
        h.receiver.replies.append(reply(500))
        h.create("events/e", b"1")
        notice = h.notice(1)
        h.settle()
        assert h.callback(notice, done=False, acks=[]).ok
        assert h.get().subscription.status == "active"
        h.advance(29)
        assert h.notices == 1
        h.advance(1)
        assert h.notice(2)["generation"] == 2


def test_a_retry_is_dropped_when_its_work_is_gone() -> None:
    with hub() as h:
        h.put(lease_ttl_ms=1000)
        h.receiver.always = reply(500)
        h.create("events/e", b"1")
        h.settle()
        for _ in range(2):
            due_ms = h.get().subscription.next_attempt_at_ms
            assert due_ms is not None
            h.advance((due_ms - h.clock.now_ms()) / 1000)
        h.advance(1)
        view = h.get().subscription
        assert (view.status, view.wake_id, view.attempts) == ("failed", None, 3)  # backing off
        h.delete("events/e")
        h.advance(60)
        view = h.get().subscription
        assert (view.status, view.wake_id, view.next_attempt_at_ms) == ("active", None, None)
        assert h.notices == 3


@pytest.mark.parametrize(
    "body", [b"ok", b"", b"[]", b'{"done": "yes"}', b'{"done": null}', b"\xff"]
)
def test_an_answer_that_does_not_say_done_leaves_the_work_to_a_callback(body: bytes) -> None:
    with hub() as h:
        h.put()
        h.receiver.always = reply(200, body)
        h.create("events/e", b"1")
        notice = h.notice(1)
        h.settle()
        view = h.get()
        assert (view.subscription.status, view.pending_count) == ("active", 1)
        assert h.callback(notice).ok


def test_a_webhook_that_waits_for_its_turn_may_be_overtaken() -> None:
    with hub() as h:
        h.receiver.always = None
        for number in range(CONCURRENT_PER_HOST_MAX):
            h.put(f"busy-{number}")
        h.create("events/e", b"1")
        h.until(lambda: h.receiver.open == CONCURRENT_PER_HOST_MAX)
        h.put("late", pattern="late/*")
        h.put("removed", pattern="late/*")
        h.create("late/e", b"1")
        h.until(lambda: h.subscriptions.courier.queued == 2)
        h.remove("removed")
        h.delete("late/e")
        h.receiver.always = reply()
        h.receiver.release()
        h.settle()
        assert h.notices == CONCURRENT_PER_HOST_MAX
        assert h.get("late").subscription.wake_id is None


def test_the_retry_of_a_wake_whose_work_is_gone_ends_the_wake() -> None:
    with hub() as h:
        h.put()
        h.receiver.always = reply(500)
        h.create("events/e", b"1")
        h.notice(1)
        h.settle()
        h.delete("events/e")
        h.advance(2)
        assert h.get().subscription.wake_id is None
        assert h.notices == 1


def test_appends_do_not_wait_for_a_webhook_that_hangs() -> None:
    with hub() as h:
        h.receiver.always = None
        h.put()
        h.create("events/e", b"1")
        h.notice(1)
        for _ in range(20):
            h.append("events/e")
        assert h.receiver.open == 1
        h.advance(10)
        view = h.get().subscription
        assert view.status == "failed" and "10 s" in view.last_error


def test_an_attempt_does_not_outlive_its_lease() -> None:
    with hub() as h:
        h.receiver.always = None
        h.put(lease_ttl_ms=1000)
        h.create("events/e", b"1")
        h.notice(1)
        h.advance(1)
        view = h.get().subscription
        assert view.status == "failed" and view.wake_id is None
        h.receiver.always = DONE
        h.receiver.release()
        h.advance(2)
        assert h.notice(2)["generation"] == 2
        assert h.get().pending_count == 0


# -- pull-wake


def test_a_wake_event_tells_workers_to_come() -> None:
    with hub() as h:
        h.create("wake")
        h.put_pull()
        h.create("events/e", b"1")
        h.settle()
        assert h.content("wake") == [
            {
                "type": "wake",
                "subscription_id": "s",
                "stream": "events/e",
                "generation": 1,
                "ts": h.clock.now_ms(),
            }
        ]
        h.append("events/e")
        h.settle()
        assert len(h.content("wake")) == 1  # one wake at a time


def test_one_worker_at_a_time_has_the_work() -> None:
    with hub() as h:
        h.create("wake")
        h.put_pull()
        h.create("events/e", b"1")
        claimed = h.claim("w1")
        assert claimed.generation == 1 and claimed.lease_ttl_ms == 30_000
        assert [info.path for info in claimed.streams] == ["events/e"]
        error = refusal(lambda: h.claim("w2"))
        assert error.code is Code.ALREADY_CLAIMED
        assert error.details == {"current_holder": "w1", "generation": 1}
        assert h.ack(claimed).next_wake is False
        assert refused(lambda: h.claim("w2")) is Code.NO_PENDING_WORK


def test_a_heartbeat_keeps_the_claim_and_moves_cursors() -> None:
    with hub() as h:
        h.create("wake")
        h.put_pull()
        h.create("events/e", b"1")
        claimed = h.claim()
        h.advance(29)
        assert h.ack(claimed, done=False).next_wake is False
        assert h.acked("events/e") == claimed.streams[0].tail_offset
        h.advance(29)
        assert h.ack(claimed).ok


def test_a_worker_that_is_not_heard_of_loses_the_work() -> None:
    with hub() as h:
        h.create("wake")
        h.put_pull()
        h.create("events/e", b"1")
        lost = h.claim("w1")
        h.advance(30)
        assert [event["generation"] for event in h.content("wake")] == [1, 2]
        assert refused(lambda: h.ack(lost)) is Code.FENCED
        assert refused(lambda: h.release(lost)) is Code.FENCED
        claimed = h.claim("w2")
        assert claimed.generation == 2
        assert refused(lambda: h.ack(lost)) is Code.FENCED
        assert h.ack(claimed).ok


def test_released_work_is_announced_again() -> None:
    with hub() as h:
        h.create("wake")
        h.put_pull()
        h.create("events/e", b"1")
        claimed = h.claim()
        h.release(claimed)
        h.settle()
        assert [event["generation"] for event in h.content("wake")] == [1, 2]
        assert h.acked("events/e") == ZERO
        assert refused(lambda: h.release(claimed)) is Code.FENCED


def test_a_wake_whose_work_is_gone_does_not_swallow_the_next() -> None:
    with hub() as h:
        h.create("wake")
        h.put_pull()
        h.create("events/e", b"1")
        h.delete("events/e")
        assert refused(h.claim) is Code.NO_PENDING_WORK
        h.create("events/f", b"1")
        h.settle()
        assert [event["stream"] for event in h.content("wake")] == ["events/e", "events/f"]


def test_a_missing_wake_stream_is_tried_again_until_it_is_there() -> None:
    with hub() as h:
        h.put_pull()
        h.create("events/e", b"1")
        h.settle()
        view = h.get().subscription
        assert view.status == "failed" and "wake" in view.last_error
        h.create("wake")
        h.advance(2)
        assert len(h.content("wake")) == 1
        assert h.get().subscription.status == "active"


def test_work_can_be_claimed_without_a_wake_stream() -> None:
    with hub() as h:
        h.put_pull()
        h.create("events/e", b"1")
        h.settle()
        assert h.ack(h.claim()).ok
        h.advance(120)
        assert h.get().subscription.status == "active"


def test_a_wake_that_cannot_be_saved_is_not_delivered() -> None:
    store = FaultyStore()
    with hub(store) as h:
        h.put()
        h.create("events/e")

        def fail_from_now_on(changed: list[Stream]) -> None:
            store.sync_error = DiskError()

        h.runner.engine.observers.append(fail_from_now_on)
        h.append("events/e")
        h.until(lambda: h.runner.engine.committer.failed)
        h.runner.turn(20)
        assert h.notices == 0


def test_wakes_and_deliveries_are_counted() -> None:
    with hub() as h:
        h.put()
        h.receiver.replies.append(reply(500))
        h.create("events/e", b"1")
        h.settle()
        h.advance(1.2)
        figures = h.subscriptions.figures
        assert (figures.wakes, figures.deliveries, figures.failures) == (1, 2, 1)
