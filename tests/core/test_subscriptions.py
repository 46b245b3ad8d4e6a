"""Wakes, generations, leases and cursors of one subscription."""

from __future__ import annotations

import msgspec
import pytest

from headwater.core import subscriptions as rules
from headwater.core.subscription_config import AckBody, Code, Config, SubscriptionError
from headwater.core.subscription_links import Link, LinkSet
from headwater.core.subscriptions import Subscription
from headwater.core.types import Position, TimestampMs
from tests.support.builders import position

T0 = TimestampMs(1_700_000_000_000)
CONFIG = Config("webhook", "events/*", ("a",), "https://w.example/", None, 30_000, "d")


def later(milliseconds: int) -> TimestampMs:
    return TimestampMs(T0 + milliseconds)


def subscription(config: Config = CONFIG) -> Subscription:
    return rules.new_subscription(
        config, bucket="b", subscription_id="s", uid="u", root_url="http://h/v1/stream", at_ms=T0
    )


def woken(config: Config = CONFIG) -> Subscription:
    found = subscription(config)
    rules.begin_wake(found, "w_1", T0)
    return found


def code_of(caught: pytest.ExceptionInfo[SubscriptionError]) -> Code:
    return caught.value.code


def test_a_new_subscription_is_idle() -> None:
    found = subscription()
    assert (found.generation, found.wake_id, found.status) == (0, None, "active")
    assert found.key == "b/s"
    assert rules.may_wake(found, T0)
    assert not rules.is_due(found, T0)


def test_a_subscription_is_on_disk_what_it_was_in_memory() -> None:
    found = woken()
    rules.note_failed(found, T0, error="e", chance=0.5)
    rules.extend_lease(found, T0)
    assert rules.decode(rules.encode(found)) == found


def test_a_repeated_put_is_accepted_only_unchanged() -> None:
    found = subscription()
    rules.judge_existing(found, CONFIG)
    with pytest.raises(SubscriptionError) as caught:
        rules.judge_existing(found, msgspec.structs.replace(CONFIG, lease_ttl_ms=1000))
    assert code_of(caught) is Code.SUBSCRIPTION_ALREADY_EXISTS


# -- wakes


def test_every_wake_is_a_new_generation_and_there_is_one_at_a_time() -> None:
    found = woken()
    assert (found.generation, found.wake_id) == (1, "w_1")
    assert not rules.may_wake(found, T0)
    assert rules.is_due(found, T0)
    rules.end_wake(found)
    rules.begin_wake(found, "w_2", T0)
    assert (found.generation, found.wake_id) == (2, "w_2")


def test_a_delivered_wake_is_not_due_again() -> None:
    found = woken()
    rules.note_delivered(found)
    assert not rules.is_due(found, later(10**9))
    assert not rules.may_wake(found, later(10**9))


@pytest.mark.parametrize(
    ("attempts", "base_ms"),
    [(1, 1000), (2, 2000), (3, 4000), (6, 32_000), (7, 60_000), (8, 60_000), (10_000, 60_000)],
)
def test_retries_come_after_a_second_then_twice_as_long_up_to_a_minute(
    attempts: int, base_ms: int
) -> None:
    assert rules.backoff_ms(attempts, 0.5) == base_ms
    assert rules.backoff_ms(attempts, 0.0) == base_ms * 0.8
    assert rules.backoff_ms(attempts, 1.0) == base_ms * 1.2


def test_a_failed_delivery_is_due_again_later_and_shows() -> None:
    found = woken()
    rules.note_failed(found, T0, error="x" * 1000, chance=0.5)
    assert found.status == "failed"
    assert found.next_attempt_at_ms == T0 + 1000
    assert len(found.last_error) == rules.ERROR_CHARACTERS_MAX
    assert not rules.is_due(found, later(999))
    assert rules.is_due(found, later(1000))
    rules.note_failed(found, later(1000), error="x", chance=0.5)
    assert found.next_attempt_at_ms == T0 + 3000
    rules.note_delivered(found)
    assert (found.status, found.attempts, found.last_error) == ("active", 0, "")


# -- leases


def test_a_lease_ends_its_wake() -> None:
    found = woken()
    rules.note_delivered(found)
    rules.extend_lease(found, T0)
    assert not rules.expire_lease(found, later(29_999))
    assert rules.expire_lease(found, later(30_000))
    assert (found.wake_id, found.holder, found.lease_until_ms) == (None, None, None)
    assert rules.may_wake(found, later(30_000))
    assert not rules.expire_lease(found, later(10**9))


def test_a_lease_that_ends_while_a_retry_is_scheduled_does_not_bring_it_forward() -> None:
    found = woken(msgspec.structs.replace(CONFIG, lease_ttl_ms=1000))
    rules.extend_lease(found, T0)
    found.attempts = 3
    rules.note_failed(found, T0, error="x", chance=0.5)
    assert rules.expire_lease(found, later(1000))
    assert found.wake_id is None
    assert not rules.may_wake(found, later(7999))
    assert rules.may_wake(found, later(8000))
    rules.begin_wake(found, "w_2", later(8000))
    assert (found.generation, found.attempts) == (2, 4)


def test_after_a_restart_times_stay_as_they_were() -> None:
    found = woken()
    rules.extend_lease(found, T0)
    rules.note_failed(found, T0, error="x", chance=0.5)
    rules.resume(found, later(100))
    assert (found.next_attempt_at_ms, found.lease_until_ms) == (T0 + 1000, T0 + 30_000)


