"""Requests over h2c from h2load, the load generator of nghttp2."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.servers import Server
from bench.wrk import children_cpu_s

CONNECTIONS = 8
STREAMS = 8
"""Requests in flight on each connection."""

_DONE = re.compile(r"requests: (\d+) total.* (\d+) succeeded, (\d+) failed")
_TOOK = re.compile(r"finished in ([\d.]+)(us|ms|s),")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class Load(NamedTuple):
    """What h2load did, and what it took."""

    requests: int
    seconds: float
    server_cpu_s: float
    client_cores: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float:
        """Server CPU per request."""
        return self.server_cpu_s / self.requests * 1e6

    def __str__(self) -> str:
        return (
            f"{self.rate:>9,.0f} appends/s  {self.cpu_us:>6.1f} us CPU  "
            f"h2load {self.client_cores:.2f} cores"
        )


def is_installed() -> bool:
    return shutil.which("h2load") is not None


def post(
    server: Server, paths: Sequence[str], body: bytes, headers: Mapping[str, str], *, seconds: int
) -> Load:
    """POST the body to the paths in turn. Raises RuntimeError if any was not answered with 2xx."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(body)
        file.flush()
        command = ["h2load", f"-c{CONNECTIONS}", f"-m{STREAMS}", f"-D{seconds}", f"-d{file.name}"]
        for name, value in headers.items():
            command += ["-H", f"{name}: {value}"]
        command += [f"http://127.0.0.1:{server.port}{path}" for path in paths]
        own, cpu_s, started = children_cpu_s(), server.cpu_s(), time.perf_counter()
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        elapsed_s = time.perf_counter() - started
        cpu_s, own = server.cpu_s() - cpu_s, children_cpu_s() - own
    done, took = _DONE.search(output), _TOOK.search(output)
    if done is None or took is None or int(done[3]) or not int(done[2]):
        raise RuntimeError(f"h2load could not append\n{output}")
    return Load(int(done[2]), float(took[1]) * _UNITS[took[2]], cpu_s, own / elapsed_s)
