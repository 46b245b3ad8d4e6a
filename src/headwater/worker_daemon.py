"""Spark's daemon for Python workers, without a traceback for each that Spark hangs up on.

When a task fails, or its query is stopped, Spark closes the connection of its workers. They then
cannot send the rest, and print that: eight tracebacks for one bad record, which is told anyway.
It is not in headwater.spark, whose libraries start threads: there must be none before a fork.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from pyspark import daemon

Worker = Callable[[socket.socket, bool], int]


def quiet(worker: Worker) -> Worker:
    """The same, but it ends without a word when nobody listens any more."""

    def run(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(1)

    return run


def main() -> None:
    daemon.worker = quiet(daemon.worker)  # type: ignore[assignment]
    daemon.manager()


if __name__ == "__main__":
    main()
