"""GET info: everything about one stream, as of a moment at which all of it was durable."""

from __future__ import annotations

import pytest

from headwater.core.commands import Append, Create, ForkClaim
from headwater.core.pending import Pending
from headwater.core.subscription_config import parse_config
from headwater.dialects.durable.routes import DurableOptions
from headwater.dialects.log.routes import LogDialect, LogOptions
from headwater.dialects.ursula.routes import UrsulaDialect
from headwater.engine import lineage
from headwater.engine.subscriptions import Subscriptions
from headwater.wire.http import Request, Response, Route
from tests.support.builders import claim
from tests.support.durable import BYTES, NOW_MS, ORIGIN, producer, token
from tests.support.log import LogReply, LogServer
from tests.support.stores import FaultyStore


def test_it_has_what_the_list_has_and_more(server: LogServer) -> None:
    server.make("s", b"a", stream_retention="age=3600")
    server.clock.advance(1)
    server.post("s", b"b", content_type="text/plain", stream_seq="7", **producer("p", 1, 0))
    server.clock.advance(1)
    server.add("s", [b"c"], **producer("q", 0, 0))
    info = server.info()
    (summary,) = server.fetch("streams").json["streams"]
    assert info.items() >= summary.items()
    rest = {name: info[name] for name in info if name not in summary}
    assert rest == {
        "first_record_at_ms": NOW_MS,
        "stream_seq": "7",
        "attributes": None,
        "producers": [
            {"id": "q", "epoch": 0, "seq": 0, "last_seen_ms": NOW_MS + 2000},
            {"id": "p", "epoch": 1, "seq": 0, "last_seen_ms": NOW_MS + 1000},
        ],
        "producer_count": 2,
        "extents": [],
        "references": 0,
        "forks": [],
        "forks_complete": True,
        "subscriptions": [],
        "snapshot": None,
        "followers": 0,
        "storage": {
            "checkpoint_bytes": rest["storage"]["checkpoint_bytes"],
            "runs": 3,
            "run_bytes": rest["storage"]["run_bytes"],
            "partial_chunks": 0,
        },
    }


def test_an_empty_stream_has_no_times(server: LogServer) -> None:
    server.make("s")
    info = server.info()
    assert (info["first_record_at_ms"], info["last_record_at_ms"]) == (None, None)


def test_the_latest_snapshot_is_told(server: LogServer) -> None:
    server.make("s", b"ab", b"cd")
    ursula = UrsulaDialect(server.engine, DurableOptions(), origin_of=lambda request: ORIGIN)
    for at, body in ((2, b"old"), (4, b"state")):
        request = Request("PUT", f"/durable-streams/s/snapshot/{at}", "", {}, body=body)
        route = ursula.begin(request)
        assert isinstance(route, Route)
        assert server.runner.result(route.handle(request)).status == 204
    snapshot = server.info()["snapshot"]
    assert len(snapshot.pop("digest")) == 64
    assert snapshot == {
        "at": {"seq_num": 2, "byte": 4, "offset": token(2, 4)},
        "content_type": BYTES,
        "bytes": 5,
    }


def test_forks_are_listed_and_know_what_they_inherit(server: LogServer) -> None:
    server.make("s", b"a", b"b")
    server.fork("f")
    server.make("other", b"x")
    server.append("f", b"c")
    server.fork("g", "f")
    info = server.info("s")
    assert (info["references"], info["forks_complete"]) == (2, True)
    assert [(fork["name"], fork["deleted"]) for fork in info["forks"]] == [
        ("f", False),
        ("g", False),
    ]
    extents = server.info("g")["extents"]
    assert [(extent["first"], extent["end"], extent["cut"]) for extent in extents] == [
        (0, 2, None),
        (2, 3, None),
    ]
    server.delete("f")
    assert [(fork["name"], fork["deleted"]) for fork in server.info("s")["forks"]] == [
        ("f", True),
        ("g", False),
    ]


def test_not_every_stream_is_looked_at_for_forks(
    server: LogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage, "LOOKS_MAX", 3)
    monkeypatch.setattr(lineage, "LOOKS_PER_STEP", 2)
    server.make("s", b"a")
    for name in "abc":
        server.make(name)
    server.fork("f")
    info = server.info("s")
    assert (info["references"], info["forks"], info["forks_complete"]) == (1, [], False)


def test_it_is_told_when_it_is_durable_and_not_what_came_after() -> None:
    store = FaultyStore()
    with LogServer(store) as server:
        server.make("s", b"a")
        store.hold_syncs()
        appended = server.engine.append(
            Append("durable-streams", "s", server.clock.now_ms(), body=b"b")
        )
        server.runner.turn(3)
        answer = server.ask("GET", "info/durable-streams/s")
        assert isinstance(answer, Pending)
        outcomes: list[object] = []
        answer.deliver(outcomes.append)
        # They join the next commit, which begins before the answer is given.
        now = server.clock.now_ms()
        server.engine.append(Append("durable-streams", "s", now, body=b"c"))
        fork = ForkClaim("durable-streams", "s")
        server.engine.create(Create("durable-streams", "f", now, fork=fork))
        server.runner.turn(3)
        assert outcomes == []
        store.release_syncs()
        server.runner.result(appended)
        server.settle()
        (response,) = outcomes
        assert isinstance(response, Response)
        info = LogReply(response).json
        assert (info["tail"]["seq_num"], info["references"], info["forks"]) == (2, 0, [])
        assert server.info()["tail"]["seq_num"] == 3


def test_live_readers_are_counted(server: LogServer) -> None:
    server.make("s")
    server.follow("s")
    server.follow("s")
    assert server.info()["followers"] == 2


def test_subscriptions_that_watch_it_are_told(server: LogServer) -> None:
    server.make("s", b"a")
    subscriptions = Subscriptions(server.engine)
    subscriptions.start()
    registry = subscriptions.registry
    server.log = LogDialect(
        server.engine,
        LogOptions(),
        server.stats,
        subscriptions_of=lambda bucket: registry.of_bucket(bucket).values(),
    )
    config = parse_config(b'{"type":"pull-wake","pattern":"*","wake_stream":"w"}')
    server.runner.result(
        subscriptions.put("durable-streams", "all", config, root_url="http://test")
    )
    server.append("s", b"b")
    assert server.info()["subscriptions"] == [
        {
            "id": "all",
            "type": "pull-wake",
            "link": "glob",
            "acked": {"seq_num": 1, "byte": 1, "offset": "0000000000000001_0000000000000001"},
            "pending": True,
        }
    ]
    subscriptions.close()


def test_only_the_latest_of_very_many_producers_are_told(server: LogServer) -> None:
    server.make("s")
    for number in range(1005):
        server.engine.append(
            Append(
                "durable-streams",
                "s",
                server.clock.now_ms(),
                body=b"x",
                producer=claim(f"p{number}"),
            )
        )
    server.settle()
    info = server.info()
    assert (info["producer_count"], len(info["producers"])) == (1005, 1000)
    assert info["producers"][0]["id"] == "p1004"


def test_a_parameter_is_refused(server: LogServer) -> None:
    server.make("s")
    reply = server.fetch("info/durable-streams/s", "verbose=1")
    assert (reply.status, reply.error) == (400, "invalid_request")
