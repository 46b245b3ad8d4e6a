"""How busy the server was in the last minutes: one sample a second, in a ring."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from headwater.core.types import TimestampMs
from headwater.engine.clock import Timer
from headwater.engine.engine import Engine

INTERVAL_S = 1.0
SAMPLES_MAX = 600


class Served(NamedTuple):
    """What only the HTTP server knows."""

    connections: int = 0
    requests: int = 0
    response_bytes: int = 0


class Totals(NamedTuple):
    """Counts since the server started."""

    appends: int
    append_bytes: int
    commits: int
    commit_seconds: float
    commands: int
    syncs: int
    sync_seconds: float
    requests: int
    response_bytes: int


class Gauges(NamedTuple):
    """How things stand."""

    followers: int
    connections: int
    queue_commands: int
    queue_bytes: int
    hot_streams: int
    packing_debt_runs: int


class Sample(NamedTuple):
    """One second: rates over it, and the gauges at its end."""

    at_ms: TimestampMs
    appends_per_s: float
    append_bytes_per_s: float
    commits_per_s: float
    commit_ms: float | None
    """The mean; None when there was no commit."""
    sync_ms: float | None
    requests_per_s: float
    response_bytes_per_s: float
    gauges: Gauges


class Stats:
    """Samples while it runs. Costs nothing between two samples."""

    def __init__(self, engine: Engine, served: Callable[[], Served] = Served) -> None:
        self.started_at_ms = engine.clock.now_ms()
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._engine = engine
        self._served = served
        self._last = self.totals()
        self._last_s = engine.clock.monotonic_s()
        self._timer: Timer | None = None

    def start(self) -> None:
        self._timer = self._engine.clock.call_later(INTERVAL_S, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def totals(self) -> Totals:
        shard, figures, served = self._engine.shard, self._engine.committer.figures, self._served()
        return Totals(
            shard.appends_total,
            shard.append_bytes_total,
            figures.commits,
            figures.seconds,
            figures.commands,
            figures.syncs,
            figures.sync_seconds,
            served.requests,
            served.response_bytes,
        )

    def gauges(self) -> Gauges:
        engine = self._engine
        return Gauges(
            engine.followers,
            self._served().connections,
            engine.committer.queue_commands,
            engine.committer.queue_bytes,
            engine.shard.hot_streams(),
            engine.packer.debt_runs,
        )

    def _tick(self) -> None:
        self._timer = self._engine.clock.call_later(INTERVAL_S, self._tick)
        now, now_s = self.totals(), self._engine.clock.monotonic_s()
        last, elapsed_s = self._last, max(now_s - self._last_s, 1e-3)
        self._last, self._last_s = now, now_s
        self.samples.append(
            Sample(
                self._engine.clock.now_ms(),
                (now.appends - last.appends) / elapsed_s,
                (now.append_bytes - last.append_bytes) / elapsed_s,
                (now.commits - last.commits) / elapsed_s,
                _mean_ms(now.commit_seconds - last.commit_seconds, now.commits - last.commits),
                _mean_ms(now.sync_seconds - last.sync_seconds, now.syncs - last.syncs),
                (now.requests - last.requests) / elapsed_s,
                (now.response_bytes - last.response_bytes) / elapsed_s,
                self.gauges(),
            )
        )


def _mean_ms(seconds: float, count: int) -> float | None:
    return seconds / count * 1000 if count else None
