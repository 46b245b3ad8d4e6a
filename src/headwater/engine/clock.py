"""The only code that reads time or makes random values. Tests use a clock they move by hand."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from typing import Protocol

from headwater.core.types import TimestampMs


class Timer(Protocol):
    """A call that has not happened yet."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Wall time for what is stored, timers for what happens later, and randomness."""

    def now_ms(self) -> TimestampMs:
        """Milliseconds since 1970. Never goes back while the process runs."""

    def monotonic_s(self) -> float:
        """Seconds for measuring how long something took."""

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer: ...

    def random_bytes(self, count: int) -> bytes:
        """Unguessable bytes, for keys, tokens and ids."""

    def random_fraction(self) -> float:
        """A number in [0, 1) for jitter."""


class SystemClock:
    """Real time, on the running event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last_ms = 0
        self.monotonic_s = time.monotonic

    def now_ms(self) -> TimestampMs:
        # Record times must not decrease, so neither may we when the system clock is set back.
        now = time.time_ns() // 1_000_000
        if now > self._last_ms:
            self._last_ms = now
        return TimestampMs(self._last_ms)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_s, call)

    def random_bytes(self, count: int) -> bytes:
        return secrets.token_bytes(count)

    def random_fraction(self) -> float:
        return random.random()
