"""The servers that are measured, each in a process of its own on a free port."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bench import procfs, tools

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
LOG_TAIL_CHARS = 2000

POLL_S = 0.002

# The whole line, so that a half-written port is never taken for one.
_READY = re.compile(r"^.*http://127\.0\.0\.1:(\d+).*\n", re.MULTILINE)


class Server:
    """A command that prints its address once it is ready, as a context manager."""

    def __init__(self, label: str, command: list[str], log: Path) -> None:
        self.label = label
        self.port = 0
        self._command = command
        self._log = log
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
            self.kill()

    @property
    def pid(self) -> int:
        return self._running().pid

    def cpu_s(self) -> float:
        return procfs.cpu_s(self.pid)

    def rss_bytes(self) -> int:
        return procfs.rss_bytes(self.pid)

    def start(self) -> float:
        """Start, and return how many seconds it took until the server said it was ready."""
        started = time.perf_counter()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(),
            )
        self.port = self._wait_until_ready()
        return time.perf_counter() - started

    def stop(self) -> None:
        """Ask it to end, as a service manager does."""
        process = self._running()
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        self._process = None

    def kill(self) -> None:
        """End it as a crash would."""
        process = self._running()
        process.kill()
        process.wait()
        self._process = None

    def _wait_until_ready(self) -> int:
        process = self._running()
        deadline = time.monotonic() + READY_TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            found = _READY.search(self._log.read_text(errors="replace"))
            if found is not None:
                return int(found[1])
            time.sleep(POLL_S)
        self.kill()
        said = self._log.read_text(errors="replace")[-LOG_TAIL_CHARS:]
        raise RuntimeError(f"{self.label} did not start\n{said}")

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server was never started"
        return self._process


def ours(folder: Path, *flags: str, label: str = "ours") -> Server:
    """Our server as an operator runs it: durable, on its embedded store."""
    data = folder / f"{label}-data"
    serve = [sys.executable, "-m", "headwater", "serve", "--host", "127.0.0.1", "--port", "0"]
    command = [*serve, "--data-dir", str(data), *flags]
    return Server(label, command, folder / f"{label}.log")


def peer(folder: Path, *, memory: bool = False) -> Server:
    """The reference server, with its file store or in memory."""
    label = "peer-memory" if memory else "peer"
    data = folder / f"{label}-data"
    data.mkdir(parents=True, exist_ok=True)
    command = [tools.find_node(), str(tools.HERE / "peer.mjs"), *([] if memory else [str(data)])]
    return Server(label, command, folder / f"{label}.log")


def _environment() -> dict[str, str]:
    # Settings in the developer's own environment must not reach the server that is measured.
    return {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
