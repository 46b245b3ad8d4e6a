"""A value that a later event completes: an answer that waits for its commit, or for data.

Not a future: no event loop, no task, one consumer. The hot path makes one of these per request,
hands it to the HTTP connection, and the commit that makes the answer true completes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Pending(Generic[T]):
    """Completed once, by `resolve`, `fail` or `complete`; consumed once, by `deliver`.

    `then` and `catch` change what the consumer gets. They are applied in the order they were
    attached, and must be attached before `deliver`.
    """

    __slots__ = ("_cancel", "_done", "_failed", "_hurry", "_outcome", "_sink", "_steps")

    def __init__(self) -> None:
        self._steps: list[tuple[bool, Callable[[Any], Any]]] = []
        self._sink: Callable[[Any], None] | None = None
        self._cancel: Callable[[], None] | None = None
        self._hurry: Callable[[], None] | None = None
        self._outcome: Any = None
        self._failed = False
        self._done = False

    @property
    def done(self) -> bool:
        return self._done

    def then(self, step: Callable[[T], U]) -> Pending[U]:
        """Transform the value. An exception raised by `step` becomes the failure."""
        self._steps.append((False, step))
        return self  # type: ignore[return-value]

    def catch(self, step: Callable[[Exception], T]) -> Pending[T]:
        """Turn a failure into a value."""
        self._steps.append((True, step))
        return self

    def on_cancel(self, cancel: Callable[[], None]) -> None:
        """Call `cancel` when the consumer goes away before the value is there."""
        self._cancel = cancel

    def on_hurry(self, hurry: Callable[[], None]) -> None:
        """Call `hurry` when the consumer had better get the value it can have now."""
        self._hurry = hurry

    def resolve(self, value: T) -> None:
        if not self._done:
            self._done = True
            self._outcome = value
            self._settle()

    def fail(self, error: Exception) -> None:
        if not self._done:
            self._done = True
            self._failed = True
            self._outcome = error
            self._settle()

    def complete(self, outcome: T | Exception) -> None:
        """With what another one delivered: the value, or the exception nobody caught."""
        if isinstance(outcome, Exception):
            self.fail(outcome)
        else:
            self.resolve(outcome)

    def deliver(self, sink: Callable[[T | Exception], None]) -> None:
        """Give the outcome to `sink`: the value, or the exception nobody caught."""
        self._sink = sink
        if self._done:
            self._settle()

    def cancel(self) -> None:
        """The consumer is gone. Whatever was submitted stays submitted."""
        self._sink = None
        if self._cancel is not None and not self._done:
            self._cancel()

    def hurry(self) -> None:
        """Wait no longer for what may never come. Without `on_hurry` it changes nothing."""
        if self._hurry is not None and not self._done:
            self._hurry()

    def _settle(self) -> None:
        sink = self._sink
        if sink is None:
            return
        self._sink = None
        outcome, failed = self._outcome, self._failed
        # What is delivered is not ours to keep: a cycle elsewhere would hold on to whole bodies.
        self._outcome = self._cancel = self._hurry = None
        for catches, step in self._steps:
            if catches is not failed:
                continue
            try:
                outcome, failed = step(outcome), False
            except Exception as error:
                outcome, failed = error, True
        sink(outcome)
