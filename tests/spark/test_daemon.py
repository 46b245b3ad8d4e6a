"""Spark's Python processes whose connection is closed end without a word; all else is printed."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys

import pytest

from headwater.spark.local import STARTUP
from headwater.worker_daemon import quiet


class Ended(BaseException):
    """In the place of the end of a process."""


@pytest.fixture(autouse=True)
def _stays_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def exit(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", exit)


@pytest.mark.parametrize(
    ("raised", "seen"),
    [(BrokenPipeError, Ended), (ConnectionResetError, Ended), (ValueError, ValueError)],
)
def test_only_a_closed_connection_is_no_news(
    raised: type[Exception], seen: type[BaseException]
) -> None:
    def worker(sock: socket.socket, authenticated: bool) -> int:
        raise raised

    with socket.socket() as sock, pytest.raises(seen):
        quiet(worker)(sock, True)


def test_nothing_is_loaded_before_a_fork_that_starts_threads() -> None:
    code = "import sys, headwater.worker_daemon; print({'pyarrow', 'numpy'} & sys.modules.keys())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"


@pytest.mark.parametrize("hung_up", [True, False])
def test_a_planner_that_is_hung_up_on_says_nothing(hung_up: bool) -> None:
    command = [sys.executable, "-m", "pyspark.daemon", "pyspark.sql.worker.lookup_data_sources"]
    env = {**os.environ, "PYTHONPATH": str(STARTUP), "PYTHON_WORKER_FACTORY_SECRET": "secret"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe) as daemon:
        assert daemon.stdin and daemon.stdout and daemon.stderr
        port = int.from_bytes(daemon.stdout.read(4), "big")
        with socket.create_connection(("127.0.0.1", port)) as spark:
            planner = os.pidfd_open(int.from_bytes(spark.recv(4), "big"))
            if hung_up:
                spark.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                spark.sendall(bytes([0, 0, 0, 1, 0xFF]))  # not a text, so not the secret
                spark.shutdown(socket.SHUT_WR)
                spark.recv(1)
        select.select([planner], [], [])  # until it has ended
        os.close(planner)
        daemon.stdin.close()
        said = daemon.stderr.read().decode()
    assert ("Traceback" in said, "UnicodeDecodeError" in said) == (not hung_up, not hung_up), said
