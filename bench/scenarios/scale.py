"""Very many streams with one record each: memory, restart after a crash, cold reads. Ours alone."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from bench import procfs
from bench.client import Client
from bench.plan import Plan
from bench.report import Row, at_most, say
from bench.servers import Server, ours

PATH = "/v1/stream/many-"
MIB = 1024 * 1024
COLD_READS = 500
STRIDE = 7_919_377
"""A large prime: multiples of it wander over all the streams in no order."""


def many_streams(plan: Plan) -> list[Row]:
    """A million streams of one record each."""
    name = "million-streams"
    folder = plan.workspace(name)
    with ours(folder) as server:
        creates, cpu_us = _create(server, plan.streams)
        rss = server.rss_bytes()
        say(f"  {rss / MIB:,.0f} MiB resident after {plan.streams:,} creates")
        server.kill()
        crashed_s = server.start()
        rss = max(rss, server.rss_bytes())
        server.stop()
        procfs.drop_cached_files(folder)
        stopped_s = server.start()
        say(f"  ready after kill -9 in {crashed_s:.2f} s, after a stop in {stopped_s:.2f} s")
        cold_ms = _read_cold(server, plan.streams)
        rss = max(rss, server.rss_bytes())
    if plan.streams < 1_000_000:
        name = f"streams-{plan.streams}"
    return [
        Row(name, "creates/s", creates, cpu_us=cpu_us),
        Row(name, "server MiB", rss / MIB, target=at_most(1024)),
        Row(name, "start-up s", max(crashed_s, stopped_s), target=at_most(5)),
        Row(name, "cold read p50 ms", statistics.median(cold_ms)),
        Row(name, "cold read p99 ms", statistics.quantiles(cold_ms, n=100)[98]),
    ]


def _create(server: Server, count: int) -> tuple[float, float]:
    """Returns creates per second, and the server's CPU for each, in microseconds."""
    command = [sys.executable, "-m", "bench.creator", str(server.port), PATH, str(count)]
    cpu_s, started = server.cpu_s(), time.perf_counter()
    subprocess.run(command, check=True)
    rate = count / (time.perf_counter() - started)
    return rate, (server.cpu_s() - cpu_s) / count * 1e6


def _read_cold(server: Server, count: int) -> list[float]:
    """Milliseconds of reads from streams that nobody has used since the start."""
    found = []
    with Client(server.port) as client:
        for number in range(1, COLD_READS + 1):
            started = time.perf_counter()
            client.send("GET", f"{PATH}{number * STRIDE % count}?offset=-1")
            found.append((time.perf_counter() - started) * 1e3)
    return found
