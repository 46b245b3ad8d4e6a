"""Read sessions: batch after batch, and then on with whatever is appended. S2 API: read, sessions.

No task per reader: the engine's wake-ups drive it, and what one session rendered serves all that
stand at the same place. A slow client is left alone until it has drained; then the session reads
on from the store. Nothing is skipped but what was trimmed, and no buffer grows.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from headwater.core.errors import DecryptionFailed, OffsetTrimmed
from headwater.core.types import SeqNum
from headwater.dialects.s2.bounds import Batch, Batcher, Bounds
from headwater.dialects.s2.errors import error_response, explain
from headwater.dialects.s2.forms import Form
from headwater.dialects.s2.read import end_of, may_come
from headwater.dialects.s2.responses import tail_of
from headwater.dialects.s2.session import Session
from headwater.dialects.s2.views import show, weigh
from headwater.engine.clock import Timer
from headwater.engine.engine import Engine
from headwater.engine.opening import Opener
from headwater.engine.records import RecordCursor
from headwater.engine.streams import Stream
from headwater.wire.http import Response

log = logging.getLogger("headwater.s2")

HEARTBEAT_S_MIN = 5.0
HEARTBEAT_S_MAX = 15.0
"""Silence after which a heartbeat is sent, by chance in between. Clients give up after 20 s."""
LOOK_AGAIN_S = 1.0
"""When there was no telling yet, because the client is slow."""
TIMER_SLACK_S = 0.001
"""A timer may come early by less than its clock can say."""


class Rendered(NamedTuple):
    """A batch, and what its form makes of it."""

    batch: Batch
    data: bytes


class ReadSession(Session):
    """One reader."""

    __slots__ = (
        "_bounds",
        "_followed",
        "_form",
        "_next",
        "_opener",
        "_quiet_until_s",
        "_scheduled",
        "_stream",
        "_timer",
        "_wait_s",
        "_wait_until_s",
    )

    def __init__(
        self,
        engine: Engine,
        stream: Stream,
        first: SeqNum,
        bounds: Bounds,
        wait_s: float | None,
        form: Form,
        opener: Opener | None = None,
    ) -> None:
        """`wait_s` is how long it may stay at the tail without a record; None is for ever."""
        super().__init__(engine)
        self._stream = stream
        self._next = first
        self._bounds = bounds
        self._wait_s = wait_s
        self._form = form
        self._opener = opener
        self._scheduled = False
        """It goes on at the next turn of the loop."""
        self._followed = False
        """It has been at the tail."""
        self._quiet_until_s = self._wait_until_s = 0.0
        self._timer: Timer | None = None

    def _begin(self) -> None:
        self._engine.follow(self._stream, self._woken)
        self._engine.tally.read(self._stream.state.bucket, 0, streaming=True)
        self._go_on({})

    # -- what makes it go on

    def _woken(self, stream: Stream, shared: dict[Any, Any]) -> None:
        if not self._slow and not self._scheduled:
            self._go_on(shared)

    def _resume(self) -> None:
        if not self._scheduled:
            self._go_on({})

    def _next_turn(self) -> None:
        self._scheduled = False
        if not self._slow:
            self._go_on({})

    def _go_on(self, shared: dict[Any, Any]) -> None:
        """Write what there is: up to the tail, or a step of it, or as much as the client takes."""
        if self._writer is None:
            return
        try:
            self._take_step(shared)
        except Exception as error:
            self._fail(explain(error, log))

    def _take_step(self, shared: dict[Any, Any]) -> None:
        stream = self._stream
        gone = end_of(stream)
        if gone is not None:
            raise gone
        self._next = max(self._next, stream.state.first_seq)
        if self._next < stream.tail.seq and not self._bounds.reached:
            self._write_records(stream, shared)
        if self._bounds.reached:
            self._finish()
        elif self._slow:
            return
        elif self._next < stream.tail.seq:
            # Catching up: let others have their turn.
            self._scheduled = True
            self._engine.loop.call_soon(self._next_turn)
        else:
            self._rest()

    # -- records

    def _write_records(self, stream: Stream, shared: dict[Any, Any]) -> None:
        self._engine.touch(stream)
        if not self._bounds.unlimited or self._opener is not None:
            found = self._read(stream)  # for nobody else
        else:
            key = (ReadSession, self._form.key, self._next)
            cached = shared.get(key)
            found = shared[key] = self._read(stream) if cached is None else cached
        if found:
            self._next = SeqNum(found[-1].batch.end)
            self._write(b"".join([self._form.deliver(data, batch) for batch, data in found]))
            size = sum(batch.size for batch, _ in found)
            self._engine.tally.read(stream.state.bucket, size, streaming=True, requests=0)
            self._wait_until_s = self._engine.clock.monotonic_s() + (self._wait_s or 0.0)

    def _read(self, stream: Stream) -> list[Rendered]:
        """The batches of one step. The last has the tail, if it reaches it."""
        batcher = Batcher(self._bounds)
        batches: list[Batch] = []
        try:
            end = self._bounds.end_by_count(self._next, stream.tail.seq)
            cursor = RecordCursor(self._engine.shard, stream, self._next, end, self._opener)
            for span in cursor.step():
                batches += batcher.add(show(span))
        except OffsetTrimmed as error:
            self._next = error.first.seq
            return []
        except DecryptionFailed:
            if not batcher.ends_before(*weigh(self._engine.shard, stream, self._next)):
                raise
            self._bounds.reached = True
            return []
        rest = batcher.rest()
        if rest is not None:
            batches.append(rest)
        tail = tail_of(self._engine.shard, stream)
        return [
            Rendered(batch, self._form.render(batch, tail if batch.end >= tail.seq else None))
            for batch in batches
        ]

    # -- at the tail

    def _rest(self) -> None:
        """Everything has been sent: wait for more, or be done."""
        if self._wait_s == 0 or not may_come(self._stream, self._bounds):
            self._finish()
            return
        now_s = self._engine.clock.monotonic_s()
        if self._followed:
            self._quiet_until_s = now_s + self._silence_s()
            return
        self._followed = True
        self._wait_until_s = now_s + (self._wait_s or 0.0)
        self._beat(now_s)
        self._arm(now_s)

    def _beat(self, now_s: float) -> None:
        engine = self._engine
        self._quiet_until_s = now_s + self._silence_s()
        engine.touch(self._stream)
        tail = tail_of(engine.shard, self._stream)
        self._write(self._form.heartbeat(tail, engine.clock.now_ms()))

    def _silence_s(self) -> float:
        chance = self._engine.clock.random_fraction()
        return HEARTBEAT_S_MIN + chance * (HEARTBEAT_S_MAX - HEARTBEAT_S_MIN)

    def _arm(self, now_s: float) -> None:
        """One timer for both: no batch moves it, it looks again when it is due."""
        due_s = self._quiet_until_s
        if self._wait_s is not None:
            due_s = min(due_s, self._wait_until_s)
        delay_s = due_s - now_s if due_s > now_s else LOOK_AGAIN_S
        self._timer = self._engine.clock.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        now_s = self._engine.clock.monotonic_s()
        if not self._slow and self._next >= self._stream.tail.seq:
            due_s = now_s + TIMER_SLACK_S
            if self._wait_s is not None and due_s >= self._wait_until_s:
                self._finish()
                return
            if due_s >= self._quiet_until_s:
                self._beat(now_s)
        self._arm(now_s)

    # -- the end

    def _advise(self) -> None:
        tail, now_ms = tail_of(self._engine.shard, self._stream), self._engine.clock.now_ms()
        advice = self._form.advise(tail, now_ms)
        if not self._slow:
            self._write(advice)

    def _end_drained(self) -> None:
        self._fail(error_response("server_draining", "the server is stopping; read on elsewhere"))

    def _finish(self) -> None:
        self._end_with(self._form.end())

    def _fail(self, error: Response) -> None:
        self._end_with(self._form.fail(error))

    def _release(self) -> None:
        self._engine.unfollow(self._stream, self._woken)
        if self._timer is not None:
            self._timer.cancel()
