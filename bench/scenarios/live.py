"""Followers over SSE: many of one busy stream, and very many of an idle one."""

from __future__ import annotations

import time
from typing import NamedTuple

from bench import wrk
from bench.client import Client
from bench.followers import Followers
from bench.plan import Plan, alternate
from bench.report import Row, at_most, compare, ratio_at_least, say
from bench.servers import Server, ours, peer

PATH = "/v1/stream/live-"
JSON = "application/json"
KIB = 1024
WARM_FOLLOWERS = 200
"""Connected before memory is first looked at: what the server sets up once is not per follower."""
SETTLE_S = 1.0


class Fanout(NamedTuple):
    """One turn of a writer with its followers."""

    deliveries: int
    """Received while the writer wrote."""
    posts: int
    seconds: float
    server_cpu_s: float
    followers_cores: float
    others_cores: float

    @property
    def rate(self) -> float:
        return self.deliveries / self.seconds

    @property
    def cpu_us(self) -> float:
        """Server CPU per delivery."""
        return self.server_cpu_s / self.deliveries * 1e6


def fanout(plan: Plan) -> list[Row]:
    """One writer flat out on one connection; ours durable, theirs in memory."""
    folder = plan.workspace("sse-500")
    with ours(folder) as mine, peer(folder, memory=True) as theirs:
        for server in (mine, theirs):
            with Client(server.port) as client:
                client.send("PUT", f"{PATH}0", content_type=JSON)
            _follow(server, plan, plan.warmup_seconds)
        found = alternate(
            plan, (mine, theirs), lambda server: _follow(server, plan, plan.seconds), _show
        )
    ours_found, peer_found = found
    bound = min(each.followers_cores for each in ours_found) > 0.9
    return [
        compare(
            "sse-500",
            "deliveries/s",
            [each.rate for each in ours_found],
            [each.rate for each in peer_found],
            cpu_us=[each.cpu_us for each in ours_found],
            peer_cpu_us=[each.cpu_us for each in peer_found],
            target=ratio_at_least(3),
            note="bound by the followers' process" if bound else "",
        )
    ]


def _follow(server: Server, plan: Plan, seconds: int) -> Fanout:
    with Followers(server.port, f"{PATH}0") as followers:
        followers.open(plan.followers)
        before = followers.count()
        load = wrk.append(server, PATH, streams=1, connections=1, seconds=seconds)
        during = followers.count()
        # wrk may leave one append unanswered at the end, so a little more than it counted may come.
        expected = before.messages + load.requests * plan.followers
        after = followers.settle(expected)
    if after.lost or after.messages < expected:
        raise RuntimeError(
            f"{server.label} did not deliver everything. expected={expected} "
            f"received={after.messages} connections_lost={after.lost}"
        )
    cores = (during.cpu_s - before.cpu_s) / load.seconds
    return Fanout(
        deliveries=during.messages - before.messages,
        posts=load.requests,
        seconds=load.seconds,
        server_cpu_s=load.server_cpu_s,
        followers_cores=cores,
        others_cores=max(0.0, load.others_cores - cores),
    )


def _show(found: Fanout) -> str:
    return (
        f"{found.rate:>9,.0f} deliveries/s  {found.posts / found.seconds:>6,.0f} posts/s  "
        f"{found.cpu_us:>6.2f} us CPU/delivery  followers {found.followers_cores:.2f} cores, "
        f"others {found.others_cores:.2f}"
    )


def idle(plan: Plan) -> list[Row]:
    """Memory of the server per follower that waits for something to happen."""
    folder = plan.workspace("idle-followers")
    figures = []
    for server in (ours(folder), peer(folder, memory=True)):
        with server:
            used = _memory_per_follower(server, plan.idle_followers)
            say(f"  {server.label:<12} {used / KIB:.2f} KiB per follower")
            figures.append(used / KIB)
    return [Row("idle-followers", "KiB/follower", figures[0], figures[1], target=at_most(8))]


def _memory_per_follower(server: Server, count: int) -> float:
    with Client(server.port) as client:
        client.send("PUT", f"{PATH}idle", content_type=JSON)
    with Followers(server.port, f"{PATH}idle") as followers:
        followers.open(WARM_FOLLOWERS)
        time.sleep(SETTLE_S)
        before = server.rss_bytes()
        followers.open(count)
        time.sleep(SETTLE_S)
        return (server.rss_bytes() - before) / count
