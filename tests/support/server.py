"""A real server in a process of its own, for tests that need sockets, signals or crashes.

Tests of behaviour that one process can show belong with the in-process server instead.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

READY_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 15.0
POLL_S = 0.01
STDERR_TAIL_CHARS = 4000

# The whole line, so that a half-written port is never taken for one.
READY_LINE = re.compile(r"http://127\.0\.0\.1:(\d+)[^\n]*\n")


class ServerProcess:
    """`headwater serve` on a data folder, as a context manager.

    The port is picked by the system at the first start and kept for every later one, so a client
    can go on using `url` across `kill9` and `restart`. What the server prints is kept beside the
    data folder, in `<name>.out` and `<name>.err`. Leaving the context kills what still runs: a test
    that cares how the server ends calls `stop` and looks at the exit code.
    """

    def __init__(
        self,
        data_dir: Path,
        *args: str,
        port: int = 0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.port = port
        self._args = args
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.running:
            self.kill9()

    @property
    def url(self) -> str:
        assert self.port, "the server was never started"
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def stdout(self) -> str:
        """What the current, or last, start printed."""
        return _read(self._output("out"))

    @property
    def stderr(self) -> str:
        """What all starts logged."""
        return _read(self._output("err"))

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start, and return when the server says it is ready.

        Raises RuntimeError, with what the server logged, if it exits or is not ready in time.
        """
        assert not self.running, "the server is running already"
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        with self._output("out").open("wb") as out, self._output("err").open("ab") as err:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=self._environment(),
            )
        try:
            self.port = self._wait_until_ready(timeout_s)
        except BaseException:
            if self.running:
                self.kill9()
            raise

    def kill9(self) -> None:
        """Kill it as a power cut would, as far as a process can be."""
        process = self._started()
        process.kill()
        process.wait()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Ask it to end, as a service manager does, and return its exit code."""
        self._started().terminate()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for it to end by itself and return its exit code."""
        try:
            return self._started().wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill9()
            message = f"the server did not end. timeout_s={timeout_s}\n{self._stderr_tail()}"
            raise RuntimeError(message) from None

    def restart(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start again on the same folder and port, after stopping it if it still runs."""
        if self.running:
            self.stop()
        self.start(timeout_s)

    def _command(self) -> list[str]:
        serve = [sys.executable, "-m", "headwater", "serve", "--host", "127.0.0.1"]
        return [*serve, "--port", str(self.port), "--data-dir", str(self.data_dir), *self._args]

    def _environment(self) -> dict[str, str]:
        # Settings in the developer's own environment must not reach the server under test.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
        return inherited | self._env

    def _wait_until_ready(self, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        while True:
            ended = self._started().poll()  # before reading, so that last words are read too
            ready = READY_LINE.search(self.stdout)
            if ready is not None and ended is None:
                return int(ready[1])
            if ended is not None:
                raise RuntimeError(
                    f"the server ended at once. exit_code={ended}\n{self._stderr_tail()}"
                )
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"the server is not ready. timeout_s={timeout_s}\n{self._stderr_tail()}"
                )
            time.sleep(POLL_S)

    def _started(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server was never started"
        return self._process

    def _output(self, kind: str) -> Path:
        return self.data_dir.with_name(f"{self.data_dir.name}.{kind}")

    def _stderr_tail(self) -> str:
        return self.stderr[-STDERR_TAIL_CHARS:]


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
