"""The outgoing half of an HTTP/2 connection: frames gathered per loop turn, and send windows.

Bodies wait in their stream while the peer's window or its socket is full, and are sent in turns
when there is room again. RFC 9113 §5.2.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from headwater.server.http2_frames import (
    CONTINUATION,
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW_BYTES,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_HEADER_BYTES,
    HEADERS,
    WINDOW_BYTES_MAX,
    ConnectionFailed,
    pack_header,
)
from headwater.server.http2_headers import TABLE_EMPTIED
from headwater.server.serving import ServerLimits
from headwater.wire.http import Buffer

# Up to here, joining frames is cheaper than giving many buffers to the transport.
JOINED_BYTES_MAX = 64 * 1024

# What one stream sends before it is the next one's turn.
TURN_BYTES = 64 * 1024


class Sender(Protocol):
    """The part of a stream that its output steers."""

    stream_id: int
    window: int
    unsent: deque[Buffer]
    unsent_bytes: int
    ending: bool

    def body_moved(self) -> None:
        """Some of what was unsent left."""

    def body_sent(self) -> None:
        """The last frame of the body is out."""

    def drained(self) -> None:
        """There is room for more of the body."""


class Output:
    """Created per connection."""

    __slots__ = (
        "_call_soon",
        "_flush_scheduled",
        "_limits",
        "_parts",
        "_parts_bytes",
        "_pumping",
        "_table_emptied",
        "earned",
        "frame_bytes_max",
        "stream_window",
        "transport",
        "unsent_bytes",
        "waiting",
        "window",
        "writable",
    )

    def __init__(
        self, limits: ServerLimits, call_soon: Callable[[Callable[[], None]], object]
    ) -> None:
        self._limits = limits
        self._call_soon = call_soon
        self._parts: list[Buffer] = []
        self._parts_bytes = 0
        self._flush_scheduled = False
        self._pumping = False
        self._table_emptied: bool | None = None
        self.transport: asyncio.Transport | None = None
        self.writable = True
        self.window = DEFAULT_WINDOW_BYTES
        self.stream_window = DEFAULT_WINDOW_BYTES
        self.frame_bytes_max = DEFAULT_FRAME_BYTES
        self.waiting: dict[int, Sender] = {}
        """Streams with something unsent, or whose writer was told to wait."""
        self.unsent_bytes = 0
        """Of all streams together."""
        self.earned = 0
        """Frames that no window cut short: what a client may answer with window updates."""

    # Gathering.

    def add(self, frame: bytes) -> None:
        self._parts.append(frame)
        self._parts_bytes += len(frame)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._call_soon(self._flush_soon)

    def _flush_soon(self) -> None:
        self._flush_scheduled = False
        self.flush()

    def flush(self) -> None:
        parts = self._parts
        transport = self.transport
        if not parts or transport is None:
            return
        self._parts = []
        size, self._parts_bytes = self._parts_bytes, 0
        if transport.is_closing():
            return
        if len(parts) == 1:
            transport.write(parts[0])
        elif size <= JOINED_BYTES_MAX:
            transport.write(b"".join(parts))
        else:
            transport.writelines(parts)

    def close(self) -> None:
        self.transport = None
        self._parts.clear()
        self.waiting.clear()

    def empty_table(self) -> None:
        """The client lowered the size of the header table. RFC 7541 §4.2."""
        if self._table_emptied is None:
            self._table_emptied = False

    # Heads.

    def send_head(self, stream_id: int, block: bytes, *, ends: bool) -> None:
        if self._table_emptied is False:
            self._table_emptied = True
            block = TABLE_EMPTIED + block
        flags = END_STREAM if ends else 0
        size = len(block)
        if size <= self.frame_bytes_max:
            self.add(pack_header(size, HEADERS, flags | END_HEADERS, stream_id) + block)
            return
        kind = HEADERS
        for start in range(0, size, self.frame_bytes_max):
            piece = block[start : start + self.frame_bytes_max]
            if start + len(piece) == size:
                flags |= END_HEADERS
            self.add(pack_header(len(piece), kind, flags, stream_id) + piece)
            kind, flags = CONTINUATION, 0

    # Bodies.

    def send_whole(self, stream: Sender, body: bytes) -> bool:
        """A short body in one frame, if the windows allow it now."""
        size = len(body)
        if (
            size > self.window
            or size > stream.window
            or size > self.frame_bytes_max
            or not self.writable
        ):
            return False
        self.window -= size
        self.earned += 1
        self.add(pack_header(size, DATA, END_STREAM, stream.stream_id) + body)
        return True

    def send(self, stream: Sender, data: Buffer) -> bool:
        """Send what the windows allow, keep the rest. False if something is kept."""
        size = len(data)
        if (
            stream.unsent
            or not self.writable
            or size > self.frame_bytes_max
            or size > self.window
            or size > stream.window
        ):
            stream.unsent.append(data)
            stream.unsent_bytes += size
            self.unsent_bytes += size
            self.waiting[stream.stream_id] = stream
            self._pump_one(stream)
            if stream.unsent or not self.writable:
                return False
            del self.waiting[stream.stream_id]
            return True
        self.window -= size
        stream.window -= size
        self.earned += 1
        self._add_data(stream.stream_id, data, size, 0)
        if self._parts_bytes > self._limits.write_buffer_bytes_high:
            self.flush()
        return self.writable

    def end(self, stream: Sender) -> None:
        """No more will be sent; END_STREAM goes with the last of it."""
        stream.ending = True
        if not stream.unsent:
            self._end(stream)

    def _end(self, stream: Sender) -> None:
        self.add(pack_header(0, DATA, END_STREAM, stream.stream_id))
        self.waiting.pop(stream.stream_id, None)
        stream.body_sent()

    def forget(self, stream: Sender) -> None:
        """The stream is gone: what it did not send never will be."""
        self.waiting.pop(stream.stream_id, None)
        self.unsent_bytes -= stream.unsent_bytes
        stream.unsent_bytes = 0
        stream.unsent.clear()

    def _add_data(self, stream_id: int, data: Buffer, size: int, flags: int) -> None:
        self._parts.append(pack_header(size, DATA, flags, stream_id))
        self._parts.append(data)
        self._parts_bytes += FRAME_HEADER_BYTES + size
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._call_soon(self._flush_soon)

    def _send_unsent(self, stream: Sender) -> bool:
        """One turn of a stream. True if anything left."""
        left = TURN_BYTES
        unsent = stream.unsent
        sent = False
        while unsent and left > 0:
            data = unsent[0]
            size = len(data)
            allowed = min(size, self.frame_bytes_max, self.window, stream.window)
            if allowed <= 0:
                break
            if allowed == size:
                unsent.popleft()
            else:
                view = memoryview(data)
                data, unsent[0] = view[:allowed], view[allowed:]
            if allowed == size or allowed == self.frame_bytes_max:
                self.earned += 1
            self.window -= allowed
            stream.window -= allowed
            stream.unsent_bytes -= allowed
            self.unsent_bytes -= allowed
            left -= allowed
            sent = True
            ends = stream.ending and not unsent
            self._add_data(stream.stream_id, data, allowed, END_STREAM if ends else 0)
        return sent

    def _pump_one(self, stream: Sender) -> None:
        while self.writable and stream.unsent and self._send_unsent(stream):
            stream.body_moved()
            if self._parts_bytes > self._limits.write_buffer_bytes_high:
                self.flush()

    def pump_stream(self, stream: Sender) -> None:
        """A stream's window grew."""
        if stream.stream_id in self.waiting:
            self._pump_one(stream)
            self._settle(stream)

    def pump(self) -> None:
        """The connection's window grew, or its socket has room: every stream in turns."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self.writable and self.waiting and self._pump_round():
                pass
        finally:
            self._pumping = False

    def _pump_round(self) -> bool:
        """One turn of every stream. True if anything left."""
        moved = False
        for stream in tuple(self.waiting.values()):
            if not self.writable:
                break
            if stream.unsent:
                if self.window <= 0:
                    continue
                if self._send_unsent(stream):
                    moved = True
                    stream.body_moved()
                    self.waiting[stream.stream_id] = self.waiting.pop(stream.stream_id, stream)
                    if self._parts_bytes > self._limits.write_buffer_bytes_high:
                        self.flush()
            self._settle(stream)
        return moved

    def _settle(self, stream: Sender) -> None:
        if stream.unsent or self.waiting.get(stream.stream_id) is not stream:
            return
        if stream.ending:
            del self.waiting[stream.stream_id]
            stream.body_sent()
        elif self.writable:
            del self.waiting[stream.stream_id]
            stream.drained()

    # The peer's windows.

    def widen(self, size: int) -> None:
        blocked = self.window <= 0
        self.window += size
        if self.window > WINDOW_BYTES_MAX:
            raise ConnectionFailed(FLOW_CONTROL_ERROR, "connection window is too large")
        if blocked and self.window > 0:
            self.pump()
