"""GET {stream}: where a read begins, where it ends, and what it says. PROTOCOL §5.6, §8."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.pending import Pending
from headwater.core.types import ByteOffset, SeqNum
from tests.support.durable import BEYOND, BYTES, JSON, START, TEXT, DurableServer, Reply, token


def test_a_read_returns_everything_and_where_to_go_on(server: DurableServer) -> None:
    server.make("s", b"hello ", b"world")
    reply = server.get()
    assert (reply.status, reply.body, reply.next) == (200, b"hello world", token(2, 11))
    assert reply.headers["content-type"] == TEXT
    assert reply.up_to_date
    assert not reply.closed
    assert "stream-cursor" not in reply.headers


@pytest.mark.parametrize("query", ["", "offset=-1", f"offset={START}", "offset=%2D1"])
def test_ways_to_say_the_beginning(server: DurableServer, query: str) -> None:
    server.make("s", b"hello")
    assert server.query("s", query).body == b"hello"


def test_a_read_at_the_tail_is_empty_and_stays_there(server: DurableServer) -> None:
    tail = server.make("s", b"hello")
    reply = server.get("s", tail)
    assert (reply.status, reply.body, reply.next) == (200, b"", tail)
    assert (reply.up_to_date, reply.closed) == (True, False)


def test_an_empty_json_read_is_an_empty_array(server: DurableServer) -> None:
    tail = server.make("s", b"1", content_type=JSON)
    assert server.get("s", tail).body == b"[]"
    assert server.get("s", "now").body == b"[]"


def test_the_end_of_a_closed_stream_is_told_with_its_last_byte_and_after_it(
    server: DurableServer,
) -> None:
    server.make("s", b"hello")
    tail = server.close()
    assert server.get().closed
    reply = server.get("s", tail)
    assert (reply.status, reply.body, reply.next) == (200, b"", tail)
    assert (reply.closed, reply.up_to_date) == (True, True)


def test_a_read_resumes_after_every_append(server: DurableServer) -> None:
    server.make("s")
    bodies = [b"a", b"bb", b"ccc", b"dddd"]
    tails = [server.append("s", body) for body in bodies]
    for index, tail in enumerate(tails):
        assert server.content("s", tail) == b"".join(bodies[index + 1 :])


@pytest.mark.parametrize("content_type", [TEXT, JSON])
@pytest.mark.parametrize("closed", [False, True])
def test_now_is_the_tail_and_never_data(
    server: DurableServer, content_type: str, closed: bool
) -> None:
    tail = server.make("s", b"1", content_type=content_type)
    if closed:
        server.close()
    reply = server.get("s", "now")
    assert (reply.status, reply.next) == (200, tail)
    assert reply.body == (b"[]" if content_type == JSON else b"")
    assert (reply.up_to_date, reply.closed) == (True, closed)
    assert reply.headers["cache-control"] == "no-store"
    assert "etag" not in reply.headers


# -- offsets that are none


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("offset=", id="empty"),
        pytest.param("offset", id="no value"),
        pytest.param("offset=-1&offset=-1", id="repeated"),
        pytest.param("offset=-1&x=1&%6Fffset=-1", id="repeated, one percent-encoded"),
        pytest.param("offset=0", id="a bare number"),
        pytest.param("offset=-2", id="another negative number"),
        pytest.param("offset=NOW", id="sentinels are case-sensitive"),
        pytest.param("offset=+now", id="a plus is a space"),
        pytest.param("offset=now%20", id="space after it"),
        pytest.param("offset=%00", id="NUL"),
        pytest.param("offset=a%0D%0Ab", id="line end"),
        pytest.param("offset=..%2F..%2Fetc", id="a path"),
        pytest.param("offset=1,2", id="comma"),
        pytest.param("offset=%ff", id="not UTF-8"),
        pytest.param("offset=%zz", id="bad percent escape"),
        pytest.param(f"offset={START}x", id="token with more"),
    ],
)
@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_a_malformed_offset_is_refused(server: DurableServer, query: str, live: str) -> None:
    server.make("s", b"hello")
    reply = server.query("s", query + live)
    assert (reply.status, reply.error) == (400, "invalid_offset")
    assert "stream-next-offset" not in reply.headers


@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(BEYOND, id="far past the tail"),
        pytest.param(token(3, 10), id="one record past the tail"),
        pytest.param(token(2, 11), id="at the tail, with other bytes"),
        pytest.param(token(1, 4), id="inside, with other bytes"),
        pytest.param(token(0, 1), id="at the start, with other bytes"),
    ],
)
@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_an_offset_that_does_not_fit_is_refused_with_the_tail(
    server: DurableServer, offset: str, live: str
) -> None:
    """A smaller Stream-Next-Offset in a 200 would send clients of a re-created stream astray."""
    tail = server.make("s", b"hello", b"world")
    reply = server.query("s", f"offset={offset}{live}")
    assert (reply.status, reply.error, reply.next) == (400, "invalid_offset", tail)


@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_an_offset_inside_a_long_message_was_never_given_out(
    server: DurableServer, live: str
) -> None:
    part = 1024 * 1024 - 64 * 1024
    server.make("s", b"x" * (2 * part), content_type=BYTES)
    assert server.query("s", f"offset={token(1, part)}{live}").error == "invalid_offset"


def test_a_token_may_come_percent_encoded(server: DurableServer) -> None:
    server.make("s", b"one")
    middle = server.append("s", b"two")
    server.append("s", b"three")
    encoded = "".join(f"%{byte:02x}" for byte in middle.encode())
    assert server.get("s", encoded).body == b"three"


def test_data_that_is_no_longer_retained_is_410_with_where_it_begins(
    server: DurableServer,
) -> None:
    server.make("s", b"one")
    tails = [server.append("s", b"two"), server.append("s", b"three")]
    state = server.runner.engine.open("durable-streams", "s").state
    state.first_seq, state.first_byte = SeqNum(1), ByteOffset(3)
    for live in ("", "&live=long-poll", "&live=sse"):
        reply = server.query("s", f"offset={START}{live}")
        assert (reply.status, reply.error, reply.next) == (410, "offset_trimmed", token(1, 3))
    assert server.content("s", "-1") == b"twothree"
    assert server.content("s", tails[0]) == b"three"


@pytest.mark.parametrize(
    "query",
    ["x=1", "offset=-1&unknown", "a=b&offset=-1&&c=d&", "offset=-1&cursor=1", "Offset=nonsense"]
    + ["x=1&x=2&offset=-1"],
)
def test_unknown_parameters_are_ignored(server: DurableServer, query: str) -> None:
    server.make("s", b"hello")
    assert server.query("s", query).body == b"hello"


@pytest.mark.parametrize("live", ["", "true", "poll", "SSE", "long-poll,sse", "longpoll", "none"])
def test_an_unknown_live_mode_is_refused(server: DurableServer, live: str) -> None:
    server.make("s", b"hello")
    reply = server.query("s", f"offset=-1&live={quote(live)}")
    assert (reply.status, reply.error) == (400, "invalid_request")


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_a_live_read_needs_an_offset(server: DurableServer, live: str) -> None:
    server.make("s", b"hello")
    assert server.query("s", f"live={live}").error == "invalid_request"


@pytest.mark.parametrize("query", ["offset=x", "live=sse", "offset=-1&live=x", "offset=1&offset=2"])
def test_a_malformed_read_of_nothing_is_malformed_first(server: DurableServer, query: str) -> None:
    assert server.query("missing", query).status == 400


# -- chunks


def chunks(server: DurableServer, name: str = "s") -> list[Reply]:
    found = [server.get(name)]
    while not found[-1].up_to_date:
        found.append(server.get(name, found[-1].next))
    return found


def test_a_long_read_comes_in_chunks_cut_between_messages() -> None:
    with DurableServer(chunk_bytes=10) as server:
        server.make("s", b"aaaa", b"bbbb", b"cccc", b"d" * 25, b"ee", b"f" * 8, b"g")
        server.close()
        found = chunks(server)
        assert [reply.body for reply in found] == [
            b"aaaabbbb",
            b"cccc",
            b"d" * 25,
            b"ee" + b"f" * 8,
            b"g",
        ]
        assert [reply.closed for reply in found] == [False] * 4 + [True]
        assert [reply.up_to_date for reply in found] == [False] * 4 + [True]
        assert [reply.next for reply in found] == sorted({reply.next for reply in found})


def test_a_chunk_that_ends_at_the_tail_exactly_is_up_to_date() -> None:
    with DurableServer(chunk_bytes=10) as server:
        server.make("s", b"a" * 10)
        assert server.get().up_to_date
        server.append("s", b"b")
        assert not server.get().up_to_date


def test_every_json_chunk_is_an_array_of_its_own() -> None:
    with DurableServer(chunk_bytes=10) as server:
        server.make("s", b"[1111,2222]", b"3333", b'["a","b"]', content_type=JSON)
        arrays = [json.loads(reply.body) for reply in chunks(server)]
        assert arrays == [[1111, 2222], [3333, "a", "b"]]


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=30),
    chunk_bytes=st.integers(1, 40),
    json_mode=st.booleans(),
)
def test_a_range_is_the_same_every_time_it_is_read(
    sizes: list[int], chunk_bytes: int, json_mode: bool
) -> None:
    """Whatever was appended since, however it is packed, and whatever step the read began at."""
    bodies = [b'"%b"' % (b"x" * size) if json_mode else b"x" * size for size in sizes]
    with DurableServer(chunk_bytes=chunk_bytes) as server:
        server.make("s", content_type=JSON if json_mode else TEXT)
        first: dict[str, Reply] = {}
        for body in bodies:
            server.append("s", body)
            for offset in ["-1", *first]:
                reply = server.get("s", offset)
                known = first.get(offset)
                if known is not None and not known.up_to_date:
                    assert (reply.body, reply.next) == (known.body, known.next)
                    assert reply.etag == known.etag
                first[offset] = reply
                first.setdefault(
                    reply.next, reply if reply.up_to_date else server.get("s", reply.next)
                )
        if json_mode:
            assert [json.loads(body) for body in bodies] == [
                value for reply in chunks(server) for value in json.loads(reply.body)
            ]
        else:
            assert b"".join(bodies) == server.content("s")


def test_a_read_of_a_long_stream_touches_only_its_chunk() -> None:
    """A server that builds the whole stream for a read cannot be given long streams."""
    message = b"x" * 64 * 1024
    with DurableServer(chunk_bytes=128 * 1024) as server:
        server.make("s", *([message] * 160), content_type=BYTES)
        offset = server.get("s", "-1").next
        read: list[int] = []
        store = server.engine.store
        last_before = store.last_before

        def counted(key: bytes, floor: bytes) -> tuple[bytes, bytes] | None:
            found = last_before(key, floor)
            read.append(0 if found is None else len(found[1]))
            return found

        store.last_before = counted  # type: ignore[method-assign]
        reply = server.get("s", offset)
        assert len(reply.body) == 128 * 1024
        assert len(read) <= 3
        assert sum(read) < 1024 * 1024


def test_a_long_read_gives_way_to_others_between_its_steps() -> None:
    """Also: a stream deleted meanwhile is not there any more, which is no corruption."""
    with DurableServer(chunk_bytes=4 * 1024 * 1024) as server:
        server.make("s", *([b"x" * 300 * 1024] * 4), content_type=BYTES)
        answers: list[Reply | Exception] = []
        reading = server.begin("GET", "s", "offset=-1")
        assert isinstance(reading, Pending)
        reading.then(Reply).deliver(answers.append)
        assert server.delete().status == 204
        server.engine.sweeper.sweep()
        server.settle()
        server.runner.turn(10)
        (reply,) = answers
        assert isinstance(reply, Reply)
        assert reply.error == "stream_not_found"
