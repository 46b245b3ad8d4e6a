"""GET streams: all buckets, filters, pages, and only what is durable."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.commands import Append, Create, Delete
from headwater.core.pending import Pending
from headwater.core.types import StreamId, TimestampMs
from headwater.dialects.log import routes
from headwater.engine import listing
from headwater.engine.streams import Stream
from headwater.wire.http import Response
from tests.support.clock import FakeClock
from tests.support.durable import JSON, NOW_MS
from tests.support.log import LogReply, LogServer
from tests.support.stores import FaultyStore


def test_a_stream_is_told_whole(server: LogServer) -> None:
    server.make("a", b'[{"n":1},2]', content_type=JSON, stream_ttl="60")
    server.clock.advance(1)
    server.append("a", b"3")
    server.close("a")
    (found,) = server.fetch("streams").json["streams"]
    assert found == {
        "id": "0000000000000001",
        "bucket": "durable-streams",
        "name": "a",
        "content_type": JSON,
        "json": True,
        "state": "closed",
        "tail": {
            "seq_num": 3,
            "byte": 9,
            "offset": "0000000000000003_0000000000000009",
            "messages": 3,
        },
        "first": {"seq_num": 0, "byte": 0, "offset": "0000000000000000_0000000000000000"},
        "records": 3,
        "bytes": 9,
        "created_at_ms": NOW_MS,
        "last_record_at_ms": NOW_MS + 1000,
        "lifetime": {"ttl_s": 60, "anchor": "access", "expires_at_ms": NOW_MS + 61_000},
        "retention": None,
        "source": None,
        "cipher": None,
    }


def test_a_fork_names_its_source_and_the_last_record_it_has(server: LogServer) -> None:
    at = server.make("a", b"one")
    server.clock.advance(5)
    server.append("a", b"two")
    server.fork("f", "a", stream_fork_offset=at)
    server.put("e", content_type="text/plain", stream_expires_at="2030-01-01T00:00:00Z")
    empty, fork = server.fetch("streams", "after=durable-streams/a").json["streams"]
    assert fork["source"] == {
        "id": "0000000000000001",
        "bucket": "durable-streams",
        "name": "a",
        "at": {"seq_num": 1, "byte": 3, "offset": at},
        "sub_offset": 0,
    }
    assert (fork["tail"]["seq_num"], fork["bytes"], fork["last_record_at_ms"]) == (1, 3, NOW_MS)
    assert empty["last_record_at_ms"] is None
    assert empty["lifetime"] == {
        "ttl_s": None,
        "anchor": None,
        "expires_at_ms": 1_893_456_000_000,
    }


def test_what_was_trimmed_is_not_counted(server: LogServer) -> None:
    server.make("s", *[b"xx"] * 10, stream_retention="records=4")
    server.advance(2)
    (found,) = server.fetch("streams").json["streams"]
    assert (found["first"]["seq_num"], found["records"], found["bytes"]) == (6, 4, 8)
    assert found["retention"] == {"age_s": None, "bytes": None, "records": 4}


@pytest.fixture
def several(server: LogServer) -> LogServer:
    for name in ("a", "a/b", "a/b/c", "a/d", "b", "é"):
        server.make(name.replace("é", "%C3%A9"))
    server.make_in("aaa", "z")
    server.make_in("zzz", "a/b")
    return server


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["z", "a", "a/b", "a/b/c", "a/d", "b", "é", "a/b"]),
        ("bucket=durable-streams", ["a", "a/b", "a/b/c", "a/d", "b", "é"]),
        ("bucket=zzz", ["a/b"]),
        ("bucket=none", []),
        ("prefix=a/", ["a/b", "a/b/c", "a/d", "a/b"]),
        ("prefix=%C3%A9", ["é"]),
        ("bucket=durable-streams&prefix=a/b", ["a/b", "a/b/c"]),
        ("pattern=*", ["z", "a", "b", "é"]),
        ("pattern=a/*", ["a/b", "a/d", "a/b"]),
        ("pattern=a/**", ["a", "a/b", "a/b/c", "a/d", "a/b"]),
        ("pattern=**/c", ["a/b/c"]),
        ("bucket=durable-streams&pattern=a/*", ["a/b", "a/d"]),
        ("bucket=durable-streams&pattern=a/*&prefix=a/d", ["a/d"]),
        ("bucket=durable-streams&prefix=b&pattern=a/*", []),
        ("after=durable-streams/a/d", ["b", "é", "a/b"]),
        ("after=durable-streams/", ["a", "a/b", "a/b/c", "a/d", "b", "é", "a/b"]),
        ("bucket=durable-streams&after=zzz/a", []),
        ("bucket=zzz&after=aaa/z", ["a/b"]),
        ("limit=2", ["z", "a"]),
    ],
)
def test_streams_are_chosen_by_bucket_prefix_and_pattern(
    several: LogServer, query: str, expected: list[str]
) -> None:
    assert several.listed(query) == expected


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9])
@pytest.mark.parametrize("query", ["", "prefix=a", "bucket=durable-streams"])
def test_pages_put_together_are_the_list(several: LogServer, query: str, limit: int) -> None:
    whole = several.fetch("streams", query).json
    assert whole["next"] is None
    found, after = [], ""
    while True:
        page = several.fetch("streams", f"{query}&limit={limit}{after}").json
        found += page["streams"]
        assert len(page["streams"]) == limit or page["next"] is None
        if page["next"] is None:
            break
        after = f"&after={page['next'].encode().hex('%').join(['%', ''])}"
    assert found == whole["streams"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=10001", "limit"),
        ("limit=x", "limit"),
        ("after=x", "after"),
        ("after=/x", "after"),
        ("pattern=a*", "pattern"),
        ("bucket=a%2Fb", "bucket"),
        ("bucket=v1", "bucket"),
        ("buckets=a", "'buckets'"),
        ("prefix=%FF", "prefix"),
        ("at_time=", "at_time"),
        ("at_time=1,", "at_time"),
        ("at_time=yesterday", "at_time"),
        (f"at_time={2**63}", "at_time"),
        ("at_time=1,2,3,4,5,6,7,8,9", "at_time"),
    ],
)
def test_a_bad_parameter_is_named(server: LogServer, query: str, field: str) -> None:
    reply = server.fetch("streams", query)
    assert (reply.status, reply.error) == (400, "invalid_request")
    assert field in reply.message


def test_streams_that_have_ended_are_not_shown(server: LogServer) -> None:
    server.make("deleted", b"x")
    server.make("expired", stream_ttl="1")
    server.make("soft", b"x")
    server.fork("fork", "soft")
    server.make("here")
    server.delete("deleted")
    server.delete("soft")
    server.clock.advance(1)  # expired, and not swept yet
    assert server.listed() == ["fork", "here"]


def test_a_list_tells_which_records_times_are_at(server: LogServer) -> None:
    begin_ms = server.clock.now_ms()
    for name in ("a", "b"):
        server.make(name)
    tails = []
    for number in range(3):
        server.append("a", b"%d" % number)
        server.clock.advance(10)
        tails.append(server.get("a").next)
    server.append("b", b"0")
    server.fork("c", "a", stream_fork_offset=tails[1])
    at_ms = [begin_ms - 1, begin_ms, begin_ms + 1, begin_ms + 20_000, begin_ms + 30_001]
    found = server.fetch("streams", f"at_time={','.join(map(str, at_ms))}").json["streams"]
    assert {stream["name"]: stream["seq_nums_at"] for stream in found} == {
        "a": [0, 0, 1, 2, 3],
        "b": [0, 0, 0, 0, 1],
        "c": [0, 0, 1, 2, 2],
    }
    one = server.fetch("streams", "prefix=a&at_time=2000-01-01T00:00:00Z").json["streams"][0]
    assert one["seq_nums_at"] == [0]
    assert "seq_nums_at" not in server.fetch("streams", "prefix=a").json["streams"][0]


def test_times_are_looked_for_among_what_is_retained(server: LogServer) -> None:
    begin_ms = server.clock.now_ms()
    server.make("s", b"0", b"1", b"2")
    server.fetch("trim/durable-streams/s", "to=2", method="POST")
    stream = server.fetch("streams", f"at_time={begin_ms}").json["streams"][0]
    assert stream["seq_nums_at"] == [2]


def test_many_streams_are_looked_at_in_steps(
    server: LogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "STREAMS_PER_STEP", 2)
    monkeypatch.setattr(listing, "NAMES_PER_STEP", 3)
    names = [f"n{number:02d}" for number in range(20)]
    for name in names:
        server.make(name)
    answer = server.ask("GET", "streams")
    assert isinstance(answer, Pending)
    assert server.listed("prefix=n1") == names[10:]
    assert len(json.loads(LogReply(server.runner.result(answer)).body)["streams"]) == 20


def turns_of(server: LogServer, query: str) -> int:
    """About how many turns of the loop an answer takes."""
    answer, outcomes = server.ask("GET", "streams", query), list[object]()
    assert isinstance(answer, Pending)
    answer.deliver(outcomes.append)
    for turn in range(1000):
        if outcomes:
            return turn
        server.runner.turn()
    pytest.fail("no answer")


def test_times_are_looked_for_in_smaller_steps(
    server: LogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "TIMED_PER_STEP", 2)
    for number in range(20):
        server.make(str(number), b"x")
    assert turns_of(server, "at_time=0") > turns_of(server, "")


def test_a_client_that_goes_away_ends_the_work(
    server: LogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "STREAMS_PER_STEP", 1)
    for number in range(50):
        server.make(str(number))
    looked: list[StreamId] = []
    peek = server.engine.shard.peek

    def count(stream_id: StreamId) -> Stream | None:
        looked.append(stream_id)
        return peek(stream_id)

    monkeypatch.setattr(server.engine.shard, "peek", count)
    answer = server.ask("GET", "streams")
    assert isinstance(answer, Pending)
    answer.deliver(lambda outcome: pytest.fail("answered"))
    server.runner.turn(2)
    answer.cancel()
    server.runner.turn(50)
    assert 0 < len(looked) < 20


def test_a_list_leaves_cold_streams_cold() -> None:
    with LogServer() as before:
        for number in range(50):
            before.make(f"s{number:02d}", b"%d" % number)
        whole = before.fetch("streams").json
        store = before.engine.store
        with LogServer(store, FakeClock(NOW_MS)) as server:
            assert server.fetch("streams").json == whole
            assert server.engine.shard.hot_streams() == 0


def test_a_long_list_is_compressed_for_a_client_that_asks(server: LogServer) -> None:
    for number in range(10):
        server.make(f"s{number}")
    reply = server.fetch("streams", accept_encoding="gzip")
    assert reply.headers["content-encoding"] == "gzip"
    assert reply.body[:2] == b"\x1f\x8b"


# -- only what is durable


def listed(server: LogServer, answer: Response | Pending[Response]) -> dict[str, int]:
    streams = LogReply(server.runner.result(answer)).json["streams"]
    return {stream["name"]: stream["tail"]["messages"] for stream in streams}


def test_a_list_shows_only_what_is_on_disk() -> None:
    store = FaultyStore()
    with LogServer(store) as server:
        server.make("kept", b"1")
        server.make("dropped", b"1")
        store.hold_syncs()
        server.engine.create(Create("durable-streams", "new", server.clock.now_ms()))
        server.engine.delete(Delete("durable-streams", "dropped", server.clock.now_ms()))
        appended = server.engine.append(
            Append("durable-streams", "kept", TimestampMs(NOW_MS + 5), body=b"2")
        )
        server.runner.turn(3)  # applied and written, not synced
        answer = server.ask("GET", "streams")
        assert isinstance(answer, Pending)
        outcomes: list[object] = []
        answer.deliver(outcomes.append)
        server.runner.turn(5)
        assert outcomes == [], "answered before it was known what is durable"
        store.release_syncs()
        server.runner.result(appended)
        server.settle()
        (response,) = outcomes
        assert isinstance(response, Response)
        assert listed(server, response) == {"kept": 2, "new": 0}


def test_what_is_applied_while_a_list_is_made_does_not_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "STREAMS_PER_STEP", 1)
    store = FaultyStore()
    with LogServer(store) as server:
        for name in "abc":
            server.make(name, b"1")
        answer = server.ask("GET", "streams")
        assert isinstance(answer, Pending)
        outcomes: list[object] = []
        answer.deliver(outcomes.append)
        store.hold_syncs()
        server.engine.append(Append("durable-streams", "c", TimestampMs(NOW_MS + 5), body=b"2"))
        server.engine.delete(Delete("durable-streams", "b", server.clock.now_ms()))
        server.runner.turn(10)
        (response,) = outcomes
        assert isinstance(response, Response)
        assert listed(server, response) == {"a": 1, "b": 1, "c": 1}
        found = LogReply(response).json["streams"][2]
        assert (found["tail"]["seq_num"], found["last_record_at_ms"]) == (1, NOW_MS)
        store.release_syncs()
        server.settle()
        assert server.listed() == ["a", "c"]


def test_a_list_fails_when_storage_does() -> None:
    store = FaultyStore()
    with LogServer(store) as server:
        server.make("a")
        store.hold_syncs()
        server.engine.append(Append("durable-streams", "a", server.clock.now_ms(), body=b"2"))
        server.runner.turn(3)
        answers = [server.ask("GET", path) for path in ("streams", "info/durable-streams/a")]
        store.sync_error = OSError("broken")
        store.release_syncs()
        for answer in answers:
            assert LogReply(server.runner.result(answer)).error == "storage_failed"
        assert server.fetch("streams").error == "storage_failed"


@settings(max_examples=30, deadline=None)
@given(
    names=st.sets(st.text(st.sampled_from("ab/é\x01"), min_size=1, max_size=4), max_size=12),
    limit=st.integers(1, 5),
    prefix=st.sampled_from(["", "a", "a/", "é"]),
)
def test_any_names_are_listed_in_order_page_by_page(
    names: set[str], limit: int, prefix: str
) -> None:
    with LogServer() as server:
        for name in names:
            server.make_in(f"bucket{len(name) % 2}", name)
        expected = sorted(
            ((f"bucket{len(name) % 2}", name) for name in names if name.startswith(prefix)),
            key=lambda pair: (pair[0], pair[1].encode()),
        )
        found, after = [], ""
        while True:
            quoted = "".join(f"%{byte:02X}" for byte in prefix.encode())
            page = server.fetch("streams", f"limit={limit}&prefix={quoted}{after}").json
            found += [(stream["bucket"], stream["name"]) for stream in page["streams"]]
            if page["next"] is None:
                break
            after = "&after=" + "".join(f"%{byte:02X}" for byte in page["next"].encode())
        assert found == expected
