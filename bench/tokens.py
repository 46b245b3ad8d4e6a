"""Language models at work, in a process of their own: python -m bench.tokens PORT PATH OPTIONS…

Each of many connections is one incremental append to a stream of its own, followed over SSE. Every
line says when it was sent, so that its follower knows how long it took to arrive. Prints what it
measured as one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import select
import socket
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from typing import NamedTuple

TICK_S = 0.001
DRAIN_S = 20.0
BUFFER_BYTES = 256 * 1024
SEND_BYTES = 16 * 1024
"""Of the kernel's memory for what a writer sent: what is in there is behind the server's window."""
TEXT = b"token"
_SENT_US = re.compile(rb'"at":(\d+)')


class Measured(NamedTuple):
    """One run."""

    lines: int
    """Sent, acknowledged and received: the run fails if these differ."""
    seconds: float
    """From the first line to the last one received."""
    p50_ms: float
    """From sending a line to its arrival at the follower."""
    p99_ms: float
    late_s: float
    """How far the sending was behind its plan at the end."""
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.lines / self.seconds


def run(
    port: int,
    path: str,
    *,
    connections: int,
    seconds: float,
    rate: int = 0,
    lines_per_send: int = 1,
    producer: str = "",
) -> Measured:
    """Run it in another process. `rate` is lines per second over all connections, 0 flat out."""
    command = [sys.executable, "-m", "bench.tokens", str(port), path]
    options = {
        "connections": connections,
        "seconds": seconds,
        "rate": rate,
        "lines-per-send": lines_per_send,
        "producer": producer,
    }
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode:
        raise RuntimeError(f"the writers failed: {finished.stderr.strip()[-1000:]}")
    return Measured(**json.loads(finished.stdout))


class _Stream:
    """One writer and its follower."""

    def __init__(self, port: int, path: str, producer: str) -> None:
        named = ""
        if producer:
            named = f"producer-id: {producer}\r\nproducer-epoch: 0\r\nproducer-seq: 0\r\n"
        self.sent = 0
        self.taken = 0
        self.unsent = b""
        self.received = b""
        self.follower = socket.create_connection(("127.0.0.1", port))
        self.follower.sendall(
            f"GET {path}?offset=now&live=sse HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
        )
        while b"event: control" not in self.received:
            self.received += self.follower.recv(BUFFER_BYTES)
        self.received = b""
        self.follower.setblocking(False)
        self.writer = socket.create_connection(("127.0.0.1", port))
        self.writer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        self.writer.sendall(
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"stream-append: incremental\r\ntransfer-encoding: chunked\r\n{named}\r\n".encode()
        )
        self.writer.setblocking(False)

    def send(self, lines: int, now_us: int) -> None:
        """Send that many lines, a chunk each, unless the last ones did not leave yet."""
        if not self.unsent:
            line = b'{"at":%d,"text":"%b"}\n' % (now_us, TEXT)
            self.unsent = b"%x\r\n%b\r\n" % (len(line), line) * lines
            self.sent += lines
        self.push()

    def push(self) -> None:
        """Send what did not leave yet."""
        with suppress(BlockingIOError):
            self.unsent = self.unsent[self.writer.send(self.unsent) :]

    def finish(self) -> None:
        """End the body."""
        self.unsent += b"0\r\n\r\n"

    def answered(self) -> bool:
        """Go on ending the body. True when the server has said how many lines it took."""
        if self.unsent:
            self.push()
        try:
            answer = self.writer.recv(BUFFER_BYTES)
        except BlockingIOError:
            return False
        found = re.search(rb"stream-append-count: (\d+)", answer)
        if found is None or not answer.startswith(b"HTTP/1.1 20"):
            raise SystemExit(f"an append failed: {answer!r}")
        self.taken = int(found[1])
        return True

    def receive(self) -> list[int]:
        """When the lines that arrived now were sent, in microseconds."""
        data = self.received + self.follower.recv(BUFFER_BYTES)
        end = data.rfind(b"\n") + 1
        self.received = data[end:]
        return [int(sent_us) for sent_us in _SENT_US.findall(data, 0, end)]


class _Load:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._streams = [
            _Stream(options.port, f"{options.path}{number}", options.producer)
            for number in range(options.connections)
        ]
        self._epoll = select.epoll()
        self._by_follower = {stream.follower.fileno(): stream for stream in self._streams}
        for descriptor in self._by_follower:
            self._epoll.register(descriptor, select.EPOLLIN)
        self._latencies_us: list[int] = []

    def run(self) -> Measured:
        options, streams = self._options, self._streams
        started = time.perf_counter()
        turn = planned = 0
        while (elapsed := time.perf_counter() - started) < options.seconds:
            planned = int(options.rate * elapsed) if options.rate else sys.maxsize
            due = min(planned - turn * options.lines_per_send, len(streams))
            for _ in range(due // options.lines_per_send if options.rate else len(streams)):
                streams[turn % len(streams)].send(options.lines_per_send, _now_us())
                turn += 1
            self._receive(TICK_S if options.rate else 0)
        sent = sum(stream.sent for stream in streams)
        late_s = max(0.0, (planned - sent) / options.rate) if options.rate else 0.0
        for stream in streams:
            stream.finish()
        deadline = time.perf_counter() + DRAIN_S
        unanswered = streams
        while unanswered or len(self._latencies_us) < sent:
            if time.perf_counter() > deadline:
                break
            unanswered = [stream for stream in unanswered if not stream.answered()]
            self._receive(TICK_S)
        seconds = time.perf_counter() - started
        taken = sum(stream.taken for stream in streams)
        if not sent == taken == len(self._latencies_us):
            raise SystemExit(f"sent={sent} taken={taken} received={len(self._latencies_us)}")
        used = resource.getrusage(resource.RUSAGE_SELF)
        cuts = statistics.quantiles(self._latencies_us, n=100)
        return Measured(
            sent, seconds, cuts[49] / 1e3, cuts[98] / 1e3, late_s, used.ru_utime + used.ru_stime
        )

    def _receive(self, timeout_s: float) -> None:
        for descriptor, _ in self._epoll.poll(timeout_s):
            found = self._by_follower[descriptor].receive()
            now_us = _now_us()
            self._latencies_us += [now_us - sent_us for sent_us in found]


def _now_us() -> int:
    return time.perf_counter_ns() // 1000


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.tokens")
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--lines-per-send", type=int, default=1)
    parser.add_argument("--producer", default="")
    return parser.parse_args()


if __name__ == "__main__":
    print(json.dumps(_Load(_parse()).run()._asdict()))