def test_after_a_restart_with_the_clock_set_back_nothing_waits_for_ever() -> None:
    found = woken()
    rules.extend_lease(found, later(10**10))
    rules.note_failed(found, later(10**10), error="x", chance=0.5)
    rules.resume(found, T0)
    assert found.next_attempt_at_ms == T0 + 72_000
    assert found.lease_until_ms == T0 + 30_000
    idle = subscription()
    rules.resume(idle, T0)
    assert (idle.next_attempt_at_ms, idle.lease_until_ms) == (None, None)


# -- claims


def test_a_claim_holds_until_its_lease_ends() -> None:
    found = woken()
    rules.judge_claim(found, pending=True)
    rules.claim(found, "w1", T0)
    assert (found.holder, found.lease_until_ms, found.next_attempt_at_ms) == (
        "w1",
        T0 + 30_000,
        None,
    )
    with pytest.raises(SubscriptionError) as caught:
        rules.judge_claim(found, pending=True)
    assert code_of(caught) is Code.ALREADY_CLAIMED
    assert caught.value.details == {"current_holder": "w1", "generation": 1}


def test_there_is_nothing_to_claim_without_work() -> None:
    with pytest.raises(SubscriptionError) as caught:
        rules.judge_claim(woken(), pending=False)
    assert code_of(caught) is Code.NO_PENDING_WORK


def test_the_types_have_ways_of_their_own() -> None:
    rules.judge_type(subscription(), "webhook")
    with pytest.raises(SubscriptionError) as caught:
        rules.judge_type(subscription(), "pull-wake")
    assert code_of(caught) is Code.INVALID_REQUEST


# -- fencing


@pytest.mark.parametrize(
    ("wake_id", "generation", "token_generation", "passes"),
    [
        pytest.param("w_2", 2, 2, True, id="all current"),
        pytest.param("w_1", 2, 2, False, id="another wake"),
        pytest.param("w_2", 1, 2, False, id="another generation"),
        pytest.param("w_2", 2, 1, False, id="a token of another generation"),
        pytest.param(None, 2, 2, False, id="no wake named"),
        pytest.param("w_2", None, 2, False, id="no generation named"),
    ],
)
def test_only_the_current_wake_may_speak(
    wake_id: str | None, generation: int | None, token_generation: int, passes: bool
) -> None:
    found = woken()
    rules.end_wake(found)
    rules.begin_wake(found, "w_2", T0)
    body = AckBody(wake_id=wake_id, generation=generation)
    if passes:
        rules.judge_fence(found, body, token_generation=token_generation)
        return
    with pytest.raises(SubscriptionError) as caught:
        rules.judge_fence(found, body, token_generation=token_generation)
    assert code_of(caught) is Code.FENCED


def test_when_no_wake_is_current_nobody_may_speak_not_even_without_naming_one() -> None:
    found = woken()
    rules.end_wake(found)
    with pytest.raises(SubscriptionError) as caught:
        rules.judge_fence(found, AckBody(wake_id=None, generation=1), token_generation=1)
    assert code_of(caught) is Code.FENCED


# -- acks


def links() -> LinkSet:
    """`a` is processed up to record 2 of 5, `b` up to 0 of 1; every record has ten bytes."""
    found = LinkSet()
    found.put("a", Link(acked=position(2, 20), tail=position(5, 50)))
    found.put("b", Link(acked=position(0, 0), tail=position(1, 10)))
    return found


@pytest.mark.parametrize(
    "acks",
    [
        pytest.param([("a", position(2, 20))], id="where it is"),
        pytest.param([("a", position(3, 30))], id="between"),
        pytest.param([("a", position(5, 50))], id="the tail"),
        pytest.param([("a", position(3, 30)), ("a", position(4, 40))], id="step by step"),
        pytest.param([("a", position(5, 50)), ("b", position(1, 10))], id="several"),
        pytest.param([], id="none"),
    ],
)
def test_acks_move_cursors_forward(acks: list[tuple[str, Position | None]]) -> None:
    moves = rules.judge_acks(links(), acks)
    assert moves == dict(acks)


@pytest.mark.parametrize(
    "ack",
    [
        pytest.param(("c", position(0, 0)), id="unknown stream"),
        pytest.param(("a", None), id="no position"),
        pytest.param(("a", position(1, 10)), id="backwards"),
        pytest.param(("a", position(6, 60)), id="past the tail"),
        pytest.param(("a", position(5, 49)), id="not the tail's bytes"),
        pytest.param(("a", position(4, 51)), id="bytes past the tail"),
    ],
)
def test_one_wrong_ack_refuses_all(ack: tuple[str, Position | None]) -> None:
    found = links()
    with pytest.raises(SubscriptionError) as caught:
        rules.judge_acks(found, [("b", position(1, 10)), ack])
    assert code_of(caught) is Code.INVALID_OFFSET
    assert caught.value.details == {"stream": ack[0]}
    link = found.get("b")
    assert link is not None and link.acked == position(0, 0)


@pytest.mark.parametrize(
    ("given", "name"),
    [("/a", "a"), ("a/", "a"), ("b/", "b/"), ("/b/", "b")],
    ids=["before", "after", "its own", "not its own"],
)
def test_slashes_around_a_name_mean_nothing_unless_they_are_its_own(given: str, name: str) -> None:
    found = links()
    found.put("b/", Link(acked=position(0, 0), tail=position(1, 10)))
    link = found.get(name)
    assert link is not None
    assert rules.judge_acks(found, [(given, link.tail)]) == {name: link.tail}


def test_acks_of_one_request_may_not_go_backwards_either() -> None:
    with pytest.raises(SubscriptionError):
        rules.judge_acks(links(), [("a", position(4, 40)), ("a", position(3, 30))])
