"""A lean HTTP/2 client for one long exchange: it frames, counts and keeps nothing.

It speaks h2c with prior knowledge, one stream on one connection, and honours flow control. What
it sends is encoded beforehand, so that the server is what is measured.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self

from hpack import Decoder, Encoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TIMEOUT_S = 60.0
RECEIVE_BYTES = 1024 * 1024
WINDOW_BYTES = 64 * 1024 * 1024
"""What the server may send ahead."""
FRAME_BYTES_MAX = 1024 * 1024
DEFAULT_WINDOW_BYTES = 65_535

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
STREAM = 1


class Exchange:
    """One request whose body is sent piece by piece while its answer arrives."""

    def __init__(self, port: int, headers: list[tuple[str, str]], *, has_body: bool) -> None:
        self.status = 0
        self.ended = False
        self.received = bytearray()
        """What has arrived of the answer's body and was not taken yet."""
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pending = bytearray()
        self._window = self._stream_window = DEFAULT_WINDOW_BYTES
        self._initial_window = DEFAULT_WINDOW_BYTES
        self._frame_bytes = 16_384
        self._unacknowledged = 0
        settings = struct.pack("!HIHI", 4, WINDOW_BYTES, 5, FRAME_BYTES_MAX)
        flags = END_HEADERS | (0 if has_body else END_STREAM)
        self._socket.sendall(
            PREFACE
            + frame(SETTINGS, 0, 0, settings)
            + frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", WINDOW_BYTES - DEFAULT_WINDOW_BYTES))
            + frame(HEADERS, flags, STREAM, Encoder().encode(headers))
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, body: bytes) -> None:
        """Send a piece of the body, waiting until the server has room for all of it."""
        while min(self._window, self._stream_window) < len(body):
            self.receive()
        self._window -= len(body)
        self._stream_window -= len(body)
        size = self._frame_bytes
        pieces = [frame(DATA, 0, STREAM, body[at : at + size]) for at in range(0, len(body), size)]
        self._socket.sendall(b"".join(pieces))

    def finish(self) -> None:
        """The body is over."""
        self._socket.sendall(frame(DATA, END_STREAM, STREAM, b""))

    def receive(self, *, wait: bool = True) -> None:
        """Take in what has arrived. Raises RuntimeError if the exchange went wrong."""
        try:
            flags = 0 if wait else socket.MSG_DONTWAIT
            data = self._socket.recv(RECEIVE_BYTES, flags)
        except BlockingIOError:
            return
        if not data:
            raise RuntimeError("the server closed the connection")
        self._pending += data
        at = 0
        while len(self._pending) - at >= 9:
            size = int.from_bytes(self._pending[at : at + 3], "big")
            end = at + 9 + size
            if len(self._pending) < end:
                break
            kind, flags = self._pending[at + 3], self._pending[at + 4]
            stream = int.from_bytes(self._pending[at + 5 : at + 9], "big")
            self._take(kind, flags, stream, memoryview(self._pending)[at + 9 : end])
            at = end
        del self._pending[:at]

    def _take(self, kind: int, flags: int, stream: int, payload: memoryview) -> None:
        with payload:
            if kind == DATA:
                self.received += payload
                self._acknowledge(len(payload))
                self.ended = self.ended or bool(flags & END_STREAM)
            elif kind == WINDOW_UPDATE:
                self._open_window(stream, struct.unpack("!I", payload)[0])
            elif kind == SETTINGS and not flags & ACK:
                self._apply(bytes(payload))
            elif kind == PING and not flags & ACK:
                self._socket.sendall(frame(PING, ACK, 0, bytes(payload)))
            elif kind == HEADERS:
                found = dict(Decoder().decode(bytes(payload), raw=True))
                self.status = int(found.get(b":status", self.status))
                self.ended = self.ended or bool(flags & END_STREAM)
            elif kind in (RESET, GOAWAY):
                raise RuntimeError(f"the server gave up. frame={kind} {bytes(payload)!r}")

    def _acknowledge(self, size: int) -> None:
        self._unacknowledged += size
        if self._unacknowledged > WINDOW_BYTES // 4:
            more = struct.pack("!I", self._unacknowledged)
            self._socket.sendall(
                frame(WINDOW_UPDATE, 0, 0, more) + frame(WINDOW_UPDATE, 0, STREAM, more)
            )
            self._unacknowledged = 0

    def _open_window(self, stream: int, more: int) -> None:
        if stream == 0:
            self._window += more
        else:
            self._stream_window += more

    def _apply(self, settings: bytes) -> None:
        for name, value in struct.iter_unpack("!HI", settings):
            if name == 4:
                self._stream_window += value - self._initial_window
                self._initial_window = value
            elif name == 5:
                self._frame_bytes = value
        self._socket.sendall(frame(SETTINGS, ACK, 0, b""))


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags))
    return head + stream.to_bytes(4, "big") + payload
