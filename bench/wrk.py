"""Appends from wrk, a native load generator."""

from __future__ import annotations

import resource
import subprocess
import time
from typing import NamedTuple

from bench import tools
from bench.procfs import machine_busy_s
from bench.servers import Server


class Load(NamedTuple):
    """What wrk did, and what it took."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    server_cpu_s: float
    client_cores: float
    """CPUs that the load generator itself used: near 1 means that it was the limit."""
    others_cores: float
    """CPUs that everything but the server and the load generator used meanwhile."""

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float:
        """Server CPU per request."""
        return self.server_cpu_s / self.requests * 1e6


def append(server: Server, path: str, *, streams: int, connections: int, seconds: int) -> Load:
    """100-byte JSON appends to `path` 0 to `streams` - 1, one in flight per connection."""
    command = [tools.find_wrk(), "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout=30s"]
    command += ["-s", str(tools.HERE / "load.lua"), f"http://127.0.0.1:{server.port}"]
    command += ["--", path, str(streams)]
    own = children_cpu_s()
    cpu_s, busy_s, started = server.cpu_s(), machine_busy_s(), time.perf_counter()
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    elapsed_s = time.perf_counter() - started
    cpu_s, busy_s, own = server.cpu_s() - cpu_s, machine_busy_s() - busy_s, children_cpu_s() - own
    line = next(line for line in output.splitlines() if line.startswith("RESULT"))
    requests, duration_us, failed, refused, p50_us, p99_us = map(int, line.split()[1:])
    if failed or refused or not requests:
        raise RuntimeError(
            f"appends to {server.label} went wrong. done={requests} failed={failed} "
            f"refused={refused}"
        )
    return Load(
        requests=requests,
        seconds=duration_us / 1e6,
        p50_ms=p50_us / 1e3,
        p99_ms=p99_us / 1e3,
        server_cpu_s=cpu_s,
        client_cores=own / elapsed_s,
        others_cores=max(0.0, (busy_s - cpu_s - own) / elapsed_s),
    )


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
