"""Programs that tests start, wait for and kill, with all that belongs to them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from headwater.spark.java import find_java_home
from headwater.spark.local import STARTUP

READY_TIMEOUT_S = 90.0
POLL_S = 0.05
LOG_CHARS = 4000
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that is gone before it would have been worth the while to compile its code well."""
ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent


class Program:
    """A command in a process group of its own, as a context manager. `log` has what it prints."""

    def __init__(
        self, command: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        self._command = command
        self._env = {**os.environ, "SPARK_SUBMIT_OPTS": SHORT_LIVED, **(env or {})}
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
        if self._process is not None:
            self.kill9()

    def start(self) -> None:
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=ROOT,
                env=self._env,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """What it ended with, if it has."""
        return self._started().poll()

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def kill9(self) -> None:
        """The process and all of its group: a JVM with the Python it was started by."""
        process = self._started()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self, timeout_s: float) -> None:
        """Ask it to end, and wait for that, which must be a good end."""
        self._started().terminate()
        self.finish(timeout_s)

    def wait(self, timeout_s: float) -> int:
        """Wait for its end; returns its exit code."""
        return self._started().wait(timeout_s)

    def finish(self, timeout_s: float) -> None:
        """Wait for its end, which must be a good one."""
        assert self.wait(timeout_s) == 0, self.said[-LOG_CHARS:]

    def wait_for(self, pattern: str, timeout_s: float = READY_TIMEOUT_S) -> str:
        """The first group of the pattern, once it is printed. Raises RuntimeError."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            running = self.running  # before reading, so that last words are read too
            found = re.search(pattern, self.said)
            if found is not None:
                return found[1]
            if not running:
                break
            time.sleep(POLL_S)
        raise RuntimeError(f"it never said {pattern!r}:\n{self.said[-LOG_CHARS:]}")

    def below(self, part: str) -> list[int]:
        """The processes it has started, and those they have, whose commands have this part."""
        return [pid for pid in _descendants(self._started().pid) if part in _command(pid)]

    def _started(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was never started"
        return self._process


def spark_environment() -> dict[str, str]:
    """What Spark's own scripts need: they look for a `python3` and a `java` of their own."""
    return {
        "JAVA_HOME": str(find_java_home()),
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(STARTUP),
    }


def _descendants(pid: int) -> list[int]:
    found: set[int] = set()
    # A JVM starts processes from other threads than its first.
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found |= {int(child) for child in children.read_text().split()}
        except OSError:
            continue
    return [*found, *(below for child in found for below in _descendants(child))]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
