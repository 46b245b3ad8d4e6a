"""A lean blocking HTTP client: it reads bodies into one buffer and keeps nothing of them.

Fast enough to read more than a gigabyte per second, so that the server is what is measured.
"""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import NamedTuple, Self

BUFFER_BYTES = 1024 * 1024
TIMEOUT_S = 120.0


class Answer(NamedTuple):
    """What a request came to. `first_byte_s` counts from sending the request."""

    status: int
    headers: dict[bytes, bytes]
    body_bytes: int
    first_byte_s: float


class Client:
    """One connection, kept open."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        content_type: str = "",
        accept: str = "",
        basin: str = "",
        body: bytes = b"",
    ) -> Answer:
        """Send a request and read its answer. Raises RuntimeError on an error status."""
        typed = f"content-type: {content_type}\r\n" if content_type else ""
        typed += f"accept: {accept}\r\n" if accept else ""
        typed += f"s2-basin: {basin}\r\n" if basin else ""
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{typed}content-length: {len(body)}"
        started = time.perf_counter()
        self._socket.sendall(f"{head}\r\n\r\n".encode() + body)
        self._socket.recv(1, socket.MSG_PEEK)
        first_byte_s = time.perf_counter() - started
        received = self._receive()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._receive()
        status, headers = _parse_head(received[:end])
        rest = received[end + 4 :]
        if status >= 400:
            raise RuntimeError(f"{method} {path} was answered with {status}: {rest[:300]!r}")
        if headers.get(b"transfer-encoding") == b"chunked":
            body_bytes = self._skip_chunks(rest)
        else:
            body_bytes = int(headers.get(b"content-length", b"0"))
            self._skip(body_bytes - len(rest))
        return Answer(status, headers, body_bytes, first_byte_s)

    def fetch(self, path: str) -> str:
        """The text of a small page."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        received = self._receive()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._receive()
        _, headers = _parse_head(received[:end])
        while len(received) < end + 4 + int(headers[b"content-length"]):
            received += self._receive()
        return received[end + 4 :].decode()

    def _receive(self) -> bytes:
        size = self._socket.recv_into(self._buffer)
        if not size:
            raise RuntimeError("the server closed the connection")
        return bytes(self._buffer[:size])

    def _skip(self, size: int) -> None:
        while size > 0:
            got = self._socket.recv_into(self._buffer[: min(size, BUFFER_BYTES)])
            if not got:
                raise RuntimeError("the server closed the connection inside a body")
            size -= got

    def _skip_chunks(self, received: bytes) -> int:
        total = 0
        while True:
            while (end := received.find(b"\r\n")) < 0:
                received += self._receive()
            size = int(received[:end], 16)
            received = received[end + 2 :]
            missing = size + 2 - len(received)
            self._skip(missing)
            received = b"" if missing >= 0 else received[size + 2 :]
            if size == 0:
                return total
            total += size


def _parse_head(head: bytes) -> tuple[int, dict[bytes, bytes]]:
    first, *lines = head.split(b"\r\n")
    pairs = (line.partition(b":") for line in lines)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}
