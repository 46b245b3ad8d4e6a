"""SSE followers in a process of their own: python -m bench.followers PORT PATH

One epoll loop that counts messages and keeps nothing. Each line on stdin is a command, each line
on stdout its answer:

    open N    connect N more, and answer when each of them has had its first event
    count     messages received, CPU seconds used and connections lost, so far
"""

from __future__ import annotations

import os
import resource
import select
import socket
import subprocess
import sys
import time
from types import TracebackType
from typing import NamedTuple, Self

MARK = ord("~")
"""Occurs once in every message (see load.lua), so that a count of bytes is a count of messages."""
BUFFER_BYTES = 256 * 1024
SPARE_FILES = 64
STDIN = 0


class Count(NamedTuple):
    """How far the followers are."""

    messages: int
    cpu_s: float
    lost: int


class Followers:
    """The benchmark's handle on the process."""

    def __init__(self, port: int, path: str) -> None:
        command = [sys.executable, "-m", "bench.followers", str(port), path]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def open(self, count: int) -> None:
        """Connect that many more; returns when all of them follow."""
        opened = int(self._ask(f"open {count}"))
        if opened != count:
            raise RuntimeError(f"followers could not connect. wanted={count} opened={opened}")

    def count(self) -> Count:
        messages, cpu_s, lost = self._ask("count").split()
        return Count(int(messages), float(cpu_s), int(lost))

    def settle(self, messages: int, timeout_s: float = 30.0) -> Count:
        """Wait until so many messages have come, or nothing more does."""
        deadline = time.monotonic() + timeout_s
        while (found := self.count()).messages < messages and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def _ask(self, command: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the process of the followers ended")
        return answer


class _Loop:
    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._request = (
            f"GET {path}?offset=now&live=sse HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            "accept: text/event-stream\r\n\r\n"
        ).encode()
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._opening: set[int] = set()
        self._buffer = bytearray(BUFFER_BYTES)
        self._messages = 0
        self._lost = 0
        self._asked = 0

    def run(self) -> None:
        self._epoll.register(STDIN, select.EPOLLIN)
        sockets, buffer, mark = self._sockets, self._buffer, MARK
        while True:
            for descriptor, _ in self._epoll.poll():
                if descriptor == STDIN:
                    if not self._obey(os.read(STDIN, 4096).decode()):
                        return
                    continue
                try:
                    size = sockets[descriptor].recv_into(buffer)
                except (BlockingIOError, ConnectionError):
                    size = 0
                if not size:
                    self._drop(descriptor)
                    continue
                self._messages += buffer.count(mark, 0, size)
                if self._opening:
                    self._note_opened(descriptor, size)

    def _obey(self, lines: str) -> bool:
        for line in lines.splitlines():
            command, _, argument = line.partition(" ")
            if command == "open":
                self._open(int(argument))
            elif command == "count":
                used = resource.getrusage(resource.RUSAGE_SELF)
                cpu_s = used.ru_utime + used.ru_stime
                print(self._messages, f"{cpu_s:.6f}", self._lost, flush=True)
        return bool(lines)

    def _open(self, count: int) -> None:
        self._asked = count
        _raise_file_limit(len(self._sockets) + count + SPARE_FILES)
        for _ in range(count):
            connected = socket.create_connection(("127.0.0.1", self._port))
            connected.sendall(self._request)
            connected.setblocking(False)
            descriptor = connected.fileno()
            self._sockets[descriptor] = connected
            self._opening.add(descriptor)
            self._epoll.register(descriptor, select.EPOLLIN)

    def _note_opened(self, descriptor: int, size: int) -> None:
        """The first event says where the tail is: after it, the follower misses nothing."""
        if self._buffer.find(b"event: control", 0, size) >= 0:
            self._opening.discard(descriptor)
            if not self._opening:
                print(self._asked, flush=True)

    def _drop(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)
        self._sockets.pop(descriptor).close()
        self._lost += 1
        if descriptor in self._opening:
            self._opening.discard(descriptor)
            self._asked -= 1
            if not self._opening:
                print(self._asked, flush=True)


def _raise_file_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    _Loop(int(sys.argv[1]), sys.argv[2]).run()
