"""TTL and expiry: syntax, the sliding window, and what ends a stream. PROTOCOL §5.1, §5.5."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.storage.rocks import RocksStore
from tests.support.clock import FakeClock
from tests.support.durable import NOW_MS, TEXT, DurableServer, Headers

HOUR = "3600"


def is_there(server: DurableServer, name: str = "s") -> bool:
    """Asks with HEAD, which does not renew anything."""
    return server.head(name).status == 200


# -- syntax


@pytest.mark.parametrize("ttl", ["0", "1", "3600", "31536000", "999999999999999999"])
def test_a_ttl_is_echoed_as_it_was_set(server: DurableServer, ttl: str) -> None:
    reply = server.put("s", stream_ttl=ttl)
    assert (reply.status, reply.headers["stream-ttl"]) == (201, ttl)
    assert "stream-expires-at" not in reply.headers


@pytest.mark.parametrize(
    "ttl", ["", "+3600", "03600", "3600.0", "3.6e3", "-1", "1h", " 60", "60 ", "0x10", "9" * 19]
)
def test_a_malformed_ttl_is_refused(server: DurableServer, ttl: str) -> None:
    assert server.put("s", stream_ttl=ttl).error == "invalid_request"
    assert not is_there(server)


@pytest.mark.parametrize(
    ("given", "echoed"),
    [
        pytest.param("2030-01-31T12:00:00Z", "2030-01-31T12:00:00.000Z", id="UTC"),
        pytest.param("2030-01-31T12:00:00.250Z", "2030-01-31T12:00:00.250Z", id="milliseconds"),
        pytest.param("2030-01-31T14:00:00+02:00", "2030-01-31T12:00:00.000Z", id="zone"),
        pytest.param("2030-12-31T23:59:60Z", "2031-01-01T00:00:00.000Z", id="leap second"),
        pytest.param("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z", id="the last moment"),
    ],
)
def test_an_expiry_is_echoed_in_utc(server: DurableServer, given: str, echoed: str) -> None:
    reply = server.put("s", stream_expires_at=given)
    assert (reply.status, reply.headers["stream-expires-at"]) == (201, echoed)
    assert server.head().headers["stream-expires-at"] == echoed
    assert "stream-ttl" not in reply.headers


@pytest.mark.parametrize(
    "given",
    ["", "2030", "2099-01-01", "2030-01-31T12:00:00", "2030-02-30T12:00:00Z", "tomorrow", "0"]
    + ["9999-12-31T23:59:60Z", "2030-01-31T12:00:00+01:60", "2030-01-31 12:00:00Z"],
)
def test_a_malformed_expiry_is_refused(server: DurableServer, given: str) -> None:
    assert server.put("s", stream_expires_at=given).error == "invalid_request"
    assert not is_there(server)


# -- the sliding window

READS: dict[str, Callable[[DurableServer], object]] = {
    "catch-up": lambda server: server.get("s"),
    "catch-up at the tail": lambda server: server.get("s", server.head().next),
    "offset=now": lambda server: server.get("s", "now"),
    "a 304": lambda server: server.get("s", "-1", if_none_match="*"),
    "long-poll with data": lambda server: server.poll("s", "-1"),
    "long-poll that waits": lambda server: server.poll("s", "now"),
    "SSE": lambda server: server.follow("s", "-1").disconnect(),
}
WRITES: dict[str, Callable[[DurableServer], object]] = {
    "append": lambda server: server.append("s", b"more"),
    "close": lambda server: server.close("s"),
}
NEITHER: dict[str, Callable[[DurableServer], object]] = {
    "HEAD": lambda server: server.head("s"),
    "offset past the tail": lambda server: server.get("s", "9" * 16 + "_" + "9" * 16),
    "malformed offset": lambda server: server.get("s", "x"),
    "refused append": lambda server: server.post("s", b"x", content_type="a/b"),
    "OPTIONS": lambda server: server.request("OPTIONS", "s"),
}


@pytest.mark.parametrize("access", [pytest.param(READS[name], id=name) for name in READS])
def test_a_read_starts_the_window_anew(
    server: DurableServer, access: Callable[[DurableServer], object]
) -> None:
    server.make("s", b"data", stream_ttl="100")
    server.advance(99)
    access(server)
    server.advance(99)
    assert is_there(server)
    server.advance(1)
    assert not is_there(server)


@pytest.mark.parametrize("access", [pytest.param(WRITES[name], id=name) for name in WRITES])
def test_a_write_starts_the_window_anew(
    server: DurableServer, access: Callable[[DurableServer], object]
) -> None:
    server.make("s", b"data", stream_ttl="100")
    server.advance(99)
    access(server)
    server.advance(99)
    assert is_there(server)
    server.advance(1)
    assert not is_there(server)


@pytest.mark.parametrize("access", [pytest.param(NEITHER[name], id=name) for name in NEITHER])
def test_other_requests_do_not(
    server: DurableServer, access: Callable[[DurableServer], object]
) -> None:
    server.make("s", b"data", stream_ttl="100")
    server.advance(99)
    access(server)
    server.advance(1)
    assert not is_there(server)


@pytest.mark.parametrize(
    "access", [pytest.param(act, id=name) for name, act in {**READS, **WRITES}.items()]
)
@pytest.mark.parametrize(
    "lifetime",
    [
        pytest.param({"stream_ttl": "100", "stream_ttl_anchor": "creation"}, id="from creation"),
        pytest.param({"stream_expires_at": "2027-01-15T08:01:40Z"}, id="a moment"),
    ],
)
def test_a_lifetime_that_does_not_slide(
    server: DurableServer, access: Callable[[DurableServer], object], lifetime: Headers
) -> None:
    server.make("s", b"data", **lifetime)
    server.advance(99)
    access(server)
    assert is_there(server)
    server.advance(1)
    assert not is_there(server)


def test_a_follower_keeps_its_stream_alive(server: DurableServer) -> None:
    server.make("s", b"data", stream_ttl="40")
    follower = server.follow("s")
    for _ in range(10):
        server.advance(15)
        assert is_there(server)
        if follower.ended:
            follower = server.follow("s")


def test_a_window_shorter_than_a_heartbeat_does_not_run_out_under_a_follower(
    server: DurableServer,
) -> None:
    server.make("s", b"data", stream_ttl="2")
    follower = server.follow("s")
    server.advance(14)
    assert not follower.ended and is_there(server)
    follower.disconnect()
    server.advance(2)
    assert not is_there(server)


def test_a_window_shorter_than_a_long_poll_does_not_run_out_under_it(server: DurableServer) -> None:
    server.make("s", b"data", stream_ttl="20")
    for _ in range(3):
        poll = server.poll("s", "now")
        server.advance(29)
        assert poll.waiting and is_there(server)
        server.advance(1)
        assert poll.reply.status == 204
    server.advance(20)
    assert not is_there(server)


def test_a_window_that_ran_out_just_before_a_reader_left_starts_anew(server: DurableServer) -> None:
    server.make("s", b"data", stream_ttl="2")
    follower = server.follow("s")
    server.clock.advance(2.5)  # nobody has looked at it since
    follower.disconnect()
    assert server.get("s").status == 200


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_a_live_reader_that_does_not_touch_sees_its_stream_end(
    server: DurableServer, live: str
) -> None:
    server.make("s", b"data", stream_ttl="2")
    if live == "sse":
        follower = server.follow("s", "now", stream_no_touch="true")
        server.advance(3)
        assert follower.ended
    else:
        poll = server.poll("s", "now", stream_no_touch="true")
        server.advance(3)
        assert poll.reply.status == 404


def test_head_tells_the_window_and_what_remains_of_it(server: DurableServer) -> None:
    server.make("s", b"data", stream_ttl="100")
    server.advance(30.5)
    head = server.head().headers
    assert (head["stream-ttl"], head["stream-ttl-remaining"]) == ("100", "69")
    assert head["stream-ttl-anchor"] == "access"
    server.get()
    assert server.head().headers["stream-ttl-remaining"] == "100"


def test_head_tells_what_remains_since_creation(server: DurableServer) -> None:
    server.make("s", b"data", stream_ttl="100", stream_ttl_anchor="creation")
    server.advance(30)
    server.get()
    server.append("s", b"more")
    head = server.head().headers
    assert (head["stream-ttl-remaining"], head["stream-ttl-anchor"]) == ("70", "creation")


@pytest.mark.parametrize("anchor", ["", "birth", "access, creation"])
def test_an_unknown_anchor_is_refused(server: DurableServer, anchor: str) -> None:
    assert server.put("s", stream_ttl="1", stream_ttl_anchor=anchor).error == "invalid_request"


# -- the end

ENDED = [
    pytest.param({"stream_ttl": "0"}, id="TTL 0"),
    pytest.param({"stream_ttl": "0", "stream_ttl_anchor": "creation"}, id="TTL 0 from creation"),
    pytest.param({"stream_expires_at": "2020-01-01T00:00:00Z"}, id="a moment long ago"),
    pytest.param({"stream_expires_at": "1969-01-01T00:00:00Z"}, id="a moment before 1970"),
    pytest.param({"stream_expires_at": "2027-01-15T08:00:00Z"}, id="this very moment"),
]


@pytest.mark.parametrize("lifetime", ENDED)
def test_what_has_ended_at_birth_is_created_and_gone(
    server: DurableServer, lifetime: Headers
) -> None:
    assert server.put("s", b"data", content_type=TEXT, **lifetime).status == 201
    assert server.get().status == 404
    assert server.head().status == 404
    assert server.post("s", b"x", content_type=TEXT).status == 404
    assert server.delete().status == 404
    assert server.put("s", content_type=TEXT, **lifetime).status == 201


def test_an_expired_name_is_free_at_once_even_before_the_sweep(server: DurableServer) -> None:
    server.make("s", b"old", stream_ttl="10")
    server.clock.advance(9.9999)
    assert server.put("s", content_type=TEXT, stream_ttl="10").status == 200
    server.clock.advance(10)
    assert server.put("s", b"new", content_type=TEXT).status == 201
    assert server.content() == b"new"


@pytest.mark.parametrize(
    "write", [pytest.param(True, id="append"), pytest.param(False, id="close")]
)
def test_a_write_does_not_revive_the_dead(server: DurableServer, write: bool) -> None:
    server.make("s", b"data", stream_ttl="10")
    server.clock.advance(10)
    headers = {"content_type": TEXT} if write else {"stream_closed": "true"}
    assert server.post("s", b"x" if write else b"", **headers).status == 404
    assert not is_there(server)


def test_an_endless_ttl_does_not_trouble_anybody(server: DurableServer) -> None:
    server.make("s", b"data", stream_ttl="9" * 18)
    server.advance(5)
    assert server.get().status == 200
    assert server.head().headers["stream-ttl"] == "9" * 18


def test_nothing_expires_early_because_the_server_was_restarted(tmp_path: Path) -> None:
    """Reads renew the window on disk only now and then."""
    clock = FakeClock(NOW_MS)
    with DurableServer(RocksStore(tmp_path), clock) as server:
        server.make("s", b"data", stream_ttl="100")
        server.advance(20)
        server.get()
        server.runner.close()
    with DurableServer(RocksStore(tmp_path), clock) as server:
        server.advance(99)
        assert is_there(server)
        server.advance(26)
        assert not is_there(server)
        server.runner.close()
