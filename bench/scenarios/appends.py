"""Durable appends of 100-byte JSON messages, one in flight per connection."""

from __future__ import annotations

from functools import partial

from bench import wrk
from bench.client import Client
from bench.plan import Plan, alternate
from bench.report import Row, Target, at_most, compare, ratio_at_least, ratio_at_most
from bench.servers import Server, ours, peer
from bench.wrk import Load

PATH = "/v1/stream/append-"
JSON = "application/json"


def many_streams(plan: Plan) -> list[Row]:
    """64 connections over 64 streams."""
    mine, theirs = _against_peer(plan, "append-64x64", streams=64, connections=64)
    return [
        compare(
            "append-64x64",
            "appends/s",
            [load.rate for load in mine],
            [load.rate for load in theirs],
            cpu_us=[load.cpu_us for load in mine],
            peer_cpu_us=[load.cpu_us for load in theirs],
            target=ratio_at_least(10, ", aim 15"),
            note=_note(mine),
        ),
        compare(
            "append-64x64",
            "CPU us/append",
            [load.cpu_us for load in mine],
            [load.cpu_us for load in theirs],
            target=at_most(50, ", aim 35"),
        ),
    ]


def one_stream(plan: Plan) -> list[Row]:
    """64 connections to one stream."""
    mine, theirs = _against_peer(plan, "append-64x1", streams=1, connections=64)
    return [
        compare(
            "append-64x1",
            "appends/s",
            [load.rate for load in mine],
            [load.rate for load in theirs],
            cpu_us=[load.cpu_us for load in mine],
            peer_cpu_us=[load.cpu_us for load in theirs],
            target=ratio_at_least(20),
            note=_note(mine),
        )
    ]


def one_connection(plan: Plan) -> list[Row]:
    """What one writer waits for its acknowledgement."""
    mine, theirs = _against_peer(plan, "append-1x1", streams=1, connections=1)
    return [
        compare(
            "append-1x1",
            "p50 ms",
            [load.p50_ms for load in mine],
            [load.p50_ms for load in theirs],
            cpu_us=[load.cpu_us for load in mine],
            peer_cpu_us=[load.cpu_us for load in theirs],
        )
    ]


def packing(plan: Plan) -> list[Row]:
    """256 connections over 64 streams: what packing in the background does to the slowest."""
    folder = plan.workspace("append-packing")
    with (
        ours(folder, label="packing-on") as packing_on,
        ours(folder, "--no-packing", label="packing-off") as packing_off,
    ):
        servers = (packing_on, packing_off)
        with_it, without = _measure(plan, servers, streams=64, connections=256)
    return [
        compare(
            "append-packing",
            "p99 ms, on vs off",
            [load.p99_ms for load in with_it],
            [load.p99_ms for load in without],
            cpu_us=[load.cpu_us for load in with_it],
            peer_cpu_us=[load.cpu_us for load in without],
            target=ratio_at_most(2),
        ),
        compare(
            "append-packing",
            "appends/s, on vs off",
            [load.rate for load in with_it],
            [load.rate for load in without],
            cpu_us=[load.cpu_us for load in with_it],
            peer_cpu_us=[load.cpu_us for load in without],
        ),
    ]


def syncs(plan: Plan) -> list[Row]:
    """As many syncs as commits: an append is never acknowledged on hope."""
    with ours(plan.workspace("syncs")) as server:
        _create(server, 64)
        before = _commit_figures(server)
        wrk.append(server, PATH, streams=64, connections=64, seconds=plan.seconds)
        commits, count, commands = (
            after - earlier for after, earlier in zip(_commit_figures(server), before, strict=True)
        )
    return [
        Row(
            "syncs",
            "syncs per commit",
            count / commits,
            target=Target("= 1", least=1, most=1),
        ),
        Row("syncs", "appends per sync", commands / count),
    ]


def _against_peer(
    plan: Plan, name: str, *, streams: int, connections: int
) -> tuple[list[Load], list[Load]]:
    folder = plan.workspace(name)
    with ours(folder) as mine, peer(folder) as theirs:
        found = _measure(plan, (mine, theirs), streams=streams, connections=connections)
    return found[0], found[1]


def _measure(
    plan: Plan, servers: tuple[Server, Server], *, streams: int, connections: int
) -> list[list[Load]]:
    load = partial(wrk.append, path=PATH, streams=streams, connections=connections)
    for server in servers:
        _create(server, streams)
        load(server, seconds=plan.warmup_seconds)
    return alternate(plan, servers, partial(load, seconds=plan.seconds), _show)


def _create(server: Server, streams: int) -> None:
    with Client(server.port) as client:
        for index in range(streams):
            client.send("PUT", f"{PATH}{index}", content_type=JSON)


def _show(load: Load) -> str:
    return (
        f"{load.rate:>9,.0f} appends/s  {load.cpu_us:>6.1f} us CPU  p50 {load.p50_ms:>6.2f} ms  "
        f"p99 {load.p99_ms:>7.2f} ms  wrk {load.client_cores:.2f} cores, "
        f"others {load.others_cores:.2f}"
    )


def _note(loads: list[Load]) -> str:
    """wrk runs one thread: a full core of it means that the server could have taken more."""
    return "bound by wrk" if min(load.client_cores for load in loads) > 0.95 else ""


def _commit_figures(server: Server) -> tuple[float, float, float]:
    with Client(server.port) as client:
        page = client.fetch("/metrics")
    found = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    names = ("commit_seconds_count", "sync_seconds_count", "commit_commands_total")
    commits, count, commands = (float(found[f"headwater_{name}"]) for name in names)
    return commits, count, commands
