"""The two ways in which a session writes: S2S frames, and server-sent events.

A form is made for one session; what it renders of a batch is the same for all sessions with the
same `key`, so one of them renders it for all.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from headwater.dialects.s2.bounds import Batch
from headwater.dialects.s2.responses import EVENTS_HEADERS, SESSION_HEADERS
from headwater.wire.http import HeaderBlock, Response
from headwater.wire.s2 import bodies, events, frames, protobuf
from headwater.wire.s2.bodies import Format
from headwater.wire.s2.events import EventId
from headwater.wire.s2.frames import Compression
from headwater.wire.s2.records import Place


class Form(Protocol):
    """How a read session writes."""

    headers: HeaderBlock

    @property
    def key(self) -> Hashable: ...

    def render(self, batch: Batch, tail: Place | None) -> bytes:
        """The part of a batch that does not depend on the session."""

    def deliver(self, rendered: bytes, batch: Batch) -> bytes:
        """What this session writes of it. Counts it as delivered."""

    def heartbeat(self, tail: Place, now_ms: int) -> bytes: ...

    def advise(self, tail: Place, now_ms: int) -> bytes:
        """The server will stop: what asks the client to move, if there is such a thing."""

    def end(self) -> bytes:
        """A clean end, if it is written at all."""

    def fail(self, error: Response) -> bytes: ...


class FrameForm:
    """S2S frames of protobuf."""

    headers = SESSION_HEADERS

    def __init__(self, compression: Compression) -> None:
        self.key = (FrameForm, compression)
        self._compression = compression
        self._advising = False

    def render(self, batch: Batch, tail: Place | None) -> bytes:
        return frames.encode_frame(protobuf.encode_batch(batch.parts, tail), self._compression)

    def deliver(self, rendered: bytes, batch: Batch) -> bytes:
        return frames.advise_reconnect(rendered) if self._advising else rendered

    def heartbeat(self, tail: Place, now_ms: int) -> bytes:
        return frames.encode_frame(protobuf.encode_batch((), tail), reconnect=self._advising)

    def advise(self, tail: Place, now_ms: int) -> bytes:
        self._advising = True
        return self.heartbeat(tail, now_ms)

    def end(self) -> bytes:
        return b""

    def fail(self, error: Response) -> bytes:
        return encode_failure(error)


def encode_failure(error: Response) -> bytes:
    """The frame that ends a session with what would have been the answer."""
    assert isinstance(error.body, bytes)
    return frames.encode_terminal(error.status, error.body)


class EventForm:
    """Events of JSON."""

    headers = EVENTS_HEADERS

    def __init__(self, form: Format, last: EventId | None) -> None:
        self.key = (EventForm, form)
        self._form = form
        self._records = 0 if last is None else last.records
        self._size = 0 if last is None else last.size
        """Delivered so far, before a reconnect too: the next one takes them off its bounds."""

    def render(self, batch: Batch, tail: Place | None) -> bytes:
        return bodies.encode_batch(batch.parts, tail, self._form)

    def deliver(self, rendered: bytes, batch: Batch) -> bytes:
        self._records += batch.records
        self._size += batch.size
        return events.batch_event(rendered, EventId(batch.end - 1, self._records, self._size))

    def heartbeat(self, tail: Place, now_ms: int) -> bytes:
        return events.ping_event(now_ms, tail)

    def advise(self, tail: Place, now_ms: int) -> bytes:
        return b""

    def end(self) -> bytes:
        return events.DONE

    def fail(self, error: Response) -> bytes:
        assert isinstance(error.body, bytes)
        return events.error_event(error.body)
