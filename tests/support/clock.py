"""FakeClock: time that stands still until a test moves it, and chance that never surprises."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from headwater.core.types import TimestampMs

START_MS = 1_700_000_000_000


class FakeTimer:
    """A call that `FakeClock.advance` makes when its time has come."""

    def __init__(self, at_us: int, call: Callable[[], None]) -> None:
        self.at_us = at_us
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """A Clock that stands still. Counts in microseconds, so that nothing is rounded."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_us = now_ms * 1000
        self._timers: list[FakeTimer] = []
        self._draws = 0

    def now_ms(self) -> TimestampMs:
        return TimestampMs(self._now_us // 1000)

    def monotonic_s(self) -> float:
        return (self._now_us - START_MS * 1000) / 1e6

    def call_later(self, delay_s: float, call: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self._now_us + round(max(delay_s, 0.0) * 1e6), call)
        self._timers.append(timer)
        return timer

    @property
    def timers(self) -> int:
        """Calls that are still to come."""
        return sum(1 for timer in self._timers if not timer.cancelled)

    def advance(self, seconds: float) -> None:
        """Let time pass and make the calls that fall due, each at its own moment."""
        until_us = self._now_us + round(seconds * 1e6)
        while True:
            self._timers = [timer for timer in self._timers if not timer.cancelled]
            due = [timer for timer in self._timers if timer.at_us <= until_us]
            if not due:
                break
            timer = min(due, key=lambda candidate: candidate.at_us)
            self._timers.remove(timer)
            self._now_us = max(self._now_us, timer.at_us)
            timer.call()
        self._now_us = until_us

    def random_bytes(self, count: int) -> bytes:
        drawn = b""
        while len(drawn) < count:
            self._draws += 1
            drawn += hashlib.sha256(b"fake clock %d" % self._draws).digest()
        return drawn[:count]

    def random_fraction(self) -> float:
        return int.from_bytes(self.random_bytes(6), "big") / 2**48
