"""Long work on the loop, in steps: a generator that yields wherever others may have their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from itertools import chain, islice
from typing import TypeVar

from headwater.core.pending import Pending

T = TypeVar("T")
U = TypeVar("U")


def drive(loop: asyncio.AbstractEventLoop, steps: Generator[None, None, T]) -> Pending[T]:
    """Take the steps, one a turn of the loop. Nothing more happens once nobody waits for them."""
    answer: Pending[T] = Pending()

    def step() -> None:
        try:
            next(steps)
        except StopIteration as stop:
            answer.resolve(stop.value)
        except Exception as error:
            answer.fail(error)
        else:
            loop.call_soon(step)

    answer.on_cancel(steps.close)
    loop.call_soon(step)
    return answer


def run(loop: asyncio.AbstractEventLoop, steps: Generator[None, None, T]) -> T | Pending[T]:
    """Take the first step now; there is a value at once when it is the only one."""
    try:
        next(steps)
    except StopIteration as stop:
        found: T = stop.value
        return found
    return drive(loop, steps)


def begin(entries: Iterator[T]) -> Iterator[T]:
    """The same, with its first entry taken: a scan sees the store as it is at that moment."""
    return chain(list(islice(entries, 1)), entries)


def follow(first: T | Pending[T], then: Callable[[T], U | Pending[U]]) -> U | Pending[U]:
    """What `then` makes of a value; both may be there or still to come."""
    if not isinstance(first, Pending):
        return then(first)
    answer: Pending[U] = Pending()

    def arrived(outcome: T | Exception) -> None:
        if isinstance(outcome, Exception):
            answer.fail(outcome)
            return
        try:
            second = then(outcome)
        except Exception as error:
            answer.fail(error)
            return
        if isinstance(second, Pending):
            answer.on_cancel(second.cancel)
            answer.on_hurry(second.hurry)
            second.deliver(answer.complete)
        else:
            answer.resolve(second)

    answer.on_cancel(first.cancel)
    first.deliver(arrived)
    return answer
