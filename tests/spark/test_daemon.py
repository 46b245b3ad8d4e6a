"""Workers whose connection is closed end without a word; all else is printed as ever."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

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
