"""Runs `tests.spark.driver` and kills it, or what belongs to it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.spark.processes import Program
from tests.spark.support import Streams


class Driver(Program):
    """The query, with everything that belongs to it."""

    def __init__(self, streams: Streams, env: Mapping[str, str] | None, **given: Any) -> None:
        self.streams = streams
        values = {
            "endpoint": streams.url,
            "bucket": streams.bucket,
            "checkpoint": str(streams.folder / "checkpoint"),
            "settings": {},
            "source": {},
            **given,
        }
        command = [sys.executable, "-m", "tests.spark.driver", json.dumps(values)]
        super().__init__(command, streams.folder / "driver.log", env)

    def revive(self) -> bool:
        """Start it again if it has failed, as an operator would. False if it has ended in order."""
        if self.code == 0:
            return False
        if self.code is not None:
            self.start()
        return True

    def kill_workers(self) -> None:
        """The Python processes in which tasks run."""
        for pid in self.below("pyspark.daemon"):
            os.kill(pid, signal.SIGKILL)

    def executables(self) -> list[Path]:
        """What its processes run."""
        found = [Path(f"/proc/{pid}/exe") for pid in self.below("")]
        return [path.resolve() for path in found if path.exists()]


def driving(streams: Streams, env: Mapping[str, str] | None = None, **given: Any) -> Driver:
    """To be used as a context manager."""
    return Driver(streams, env, **given)
