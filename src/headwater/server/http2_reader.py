"""Bytes to frames: what is whole, what is passed on in pieces, what is too large to wait for.

DATA goes on as it comes, so that a long frame needs no room; header blocks are put together.
RFC 9113 §3.4, §4 and §6.10.
"""

from __future__ import annotations

from typing import Protocol

from headwater.server.http2_frames import (
    CONTINUATION,
    DATA,
    DEFAULT_FRAME_BYTES,
    END_HEADERS,
    ENHANCE_YOUR_CALM,
    FRAME_HEADER_BYTES,
    FRAME_SIZE_ERROR,
    HEADERS,
    PADDED,
    PREFACE,
    PROTOCOL_ERROR,
    SETTINGS,
    ConnectionFailed,
    strip_padding,
    strip_priority,
    unpack_header,
)
from headwater.server.serving import Serving

FRAME_BYTES_MAX = 1024 * 1024

CONTINUATIONS_MAX = 64
"""Frames of one header block; its bytes are bounded by the limits on heads."""


class Receiver(Protocol):
    """What frames are reported to. Any of these may raise ConnectionFailed."""

    def head_received(self, flags: int, stream_id: int, block: bytes) -> None: ...

    def data_begun(self, flags: int, stream_id: int, size: int, content_bytes: int) -> None:
        """A DATA frame of `size` bytes begins; padding is all of it but `content_bytes`."""

    def data_arrived(self, piece: bytes, *, last: bool) -> None:
        """Some of its content, unless it has none."""

    def frame_received(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Any other frame."""


class FrameReader:
    """Created per connection. Raises ConnectionFailed from `feed`."""

    __slots__ = (
        "_block",
        "_block_bytes_max",
        "_block_flags",
        "_block_frames",
        "_block_stream_id",
        "_data_left",
        "_partial",
        "_partial_bytes",
        "_partial_wanted",
        "_receiver",
        "_serving",
        "_stopped",
        "opened",
        "settled",
        "since_s",
    )

    def __init__(self, receiver: Receiver, serving: Serving) -> None:
        limits = serving.limits
        self._receiver = receiver
        self._serving = serving
        self._stopped = False
        # A frame of which the rest is still to come.
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self._partial_wanted = 0
        self._data_left = 0
        # A header block and its continuations.
        self._block: bytearray | None = None
        self._block_bytes_max = 2 * (limits.header_bytes_max + limits.request_line_bytes_max)
        self._block_flags = 0
        self._block_frames = 0
        self._block_stream_id = 0
        self.opened = False
        """The preface is complete."""
        self.settled = False
        """The client's first frame, which must be its settings, was received."""
        self.since_s = serving.tick_s
        """When what is unfinished began."""

    def is_unfinished(self) -> bool:
        """True while the client owes us the rest of something other than DATA."""
        return bool(self._partial or self._block is not None or not self.opened)

    def stop(self) -> None:
        """Report nothing more."""
        self._stopped = True
        self._partial.clear()
        self._block = None

    def feed(self, data: bytes) -> None:
        if self._partial:
            data = self._complete(data)
        if not self.opened and data:
            data = self._open(data)
        start, end = 0, len(data)
        while start < end and not self._stopped:
            if self._data_left:
                size = min(self._data_left, end - start)
                self._data_left -= size
                piece = data[start : start + size]
                start += size
                self._receiver.data_arrived(piece, last=not self._data_left)
                continue
            body = start + FRAME_HEADER_BYTES
            if end < body:
                self._keep(data[start:], FRAME_HEADER_BYTES)
                return
            size, kind, flags, stream_id = unpack_header(data, start)
            self._check(kind, size)
            if kind == DATA and not flags & PADDED:
                start = body
                self._data_left = size
                self._receiver.data_begun(flags, stream_id, size, size)
                continue
            if end - body < size:
                self._keep(data[start:], FRAME_HEADER_BYTES + size)
                return
            start = body + size
            self._receive(kind, flags, stream_id, data[body:start])

    def _keep(self, data: bytes, wanted: int) -> None:
        """Keep the beginning of something until `wanted` bytes of it are there."""
        if self._block is None:
            self.since_s = self._serving.tick_s
        self._partial.append(data)
        self._partial_bytes = len(data)
        self._partial_wanted = wanted

    def _complete(self, data: bytes) -> bytes:
        """What was kept and `data`, or nothing if that is still too little."""
        self._partial.append(data)
        self._partial_bytes += len(data)
        if self._partial_bytes < self._partial_wanted:
            return b""
        data = b"".join(self._partial)
        self._partial.clear()
        return data

    def _open(self, data: bytes) -> bytes:
        if data.startswith(PREFACE):
            self.opened = True
            return data[len(PREFACE) :]
        if not PREFACE.startswith(data):
            raise ConnectionFailed(PROTOCOL_ERROR, "the connection preface is missing")
        self._keep(data, len(data) + 1)
        return b""

    def _check(self, kind: int, size: int) -> None:
        """Whether a frame may come here, and be as large as it says."""
        if self._block is not None and kind != CONTINUATION:
            raise ConnectionFailed(PROTOCOL_ERROR, "a header block was interrupted")
        if not self.settled and kind != SETTINGS:
            raise ConnectionFailed(PROTOCOL_ERROR, "the first frame must be settings")
        if size <= DEFAULT_FRAME_BYTES:
            return
        # All but DATA must be whole, so it must not be long.
        if size > FRAME_BYTES_MAX or kind not in (DATA, HEADERS, CONTINUATION):
            raise ConnectionFailed(FRAME_SIZE_ERROR, "frame is too large")
        if kind != DATA and size > self._block_bytes_max:
            raise ConnectionFailed(ENHANCE_YOUR_CALM, "header block is too large")

    def _receive(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == HEADERS:
            self._receive_headers(flags, stream_id, payload)
        elif kind == CONTINUATION:
            self._receive_continuation(flags, stream_id, payload)
        elif kind == DATA:
            content = strip_padding(payload, flags)
            self._receiver.data_begun(flags, stream_id, len(payload), len(content))
            if content:
                self._receiver.data_arrived(content, last=True)
        else:
            self._receiver.frame_received(kind, flags, stream_id, payload)

    def _receive_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise ConnectionFailed(PROTOCOL_ERROR, "headers on a stream that is not a client's")
        block = strip_priority(strip_padding(payload, flags), flags)
        if flags & END_HEADERS:
            self._receiver.head_received(flags, stream_id, block)
            return
        self._block = bytearray(block)
        self._block_flags = flags
        self._block_frames = 1
        self._block_stream_id = stream_id
        self.since_s = self._serving.tick_s

    def _receive_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = self._block
        if block is None or stream_id != self._block_stream_id:
            raise ConnectionFailed(PROTOCOL_ERROR, "continuation of nothing")
        block += payload
        self._block_frames += 1
        if len(block) > self._block_bytes_max or self._block_frames > CONTINUATIONS_MAX:
            raise ConnectionFailed(ENHANCE_YOUR_CALM, "header block is too large")
        if flags & END_HEADERS:
            self._block = None
            self._receiver.head_received(self._block_flags, stream_id, bytes(block))
