"""`Stream-Cursor`: lets caches answer many waiting readers with one upstream request.

A cursor is the number of 20 s intervals since a fixed day. A reader that already has the current
one gets a later one, with jitter, so that a cached answer can never loop. PROTOCOL §10.
"""

from __future__ import annotations

import math
import re

from headwater.core.types import TimestampMs

EPOCH_MS = 1_728_432_000_000
"""2024-10-09T00:00:00Z."""
INTERVAL_MS = 20_000
JITTER_S_MAX = 3600
_CURSOR = re.compile(r"[0-9]{1,15}\Z")


def current(now_ms: TimestampMs) -> int:
    return max(0, now_ms - EPOCH_MS) // INTERVAL_MS


def parse(text: str | None) -> int | None:
    """What a client echoed; None when it is nothing we could have sent."""
    if text is None or not _CURSOR.match(text):
        return None
    return int(text)


def following(client: int | None, now_ms: TimestampMs, fraction: float) -> int:
    """The cursor for a reader that sent `client`. Never at or behind it."""
    now = current(now_ms)
    if client is None or client < now:
        return now
    jitter_s = 1 + fraction * (JITTER_S_MAX - 1)
    return client + max(1, math.ceil(jitter_s * 1000 / INTERVAL_MS))
