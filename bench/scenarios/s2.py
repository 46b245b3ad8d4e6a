"""The S2 dialect: sessions of 1 KiB records, a hundred in a batch, and single appends over h2c."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from bench import h2load
from bench.client import Client
from bench.h2 import Exchange
from bench.h2load import Load
from bench.plan import Plan, alternate
from bench.procfs import machine_busy_s
from bench.report import Row, at_least, compare, ratio_at_most, say
from bench.servers import Server, ours
from bench.wrk import children_cpu_s

BASIN = "benchmarks"
STREAM = "/v1/streams/session"
RECORDS = f"{STREAM}/records"
MIB = 1024 * 1024

RECORD_BYTES = 1024
BATCH_RECORDS = 100
BATCH_MIB = RECORD_BYTES * BATCH_RECORDS / MIB
IN_FLIGHT = 48
"""Batches a session sends ahead of their acknowledgements: about 5 MiB, as the SDKs do."""

APPEND_MIBPS_MIN = 60
SDK_MIBPS_MIN = 50
READ_MIBPS_MIN = 150
UNARY_RATE_MIN = 10_000
PROTOBUF_RATIO_MAX = 1.5
JSON_RATIO_MAX = 2

SESSION_TYPE = "s2s/proto"
PROTOBUF = "application/protobuf"
JSON = "application/json"


class Append(NamedTuple):
    """One way to append a record."""

    label: str
    paths: list[str]
    body: bytes
    headers: dict[str, str]


class Session(NamedTuple):
    """Batches through one session."""

    batches: int
    seconds: float
    server_cpu_s: float
    client_cpu_s: float
    others_cores: float

    @property
    def rate(self) -> float:
        """MiB of record bodies per second."""
        return self.batches * BATCH_MIB / self.seconds

    @property
    def cpu_us(self) -> float:
        """Server CPU per MiB."""
        return self.server_cpu_s / (self.batches * BATCH_MIB) * 1e6

    @property
    def client_share(self) -> float:
        return self.client_cpu_s / (self.client_cpu_s + self.server_cpu_s)

    def __str__(self) -> str:
        return (
            f"{self.rate:>7,.1f} MiB/s  {self.cpu_us:>7,.0f} us CPU/MiB  "
            f"server {self.server_cpu_s / self.seconds:.2f} cores, "
            f"client {self.client_cpu_s / self.seconds:.2f} cores ({self.client_share:.0%} of "
            f"the CPU), others {self.others_cores:.2f}"
        )


def sessions(plan: Plan) -> list[Row]:
    """One append session, from a lean client and from the official Python SDK."""
    with ours(plan.workspace("s2-sessions")) as server:
        _create(server, "session")
        rows = []
        for measure, write, least in (
            ("MiB/s, lean client", _write_lean, APPEND_MIBPS_MIN),
            ("MiB/s, Python SDK", _write_with_sdk, SDK_MIBPS_MIN),
        ):
            write(server, plan.warmup_seconds)
            found = _sessions(plan, server, write)
            shares = [each.client_share for each in found]
            rows += [
                _row("s2-sessions", measure, found, least),
                compare("s2-sessions", f"{measure}: client's share of CPU", shares),
            ]
    return rows


def catch_up(plan: Plan) -> list[Row]:
    """One read session over the whole stream, from a lean client."""
    batches = plan.catch_up_bytes // (RECORD_BYTES * BATCH_RECORDS)
    with ours(plan.workspace("s2-catch-up")) as server:
        _create(server, "session")
        _write_lean(server, 0, batches_min=batches)
        _read_lean(server, batches)
        found = _sessions(plan, server, lambda each, _: _read_lean(each, batches))
    return [_row("s2-catch-up", "MiB/s, lean client", found, READ_MIBPS_MIN)]


def unary(plan: Plan) -> list[Row]:
    """Single appends of 1 KiB over h2c, 8 connections of 8, beside Durable Streams appends."""
    if not h2load.is_installed():
        say("  skipped: h2load is not installed; install the package nghttp2-client (apt)")
        return []
    with ours(plan.workspace("s2-unary")) as server:
        streams = [f"unary-{number}" for number in range(h2load.CONNECTIONS)]
        _create(server, *streams)
        with Client(server.port) as client:
            for name in streams:
                path = f"/v1/stream/{name}"
                client.send("PUT", path, content_type="application/octet-stream")
        protobuf, in_json, durable = _load_in_turns(plan, server, _unary_appends(streams))
    cpu = [load.cpu_us for load in durable]
    return [
        compare(
            "s2-unary",
            "appends/s, protobuf",
            [load.rate for load in protobuf],
            cpu_us=[load.cpu_us for load in protobuf],
            target=at_least(UNARY_RATE_MIN),
            note="bound by h2load" if min(load.client_cores for load in protobuf) > 0.95 else "",
        ),
        compare(
            "s2-unary",
            "CPU us/append, protobuf vs Durable Streams",
            [load.cpu_us for load in protobuf],
            cpu,
            target=ratio_at_most(PROTOBUF_RATIO_MAX),
        ),
        compare(
            "s2-unary",
            "CPU us/append, JSON vs Durable Streams",
            [load.cpu_us for load in in_json],
            cpu,
            target=ratio_at_most(JSON_RATIO_MAX),
        ),
    ]


def _sessions(plan: Plan, server: Server, run: Callable[[Server, float], Session]) -> list[Session]:
    (found,) = alternate(plan, (server,), lambda each: run(each, plan.seconds), str)
    return found


def _row(scenario: str, measure: str, found: list[Session], least: float) -> Row:
    return compare(
        scenario,
        measure,
        [each.rate for each in found],
        cpu_us=[each.cpu_us for each in found],
        target=at_least(least),
    )


def _create(server: Server, *streams: str) -> None:
    with Client(server.port) as client:
        basin = json.dumps({"basin": BASIN}).encode()
        client.send("POST", "/v1/basins", content_type=JSON, body=basin)
        for name in streams:
            stream = json.dumps({"stream": name}).encode()
            client.send("POST", "/v1/streams", content_type=JSON, basin=BASIN, body=stream)


def _write_lean(server: Server, seconds: float, *, batches_min: int = 1) -> Session:
    """Send the same batch again and again, so many ahead, until the time is over."""
    batch = _frame(_append_input([os.urandom(RECORD_BYTES) for _ in range(BATCH_RECORDS)]))
    watch = _Watch(server)
    sent = acknowledged = 0
    with Exchange(server.port, _session_headers("POST", RECORDS), has_body=True) as exchange:
        while sent < batches_min or time.perf_counter() - watch.started < seconds:
            while sent - acknowledged >= IN_FLIGHT:
                exchange.receive()
                acknowledged += _count_frames(exchange)
            exchange.send(batch)
            sent += 1
            exchange.receive(wait=False)
            acknowledged += _count_frames(exchange)
        exchange.finish()
        while not exchange.ended:
            exchange.receive()
            acknowledged += _count_frames(exchange)
    if exchange.status != 200 or acknowledged != sent:
        raise RuntimeError(f"status={exchange.status} sent={sent} acknowledged={acknowledged}")
    return watch.stop(sent)


def _read_lean(server: Server, batches: int) -> Session:
    """The whole stream, by a session that ends at its last record."""
    watch = _Watch(server)
    path = f"{RECORDS}?seq_num=0&count={batches * BATCH_RECORDS}"
    received = 0
    with Exchange(server.port, _session_headers("GET", path), has_body=False) as exchange:
        while not exchange.ended:
            exchange.receive()
            received += len(exchange.received)
            exchange.received.clear()
    if exchange.status != 200 or received < batches * BATCH_MIB * MIB:
        raise RuntimeError(f"status={exchange.status} received={received}")
    return watch.stop(batches)


def _write_with_sdk(server: Server, seconds: float) -> Session:
    command = [sys.executable, "-m", "bench.s2_writer", f"http://127.0.0.1:{server.port}", BASIN]
    command += ["session", str(BATCH_RECORDS), str(RECORD_BYTES), str(seconds)]
    watch = _Watch(server)
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    batches, elapsed_s, _ = output.split()
    return watch.stop(int(batches))._replace(seconds=float(elapsed_s))


class _Watch:
    """What the server, this process with its children, and the rest of the machine use."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._server_cpu_s, self._own_cpu_s = server.cpu_s(), _own_cpu_s()
        self._busy_s = machine_busy_s()
        self.started = time.perf_counter()

    def stop(self, batches: int) -> Session:
        seconds = time.perf_counter() - self.started
        server_cpu_s = self._server.cpu_s() - self._server_cpu_s
        own_cpu_s = _own_cpu_s() - self._own_cpu_s
        others_s = machine_busy_s() - self._busy_s - server_cpu_s - own_cpu_s
        return Session(batches, seconds, server_cpu_s, own_cpu_s, max(0.0, others_s / seconds))


