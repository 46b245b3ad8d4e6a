"""Live reads: long-poll and SSE. PROTOCOL §5.7, §5.8.

No task per reader: an engine wake-up calls each follower, and what one of them rendered serves all
that stand at the same place. A slow reader is left alone until it has drained, then it reads on
from the store: it never grows a buffer and never skips.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headwater.core import jsonmode
from headwater.core.errors import DecryptionFailed, HeadwaterError, StreamGone, StreamNotFound
from headwater.core.limits import KIB, MIB
from headwater.core.pending import Pending
from headwater.core.types import Position
from headwater.engine.clock import Timer
from headwater.engine.engine import Engine
from headwater.engine.opening import Opener
from headwater.engine.reader import Slice
from headwater.engine.streams import Stream
from headwater.wire import cursors, offsets, sse
from headwater.wire.http import BodyWriter, Header, Response

log = logging.getLogger("headwater.durable")

EVENT_BYTES = 256 * KIB
"""Body bytes of one SSE data event, unless a single message is larger."""
SEALED_EVENT_BYTES = 32 * KIB
"""The same of an encrypted stream, whose records take time to open."""
TEXT_EVENT_BYTES_MAX = 64 * MIB
"""How far one event of text is stretched to end between two characters."""
STEPS_BACK_MAX = 64
"""Offsets tried, from the last one back, for one that is not inside a character."""
TICK_S = 1.0


class LongPoll:
    """One waiting reader. Completes `answer` with data, with the timeout, or with an error."""

    __slots__ = ("_engine", "_render", "_stream", "_timer", "_waiting", "answer", "position")

    def __init__(
        self,
        engine: Engine,
        stream: Stream,
        position: Position,
        timeout_s: float,
        render: Callable[[Stream, Position, bool], Response],
        waiting: set[LongPoll],
        *,
        renews: bool = True,
    ) -> None:
        """`render` is called with True when the time is up and there is nothing to tell.

        The reader is in `waiting` for as long as it waits; with `renews` it keeps a sliding TTL
        from running out.
        """
        self.position = position
        self.answer: Pending[Response] = Pending()
        self.answer.on_cancel(self._stop)
        self.answer.on_hurry(self.time_out)
        self._engine = engine
        self._stream = stream
        self._render = render
        self._timer: Timer = engine.clock.call_later(timeout_s, self.time_out)
        self._waiting = waiting
        waiting.add(self)
        engine.follow(stream, self._woken, renews=renews)

    def _stop(self) -> None:
        self._waiting.discard(self)
        self._timer.cancel()
        self._engine.unfollow(self._stream, self._woken)

    def _woken(self, stream: Stream, _: dict[Any, Any]) -> None:
        ended = stream.gone or stream.deleted
        if not ended and stream.tail == self.position and not stream.tail_closed:
            return
        self._stop()
        if ended:
            self.answer.fail(end_of(stream))
        else:
            self._complete(timed_out=False)

    def time_out(self) -> None:
        """Answer that there is nothing new: the time is up, or the server stops."""
        self._stop()
        self._complete(timed_out=True)

    def _complete(self, *, timed_out: bool) -> None:
        try:
            self.answer.resolve(self._render(self._stream, self.position, timed_out))
        except HeadwaterError as error:
            self.answer.fail(error)


def end_of(stream: Stream) -> HeadwaterError:
    """Why a live stream is not there any more."""
    name = stream.state.name
    return StreamNotFound(name) if stream.gone else StreamGone(name)


class EventForm(NamedTuple):
    """How what a live reader gets is shown."""

    mark: str
    """Tells this form from others: two readers at one place with the same mark get the same."""
    headers: Sequence[Header]
    data: Callable[[Stream, Slice], bytes]
    """The data events of a slice that is not empty."""
    control: Callable[[Stream, Position], bytes]
    """More members of the control event, each after a comma."""
    bytes_max: int | None = None
    """Body bytes of one step, if the reader wants fewer than `EVENT_BYTES`."""


class _Step(NamedTuple):
    """Rendered data events, empty when there are none, and where they take the reader."""

    data: bytes
    end: Position
    at_tail: bool
    closed: bool
    more: bytes = b""
    """Further members of the control event."""

    def with_control(self, cursor: int) -> bytes:
        """The data events and the control event after them."""
        return self.data + sse.control_event(
            offsets.render(self.end),
            cursor=None if self.closed else cursor,
            up_to_date=self.at_tail,
            closed=self.closed,
            more=self.more,
        )


class SseFeed:
    """What all SSE readers of one dialect share: rendering, heartbeats, recycling."""

    def __init__(self, engine: Engine, *, heartbeat_s: float, recycle_s: float) -> None:
        self.engine = engine
        self._heartbeat_ticks = max(1, round(heartbeat_s / TICK_S))
        self._recycle_s = recycle_s
        self._slots: list[set[SseFollower]] = [set() for _ in range(self._heartbeat_ticks)]
        self._tick_number = 0
        self._ticking = False

    def add(self, follower: SseFollower) -> None:
        follower.slot = self._tick_number % self._heartbeat_ticks
        self._slots[follower.slot].add(follower)
        if not self._ticking:
            self._ticking = True
            self.engine.clock.call_later(TICK_S, self._tick)

    def remove(self, follower: SseFollower) -> None:
        self._slots[follower.slot].discard(follower)

    def _tick(self) -> None:
        """Once a second, one slot: a heartbeat for each reader in it, or the end of its turn."""
        self._tick_number += 1
        now = self.engine.clock.monotonic_s()
        for follower in tuple(self._slots[self._tick_number % self._heartbeat_ticks]):
            try:
                if now - follower.started_s >= self._recycle_s:
                    follower.finish()
                else:
                    follower.beat()
            except Exception:
                log.exception("a heartbeat failed; the others go on")
        if any(self._slots):
            self.engine.clock.call_later(TICK_S, self._tick)
        else:
            self._ticking = False

    def cursor(self, client: int | None) -> int:
        clock = self.engine.clock
        return cursors.following(client, clock.now_ms(), clock.random_fraction())

    def render(
        self, stream: Stream, position: Position, form: EventForm, opener: Opener | None = None
    ) -> _Step:
        """The step that takes a reader on from `position`.

        It leads nowhere when what there is ends inside a character.
        """
        most = EVENT_BYTES if opener is None else SEALED_EVENT_BYTES
        size = min(most, form.bytes_max or most)
        found = self.engine.read_now(stream, position, size, opener)
        data = b""
        if found.end != position:
            if is_text(stream) and not found.json:
                whole = self._whole_characters(stream, found, opener)
                if whole is None:
                    return _Step(b"", position, at_tail=False, closed=False)
                found = whole
            data = form.data(stream, found)
        return _Step(data, found.end, found.at_tail, found.closed, form.control(stream, found.end))

    def _whole_characters(
        self, stream: Stream, found: Slice, opener: Opener | None
    ) -> Slice | None:
        """The same slice, ending between two characters at a place that has an offset.

        A character split over two appends would reach an event stream as two broken ones. So what
        comes after the last offset that is also the end of a character waits for the next append;
        None when that is everything.
        """
        size = EVENT_BYTES
        while True:
            whole = self._step_back(stream, found, opener)
            if whole is not None or found.at_tail:
                return whole
            if size >= TEXT_EVENT_BYTES_MAX:
                return found
            # A long message ends inside a character: the rest of it is in what follows.
            size *= 2
            found = self.engine.read_now(stream, found.start, size, opener)

    def _step_back(self, stream: Stream, found: Slice, opener: Opener | None) -> Slice | None:
        for _ in range(STEPS_BACK_MAX):
            broken = sse.incomplete_tail(_ending(found))
            if not broken or found.closed:
                return found
            shorter = self.engine.read_now(stream, found.start, found.size - broken, opener)
            if shorter.end.seq >= found.end.seq:
                break
            found = shorter
        return None


def _ending(found: Slice) -> bytes:
    """The last bytes of a slice, as many as one character may have."""
    ending = b""
    for buffer in reversed(found.buffers):
        ending = bytes(buffer[-4:]) + ending
        if len(ending) >= 4:
            break
    return ending


def data_event(stream: Stream, found: Slice) -> bytes:
    """A slice as one event: text as it is, everything else in base64."""
    payload = b"".join(found.body())
    if not is_text(stream):
        return sse.base64_event(payload)
    try:
        payload.decode()
    except UnicodeDecodeError:
        payload = payload.decode("utf-8", "replace").encode()
    return sse.data_event(payload)


PLAIN_EVENTS = EventForm("", (), data_event, lambda stream, end: b"")


class SseFollower:
    """One SSE reader."""

    __slots__ = (
        "_counted",
        "_cursor",
        "_done",
        "_feed",
        "_form",
        "_opener",
        "_paused",
        "_position",
        "_stream",
        "_touches",
        "_writer",
        "slot",
        "started_s",
    )

    def __init__(
        self,
        feed: SseFeed,
        stream: Stream,
        position: Position,
        client_cursor: int | None,
        *,
        form: EventForm = PLAIN_EVENTS,
        touches: bool = True,
        opener: Opener | None = None,
    ) -> None:
        self.slot = 0
        self.started_s = feed.engine.clock.monotonic_s()
        self._feed = feed
        self._stream = stream
        self._position = position
        self._counted = position.byte
        self._cursor = feed.cursor(client_cursor)
        """The least cursor this reader may be given: never behind what it sent."""
        self._form = form
        self._opener = opener
        self._touches = touches
        self._writer: BodyWriter | None = None
        self._paused = False
        self._done = False

    def start(self, writer: BodyWriter) -> None:
        self._writer = writer
        writer.on_drain = self._drained
        writer.on_close = self._closed
        writer.on_shutdown = self.finish
        self._feed.add(self)
        self._feed.engine.follow(self._stream, self.woken, renews=self._touches)
        self._count(requests=1)
        self._pump(self._stream, {}, first=True)

    def beat(self) -> None:
        """Show that the connection lives, and renew a sliding TTL: somebody still reads."""
        self._count()
        if self._touches:
            self._feed.engine.touch(self._stream)
        if self._writer is not None and not self._paused:
            self._paused = not self._writer.write(sse.HEARTBEAT)

    def finish(self) -> None:
        """End the response properly; the client comes back with its last offset."""
        writer = self._writer
        self._closed()
        if writer is not None:
            writer.finish()

    def woken(self, stream: Stream, shared: dict[Any, Any]) -> None:
        if not self._paused and not self._done:
            self._pump(stream, shared)

    def _drained(self) -> None:
        self._paused = False
        if not self._done:
            self._pump(self._stream, {})

    def _closed(self) -> None:
        if not self._done:
            self._done = True
            self._count()
            self._feed.remove(self)
            self._feed.engine.unfollow(self._stream, self.woken)

    def _count(self, requests: int = 0) -> None:
        """Now and then, not with every event: what was sent since the last time."""
        byte = self._position.byte
        self._feed.engine.tally.read(
            self._stream.state.bucket, byte - self._counted, streaming=True, requests=requests
        )
        self._counted = byte

    def _pump(self, stream: Stream, shared: dict[Any, Any], *, first: bool = False) -> None:
        """Write what there is, until the tail or until the reader is slow."""
        writer = self._writer
        assert writer is not None
        try:
            self._write_on(writer, stream, shared, first=first)
        except DecryptionFailed:
            self.finish()  # the reader learns why when it comes back
        except Exception:
            # The head has left, so all that can still be told is that the body is not whole.
            self._closed()
            writer.abort()
            raise

    def _write_on(
        self, writer: BodyWriter, stream: Stream, shared: dict[Any, Any], *, first: bool
    ) -> None:
        while not self._done:
            if stream.gone or stream.deleted or self._position.seq < stream.state.first_seq:
                # Gone, or trimmed under a slow reader, which learns it when it comes back.
                self.finish()
                return
            if self._position == stream.tail and not stream.tail_closed and not first:
                return
            step, data = self._next_step(stream, shared)
            first = False
            if not step.data and not step.at_tail:
                return
            self._position = step.end
            if self._touches:
                self._feed.engine.touch(stream)
            keeps_up = writer.write(data)
            if step.closed:
                self.finish()
                return
            if not keeps_up:
                self._paused = True
                return
            if not step.at_tail and step.end != stream.tail:
                # Catching up: let others run between two events.
                self._paused = True
                self._feed.engine.loop.call_soon(self._drained)
                return

    def _next_step(self, stream: Stream, shared: dict[Any, Any]) -> tuple[_Step, bytes]:
        """The next step and its bytes: the same for all that stand here with the same cursor.

        Readers that echo a cursor have many different ones; what was read serves them all. What
        was opened with one reader's key serves nobody else.
        """
        if self._opener is not None:
            shared = {}
        place = (SseFeed, self._form.mark, self._position)
        step: _Step | None = shared.get(place)
        if step is None:
            step = self._feed.render(stream, self._position, self._form, self._opener)
            shared[place] = step
        cursor = max(self._cursor, cursors.current(self._feed.engine.clock.now_ms()))
        data: bytes | None = shared.get((place, cursor))
        if data is None:
            data = shared[place, cursor] = step.with_control(cursor)
        return step, data


def is_text(stream: Stream) -> bool:
    """Text travels as it is; everything else in base64. PROTOCOL §5.8."""
    media_type = jsonmode.media_type(stream.state.content_type)
    return media_type.startswith("text/") or media_type == jsonmode.JSON_MEDIA_TYPE
