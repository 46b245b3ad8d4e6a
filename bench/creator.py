"""Makes very many streams, from a process of its own: python -m bench.creator PORT PATH COUNT

Each stream is one PUT with its first record, over many connections with one request in flight on
each. Prints a line now and then, and ends with exit code 0 when every stream was created.
"""

from __future__ import annotations

import select
import socket
import sys
import time

CONNECTIONS = 256
REPORT_EVERY = 100_000
RECEIVE_BYTES = 64 * 1024

_BODY = b'{"key":"' + b"x" * 90 + b'"}'


def run(port: int, path: str, count: int) -> None:
    """Create streams `path`0 to `path`count-1."""
    epoll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    head = f"PUT {path}%d HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(_BODY)}\r\n\r\n".encode() + _BODY
    sent = done = 0
    started = time.perf_counter()
    for _ in range(min(CONNECTIONS, count)):
        connected = socket.create_connection(("127.0.0.1", port))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[connected.fileno()] = connected
        epoll.register(connected.fileno(), select.EPOLLIN)
        connected.sendall(request % sent)
        sent += 1
    while done < count:
        for descriptor, _ in epoll.poll():
            connected = sockets[descriptor]
            answer = connected.recv(RECEIVE_BYTES)
            if not answer.startswith(b"HTTP/1.1 201 ") or not answer.endswith(b"\r\n\r\n"):
                raise SystemExit(f"a stream was not created: {answer[:300]!r}")
            done += 1
            if done % REPORT_EVERY == 0:
                rate = done / (time.perf_counter() - started)
                print(f"    {done:,} streams, {rate:,.0f} per second", flush=True)
            if sent < count:
                connected.sendall(request % sent)
                sent += 1


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
