"""The native API: a whole stream as Arrow and as lines, and a list of many streams. Ours alone."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

import pyarrow as pa
import pyarrow.ipc as ipc

from bench.client import Client
from bench.plan import MB, Plan
from bench.report import Row, at_least, at_most, compare, ratio_at_most, say
from bench.servers import Server, ours

ARROW = "application/vnd.apache.arrow.stream"
LINES = "application/x-ndjson"
STREAM = "/v1/stream/records"
RECORDS = "/v1/log/records/durable-streams/records"
MANY = "/v1/stream/many-"

RECORD_BYTES = 200
RECORDS_PER_APPEND = 50_000
MBPS_MIN = 300
LIST_MS_MAX = 300


class Read(NamedTuple):
    """The whole stream, once. Rates count the bytes of bodies."""

    rate: float
    cpu_us: float
    """Server CPU per megabyte."""
    wire_bytes: int


def records(plan: Plan) -> list[Row]:
    """Records of 200 bytes, read from the first to the last by one client."""
    rows = []
    for kind, content_type in (
        ("binary", "application/octet-stream"),
        ("json", "application/json"),
    ):
        with ours(plan.workspace(f"log-records-{kind}")) as server:
            _load(server, content_type, plan.records)
            _read(server, ARROW, plan.records)  # warm
            arrow, lines = [], []
            for number in range(plan.rounds):
                arrow.append(_read(server, ARROW, plan.records))
                lines.append(_read(server, LINES, plan.records))
                say(f"  {number + 1}/{plan.rounds} {kind} arrow {_show(arrow[-1])}")
                say(f"  {number + 1}/{plan.rounds} {kind} lines {_show(lines[-1])}")
        name = f"log-records-{kind}"
        rows += [
            compare(
                name,
                "Arrow MB/s",
                [read.rate for read in arrow],
                cpu_us=[read.cpu_us for read in arrow],
                target=at_least(MBPS_MIN),
            ),
            compare(
                name,
                "CPU us/MB, Arrow vs lines",
                [read.cpu_us for read in arrow],
                [read.cpu_us for read in lines],
                target=ratio_at_most(0.25),
            ),
        ]
    return rows


def streams(plan: Plan) -> list[Row]:
    """A list of ten thousand streams with their tails: in memory, and after a restart."""
    with ours(plan.workspace("log-streams")) as server:
        command = [sys.executable, "-m", "bench.creator", str(server.port), MANY]
        subprocess.run([*command, str(plan.listed_streams)], check=True)
        hot = _list(server, plan)
        server.stop()
        server.start()
        cold = _list(server, plan)
    say(f"  hot {statistics.median(hot):.0f} ms, cold {statistics.median(cold):.0f} ms")
    return [
        compare("log-streams", "list ms, in memory", hot, target=at_most(LIST_MS_MAX)),
        compare("log-streams", "list ms, cold", cold, target=at_most(LIST_MS_MAX)),
    ]


def _load(server: Server, content_type: str, count: int) -> None:
    bodies = [_body() for _ in range(RECORDS_PER_APPEND)]
    sink = pa.BufferOutputStream()
    table = pa.table({"body": pa.array(bodies, pa.binary())})
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    encoded = bytes(sink.getvalue())
    started, cpu_s = time.perf_counter(), server.cpu_s()
    with Client(server.port) as client:
        client.send("PUT", STREAM, content_type=content_type)
        for _ in range(count // RECORDS_PER_APPEND):
            client.send("POST", RECORDS, content_type=ARROW, body=encoded)
    seconds, cpu_s = time.perf_counter() - started, server.cpu_s() - cpu_s
    rate = count * RECORD_BYTES / MB / seconds
    say(f"  loaded {count:,} records, {rate:,.0f} MB/s, {cpu_s / count * 1e6:.2f} us CPU/record")


def _body() -> bytes:
    """A JSON string that does not compress well."""
    return b'"' + os.urandom(RECORD_BYTES // 2 - 1).hex().encode() + b'"'


def _read(server: Server, accept: str, count: int) -> Read:
    with Client(server.port) as client:
        cpu_s, started = server.cpu_s(), time.perf_counter()
        answer = client.send("GET", RECORDS, accept=accept)
        seconds, cpu_s = time.perf_counter() - started, server.cpu_s() - cpu_s
    megabytes = count * RECORD_BYTES / MB
    return Read(megabytes / seconds, cpu_s / megabytes * 1e6, answer.body_bytes)


def _show(read: Read) -> str:
    return (
        f"{read.rate:>7,.0f} MB/s  {read.cpu_us:>7,.0f} us CPU/MB  "
        f"{read.wire_bytes / MB:,.0f} MB sent"
    )


def _list(server: Server, plan: Plan) -> list[float]:
    """Milliseconds of each list."""
    found = []
    with Client(server.port) as client:
        for _ in range(plan.rounds):
            started = time.perf_counter()
            client.send("GET", f"/v1/log/streams?limit={plan.listed_streams}")
            found.append((time.perf_counter() - started) * 1e3)
    return found
