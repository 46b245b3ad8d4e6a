"""Bounds on what costs a client little and us something: resets, pings, settings, tiny windows."""

from __future__ import annotations


class Allowance:
    """So many at once, and so many a second after that."""

    __slots__ = ("_left", "_max", "_per_s", "_since_s")

    def __init__(self, allowed_max: int, *, per_s: float) -> None:
        self._max = allowed_max
        self._per_s = per_s
        self._left: float = allowed_max
        self._since_s = -1.0

    def spend(self, now_s: float) -> bool:
        """False if nothing is left."""
        if now_s != self._since_s:
            if self._since_s >= 0:
                refill = self._per_s * (now_s - self._since_s)
                self._left = min(self._max, self._left + refill)
            self._since_s = now_s
        self._left -= 1
        return self._left >= 0

    def earn(self, count: int) -> None:
        self._left = min(self._max, self._left + count)
