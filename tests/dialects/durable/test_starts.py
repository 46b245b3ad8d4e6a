"""Reads that begin at a time or some messages before the tail, and reads that leave no trace."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.limits import RECORD_BODY_BYTES_MAX
from tests.support.durable import JSON, TEXT, DurableServer


def test_tail_n_begins_n_messages_before_the_end(server: DurableServer) -> None:
    server.make("s", b"[1,2]", b"3", b"[4,5]", content_type=JSON)
    for count in range(8):
        expected = [1, 2, 3, 4, 5][max(0, 5 - count) :]
        assert json.loads(server.query("s", f"offset=tail:{count}").body) == expected


def test_a_message_in_parts_counts_once(server: DurableServer) -> None:
    long = b"x" * (2 * RECORD_BODY_BYTES_MAX + 5)
    server.make("s", b"a", long, b"b")
    assert server.query("s", "offset=tail:1").body == b"b"
    assert server.content("s", server.query("s", "offset=tail:3").next) == long + b"b"


def test_a_fork_counts_what_it_inherited(server: DurableServer) -> None:
    server.make("s", b"a", b"b", b"c")
    server.fork("f")
    server.append("f", b"d")
    assert server.query("f", "offset=tail:3").body == b"bcd"


@settings(max_examples=25, deadline=None)
@given(
    gaps=st.lists(st.integers(0, 3), min_size=1, max_size=90),
    ago=st.integers(0, 300),
)
def test_since_finds_the_first_message_that_is_not_older(gaps: list[int], ago: int) -> None:
    with DurableServer() as server:
        server.make("s", content_type=JSON)
        times = []
        for number, gap in enumerate(gaps):
            server.clock.advance(gap)
            times.append(int(server.clock.now_ms()))
            server.append("s", b"%d" % number)
        from_ms = int(server.clock.now_ms()) - ago * 1000
        expected = [number for number, at in enumerate(times) if at >= from_ms]
        assert json.loads(server.query("s", f"since={ago}").body) == expected
        moment = datetime.fromtimestamp(from_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
        assert json.loads(server.query("s", f"since={moment}").body) == expected


def test_live_readers_may_begin_there_too(server: DurableServer) -> None:
    server.make("s", b"a", b"b", b"c")
    assert server.follow("s", "tail:2").text == "bc"
    assert server.poll("s", "tail:1").reply.body == b"c"


@pytest.mark.parametrize(
    "query",
    ["offset=tail:", "offset=tail:-1", "offset=tail:x", "since=", "since=yesterday", "since=-1"],
)
def test_malformed_starts_are_400(server: DurableServer, query: str) -> None:
    server.make("s", b"a")
    assert server.query("s", query).status == 400


def test_offset_and_since_exclude_each_other(server: DurableServer) -> None:
    server.make("s", b"a")
    assert server.query("s", "offset=-1&since=5").status == 400


@pytest.mark.parametrize("query", ["offset=tail:1", "since=60"])
def test_an_answer_that_depends_on_the_moment_is_not_cached(
    server: DurableServer, query: str
) -> None:
    server.make("s", b"a")
    assert server.query("s", query).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("live", ["", "&live=sse", "&live=long-poll"])
def test_a_read_with_no_touch_does_not_renew_the_ttl(server: DurableServer, live: str) -> None:
    server.make("s", b"a", stream_ttl="10")
    server.advance(8)
    assert server.query("s", f"offset=-1{live}", stream_no_touch="true").status == 200
    server.advance(3)
    assert server.head().status == 404


def test_without_it_a_read_does(server: DurableServer) -> None:
    server.make("s", b"a", stream_ttl="10")
    server.advance(8)
    server.get()
    server.advance(3)
    assert server.head().status == 200
    assert server.head().headers["content-type"] == TEXT