def _own_cpu_s() -> float:
    return time.process_time() + children_cpu_s()


def _session_headers(method: str, path: str) -> list[tuple[str, str]]:
    return [
        (":method", method),
        (":scheme", "http"),
        (":authority", "127.0.0.1"),
        (":path", path),
        ("s2-basin", BASIN),
        ("content-type", SESSION_TYPE),
    ]


def _unary_appends(streams: list[str]) -> list[Append]:
    """What is compared. The record is the same in each."""
    text = os.urandom(RECORD_BYTES // 2).hex()
    s2 = [f"/v1/streams/{name}/records" for name in streams]
    in_json = json.dumps({"records": [{"body": text}]}).encode()
    protobuf = {"s2-basin": BASIN, "content-type": PROTOBUF, "accept": PROTOBUF}
    return [
        Append("protobuf", s2, _append_input([text.encode()]), protobuf),
        Append("json", s2, in_json, {"s2-basin": BASIN, "content-type": JSON}),
        Append(
            "durable",
            [f"/v1/stream/{name}" for name in streams],
            text.encode(),
            {"content-type": "application/octet-stream"},
        ),
    ]


def _load_in_turns(plan: Plan, server: Server, kinds: list[Append]) -> list[list[Load]]:
    """The loads of each kind, taken A B C A B C, so that a busy minute hits them all."""
    found: list[list[Load]] = [[] for _ in kinds]
    for number in range(plan.rounds + 1):
        seconds = plan.seconds if number else plan.warmup_seconds
        for kind, loads in zip(kinds, found, strict=True):
            load = h2load.post(server, kind.paths, kind.body, kind.headers, seconds=seconds)
            if number:
                loads.append(load)
                say(f"  {number}/{plan.rounds} {kind.label:<8} {load}")
    return found


def _append_input(bodies: list[bytes]) -> bytes:
    """The protobuf message: field 1 repeated, each record with its body as field 3."""
    records = [b"\x1a" + _varint(len(body)) + body for body in bodies]
    return b"".join(b"\x0a" + _varint(len(record)) + record for record in records)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _frame(message: bytes) -> bytes:
    """Length of flag and message, no flags, the message."""
    return (len(message) + 1).to_bytes(3, "big") + b"\0" + message


def _count_frames(exchange: Exchange) -> int:
    """Take the complete frames out of what has arrived. Raises RuntimeError for a terminal one."""
    received = exchange.received
    at = count = 0
    while len(received) - at >= 4:
        end = at + 3 + int.from_bytes(received[at : at + 3], "big")
        if len(received) < end:
            break
        if received[at + 3] & 0x80:
            raise RuntimeError(f"the session failed: {bytes(received[at + 4 : end])!r}")
        at, count = end, count + 1
    del received[:at]
    return count
