"""Long work in steps, and answers that follow one another."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from headwater.core.errors import InvalidRequest
from headwater.core.pending import Pending
from headwater.engine.steps import begin, drive, follow
from tests.support.engines import EngineRunner


@pytest.fixture
def runner() -> Iterator[EngineRunner]:
    with EngineRunner() as runner:
        yield runner


def steps(taken: list[int], *, fails: bool = False) -> Generator[None, None, str]:
    for number in range(100):
        taken.append(number)
        yield
    if fails:
        raise InvalidRequest("no")
    return "done"


def test_others_run_between_two_steps(runner: EngineRunner) -> None:
    taken: list[int] = []
    seen: list[int] = []

    def look() -> None:
        seen.append(len(taken))
        if len(taken) < 100:
            runner.loop.call_soon(look)

    runner.loop.call_soon(look)
    assert runner.result(drive(runner.loop, steps(taken))) == "done"
    assert len(set(seen)) >= 100


def test_a_step_that_fails_is_the_answer(runner: EngineRunner) -> None:
    with pytest.raises(InvalidRequest):
        runner.result(drive(runner.loop, steps([], fails=True)))


def test_nothing_more_is_done_when_nobody_waits(runner: EngineRunner) -> None:
    taken: list[int] = []
    answer = drive(runner.loop, steps(taken))
    answer.deliver(lambda outcome: pytest.fail("answered"))
    runner.turn(3)
    answer.cancel()
    count = len(taken)
    runner.turn(10)
    assert 0 < len(taken) == count < 100


def test_a_scan_that_was_begun_has_its_first_entry_already() -> None:
    taken: list[int] = []

    def entries() -> Iterator[int]:
        for number in range(3):
            taken.append(number)
            yield number

    found = begin(entries())
    assert taken == [0]
    assert list(found) == [0, 1, 2]
    assert list(begin(iter(()))) == []


@pytest.mark.parametrize("first_waits", [False, True])
@pytest.mark.parametrize("second_waits", [False, True])
def test_one_answer_follows_another(first_waits: bool, second_waits: bool) -> None:
    first: Pending[int] = Pending()
    second: Pending[str] = Pending()

    def then(number: int) -> str | Pending[str]:
        assert number == 7
        return second if second_waits else "done"

    answer = follow(first if first_waits else 7, then)
    first.resolve(7)
    second.resolve("done")
    outcomes: list[object] = []
    if isinstance(answer, Pending):
        answer.deliver(outcomes.append)
    else:
        outcomes.append(answer)
    assert outcomes == ["done"]


def test_a_failure_anywhere_is_the_answer() -> None:
    problem = InvalidRequest("no")

    def refuse(_: int) -> str:
        raise problem

    for fail in range(3):
        first: Pending[int] = Pending()
        second: Pending[str] = Pending()
        answer = follow(first, refuse if fail == 1 else lambda _: second)  # noqa: B023
        outcomes: list[object] = []
        assert isinstance(answer, Pending)
        answer.deliver(outcomes.append)
        if fail == 0:
            first.fail(problem)
        first.resolve(7)
        second.fail(problem)
        assert outcomes == [problem]


@pytest.mark.parametrize("arrived", [False, True])
def test_whoever_is_waited_for_hears_that_nobody_waits(arrived: bool) -> None:
    cancelled: list[str] = []
    first: Pending[int] = Pending()
    second: Pending[str] = Pending()
    first.on_cancel(lambda: cancelled.append("first"))
    second.on_cancel(lambda: cancelled.append("second"))

    def then(_: int) -> str | Pending[str]:
        return second

    answer = follow(first, then)
    assert isinstance(answer, Pending)
    if arrived:
        first.resolve(1)
    answer.cancel()
    assert cancelled == ["second" if arrived else "first"]
