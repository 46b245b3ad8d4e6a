"""Pending: completed once, consumed once, changed on the way."""

from __future__ import annotations

import pytest

from headwater.core.pending import Pending


def test_a_value_reaches_the_consumer_that_waits() -> None:
    got: list[object] = []
    pending: Pending[int] = Pending()
    pending.deliver(got.append)
    assert got == [] and not pending.done
    pending.resolve(1)
    assert got == [1] and pending.done


def test_a_value_that_is_there_already_reaches_the_consumer_at_once() -> None:
    got: list[object] = []
    pending: Pending[int] = Pending()
    pending.resolve(1)
    pending.deliver(got.append)
    assert got == [1]


def test_only_the_first_outcome_counts() -> None:
    got: list[object] = []
    pending: Pending[int] = Pending()
    pending.deliver(got.append)
    pending.resolve(1)
    pending.resolve(2)
    pending.fail(ValueError())
    assert got == [1]


def test_steps_are_applied_in_order_and_failures_can_be_caught() -> None:
    def breaks(value: int) -> int:
        raise ValueError(value)

    got: list[object] = []
    pending: Pending[int] = Pending()
    steps = pending.then(lambda value: value + 1).catch(lambda _: -1).then(breaks)
    steps.catch(lambda error: int(str(error)) * 10).then(str).deliver(got.append)
    pending.resolve(1)
    assert got == ["20"]


def test_a_failure_nobody_catches_is_delivered_as_the_exception() -> None:
    got: list[object] = []
    pending: Pending[int] = Pending()
    error = ValueError("x")
    pending.then(lambda value: value + 1).deliver(got.append)
    pending.fail(error)
    assert got == [error]


def test_a_consumer_that_is_gone_gets_nothing_and_the_source_is_told() -> None:
    got: list[object] = []
    told: list[bool] = []
    pending: Pending[int] = Pending()
    pending.on_cancel(lambda: told.append(True))
    pending.deliver(got.append)
    pending.cancel()
    pending.resolve(1)
    assert got == [] and told == [True]


def test_the_source_is_told_to_hurry_until_it_is_done() -> None:
    pending = Pending[int]()
    pending.hurry()
    told: list[str] = []
    pending.on_hurry(lambda: told.append("hurry"))
    pending.hurry()
    pending.resolve(1)
    pending.hurry()
    assert told == ["hurry"]


def test_cancelling_what_is_done_tells_nobody() -> None:
    told: list[bool] = []
    pending: Pending[int] = Pending()
    pending.on_cancel(lambda: told.append(True))
    pending.resolve(1)
    pending.cancel()
    assert told == []


def test_what_the_consumer_raises_goes_to_whoever_completed_it() -> None:
    def broken(_: object) -> None:
        raise OSError("gone")

    pending: Pending[int] = Pending()
    pending.deliver(broken)
    with pytest.raises(OSError, match="gone"):
        pending.resolve(1)
