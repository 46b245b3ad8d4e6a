"""Incremental appends: many language models answer at once, a token a line. Ours alone."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from bench import tokens
from bench.client import Client
from bench.plan import Plan, alternate
from bench.report import Row, Target, compare
from bench.servers import Server, ours
from bench.tokens import Measured

JSON = "application/json"
CONNECTIONS = 100
RATE = 20_000
FLAT_OUT_LINES = 32
"""Lines that leave together when the writers do not wait: what a fast model gives at once."""


class Turn(NamedTuple):
    """One turn of the writers, and what it cost the server."""

    measured: Measured
    server_cpu_s: float
    commit_ms: float
    """Mean duration of a commit meanwhile."""

    @property
    def cpu_us(self) -> float:
        """Server CPU per line, its delivery to a follower included."""
        return self.server_cpu_s / self.measured.lines * 1e6


def paced(plan: Plan) -> list[Row]:
    """20,000 lines a second over 100 connections, each line sent and followed on its own."""
    name = "incremental-paced"
    turns = _measure(plan, name, rate=RATE)
    late_s = max(turn.measured.late_s for turn in turns)
    return [
        compare(
            name,
            "lines/s",
            [turn.measured.rate for turn in turns],
            cpu_us=[turn.cpu_us for turn in turns],
            # The last lines are received a little after the last second.
            target=Target(f">= {0.95 * RATE:,.0f}", least=0.95 * RATE),
            note=f"the writers fell behind by {late_s:.1f} s" if late_s > 0.1 else "",
        ),
        compare(name, "to follower p50 ms", [turn.measured.p50_ms for turn in turns]),
        compare(name, "to follower p99 ms", [turn.measured.p99_ms for turn in turns]),
        compare(name, "commit ms", [turn.commit_ms for turn in turns]),
    ]


def flat_out(plan: Plan) -> list[Row]:
    """100 connections as fast as they are let: what back-pressure settles at."""
    return _flat_out(plan, "incremental-flat-out", producer="")


def numbered(plan: Plan) -> list[Row]:
    """The same with a producer, which makes every line a command of its own."""
    return _flat_out(plan, "incremental-producer", producer="model")


def _flat_out(plan: Plan, name: str, producer: str) -> list[Row]:
    turns = _measure(plan, name, lines_per_send=FLAT_OUT_LINES, producer=producer)
    return [
        compare(
            name,
            "lines/s",
            [turn.measured.rate for turn in turns],
            cpu_us=[turn.cpu_us for turn in turns],
        )
    ]


def _measure(
    plan: Plan, name: str, *, rate: int = 0, lines_per_send: int = 1, producer: str = ""
) -> list[Turn]:
    numbers = count()

    def measure(server: Server) -> Turn:
        path = f"/v1/stream/{name}-{next(numbers)}-"
        with Client(server.port) as client:
            for number in range(CONNECTIONS):
                client.send("PUT", f"{path}{number}", content_type=JSON)
        cpu_s, before = server.cpu_s(), _commits(server)
        measured = tokens.run(
            server.port,
            path,
            connections=CONNECTIONS,
            seconds=plan.seconds,
            rate=rate,
            lines_per_send=lines_per_send,
            producer=producer,
        )
        seconds, commits = (
            after - earlier for after, earlier in zip(_commits(server), before, strict=True)
        )
        return Turn(measured, server.cpu_s() - cpu_s, seconds / commits * 1e3)

    with ours(plan.workspace(name)) as server:
        (turns,) = alternate(plan, (server,), measure, _show)
    return turns


def _commits(server: Server) -> tuple[float, float]:
    with Client(server.port) as client:
        page = client.fetch("/metrics")
    found = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    return (
        float(found["headwater_commit_seconds_sum"]),
        float(found["headwater_commit_seconds_count"]),
    )


def _show(turn: Turn) -> str:
    found = turn.measured
    return (
        f"{found.rate:>9,.0f} lines/s  {turn.cpu_us:>5.1f} us CPU  p50 {found.p50_ms:>6.2f} ms  "
        f"p99 {found.p99_ms:>7.2f} ms  commit {turn.commit_ms:.2f} ms  "
        f"writers {found.cpu_s / found.seconds:.2f} cores, late {found.late_s:.2f} s"
    )
