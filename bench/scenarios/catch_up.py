"""Reading a stream from its start, following `Stream-Next-Offset` until it is up to date."""

from __future__ import annotations

import os
import statistics
import time
from typing import NamedTuple

from bench import wrk
from bench.client import Client
from bench.plan import MB, Plan, alternate
from bench.procfs import machine_busy_s
from bench.report import Row, compare, ratio_at_least, ratio_at_most, say
from bench.servers import Server, ours, peer

PATH = "/v1/stream/catch-up"
MIB = 1024 * 1024
PACKED_WAIT_S = 30.0

_MESSAGE = b'{"key":"' + b"x" * 90 + b'"}'
_MESSAGES_PER_APPEND = 10_000


class Passes(NamedTuple):
    """The whole stream, read again and again for about a turn."""

    body_bytes: int
    requests: int
    seconds: float
    first_byte_s: float
    server_cpu_s: float
    others_cores: float

    @property
    def rate(self) -> float:
        return self.body_bytes / self.seconds / MB

    @property
    def cpu_us(self) -> float:
        """Server CPU per megabyte."""
        return self.server_cpu_s / (self.body_bytes / MB) * 1e6


def binary(plan: Plan) -> list[Row]:
    """Appends of 1 MiB."""
    body = os.urandom(MIB)  # does not compress
    return _against_peer(plan, "catch-up-binary", "application/octet-stream", body, least=3)


def json(plan: Plan) -> list[Row]:
    """100-byte JSON messages, loaded as arrays of ten thousand."""
    body = b"[" + b",".join([_MESSAGE] * _MESSAGES_PER_APPEND) + b"]"
    return _against_peer(plan, "catch-up-json", "application/json", body, least=2)


def singles(plan: Plan) -> list[Row]:
    """100-byte JSON messages that came one by one, once they are packed. Ours alone."""
    with ours(plan.workspace("catch-up-singles")) as server:
        with Client(server.port) as client:
            client.send("PUT", f"{PATH}0", content_type="application/json")
        wrk.append(server, PATH, streams=1, connections=64, seconds=2 * plan.seconds)
        _wait_until_packed(server)
        (passes,) = alternate(
            plan, (server,), lambda each: _read(each, f"{PATH}0", plan.seconds), _show
        )
    return [
        compare(
            "catch-up-singles",
            "MB/s",
            [found.rate for found in passes],
            cpu_us=[found.cpu_us for found in passes],
        )
    ]


def _against_peer(
    plan: Plan, name: str, content_type: str, body: bytes, *, least: float
) -> list[Row]:
    folder = plan.workspace(name)
    with ours(folder) as mine, peer(folder) as theirs:
        for server in (mine, theirs):
            _load(plan, server, content_type, body)
            _read(server, PATH, 0)
        found = alternate(
            plan, (mine, theirs), lambda server: _read(server, PATH, plan.seconds), _show
        )
        our_mib, peer_mib = (server.rss_bytes() / MIB for server in (mine, theirs))
    our_passes, peer_passes = found
    return [
        compare(
            name,
            "MB/s",
            [each.rate for each in our_passes],
            [each.rate for each in peer_passes],
            cpu_us=[each.cpu_us for each in our_passes],
            peer_cpu_us=[each.cpu_us for each in peer_passes],
            target=ratio_at_least(least),
        ),
        compare(
            name,
            "first byte ms",
            [each.first_byte_s * 1e3 for each in our_passes],
            [each.first_byte_s * 1e3 for each in peer_passes],
            target=ratio_at_most(0.1),
        ),
        Row(name, "server MiB after", our_mib, peer_mib),
    ]


def _load(plan: Plan, server: Server, content_type: str, body: bytes) -> None:
    started = time.perf_counter()
    appends = -(-plan.catch_up_bytes // len(body))
    with Client(server.port) as client:
        client.send("PUT", PATH, content_type=content_type)
        for _ in range(appends):
            client.send("POST", PATH, content_type=content_type, body=body)
    seconds = time.perf_counter() - started
    say(f"  loaded {server.label:<12} {appends * len(body) / MB:,.0f} MB in {seconds:.1f} s")


def _read(server: Server, path: str, seconds: float) -> Passes:
    """At least one pass; no new one is begun after `seconds`."""
    cpu_s, busy_s, own_s = server.cpu_s(), machine_busy_s(), time.process_time()
    total = requests = 0
    first_bytes: list[float] = []
    started = time.perf_counter()
    while not first_bytes or time.perf_counter() - started < seconds:
        with Client(server.port) as client:
            answer = client.send("GET", f"{path}?offset=-1")
            first_bytes.append(answer.first_byte_s)
            total, requests = total + answer.body_bytes, requests + 1
            while b"stream-up-to-date" not in answer.headers:
                offset = answer.headers[b"stream-next-offset"].decode()
                answer = client.send("GET", f"{path}?offset={offset}")
                total, requests = total + answer.body_bytes, requests + 1
    elapsed_s = time.perf_counter() - started
    cpu_s, own_s = server.cpu_s() - cpu_s, time.process_time() - own_s
    others_s = machine_busy_s() - busy_s - cpu_s - own_s
    first_byte_s = statistics.median(first_bytes)
    return Passes(total, requests, elapsed_s, first_byte_s, cpu_s, max(0.0, others_s / elapsed_s))


def _show(found: Passes) -> str:
    return (
        f"{found.rate:>9,.0f} MB/s  first byte {found.first_byte_s * 1e3:>7.2f} ms  "
        f"{found.requests} requests  {found.cpu_us:>6.0f} us CPU/MB  "
        f"others {found.others_cores:.2f}"
    )


def _wait_until_packed(server: Server) -> None:
    deadline = time.monotonic() + PACKED_WAIT_S
    with Client(server.port) as client:
        while time.monotonic() < deadline:
            if "\nheadwater_packing_debt_runs 0.0\n" in client.fetch("/metrics"):
                return
            time.sleep(0.1)
    say("  packing did not finish in time: the reads include runs that are not packed")
