"""Forks: where they leave their source, what they share with it, what ends. PROTOCOL §4.2."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.storage.rocks import RocksStore
from tests.support.clock import FakeClock
from tests.support.durable import (
    BEYOND,
    BYTES,
    JSON,
    NOW_MS,
    START,
    TEXT,
    DurableServer,
    Headers,
    producer,
    token,
)
from tests.support.engines import small_sizes

SOURCE = "/v1/stream/s"


# -- create


def test_a_fork_begins_as_its_source_did(server: DurableServer) -> None:
    tail = server.make("s", b"hello ", b"world")
    reply = server.put("f", stream_forked_from=SOURCE)
    assert (reply.status, reply.next) == (201, tail)
    assert reply.headers["content-type"] == TEXT
    assert reply.headers["location"] == "http://test/v1/stream/f"
    assert server.content("f") == b"hello world"


def test_a_fork_of_a_closed_stream_is_open(server: DurableServer) -> None:
    server.make("s", b"hello")
    server.close()
    server.fork("f")
    assert not server.get("f").closed
    server.append("f", b" world")
    assert server.content("f") == b"hello world"


def test_a_fork_may_be_created_closed(server: DurableServer) -> None:
    server.make("s", b"hello")
    reply = server.put("f", b" end", stream_forked_from=SOURCE, stream_closed="true")
    assert (reply.status, reply.closed) == (201, True)
    assert server.content("f") == b"hello end"


def test_a_body_comes_after_the_inherited_part(server: DurableServer) -> None:
    server.make("s", b"[1,2,3]", content_type=JSON)
    reply = server.put("f", b"[8,9]", stream_forked_from=SOURCE, stream_fork_offset=token(1, 1))
    assert (reply.status, reply.next) == (201, token(3, 3))
    assert server.content("f") == b"[1,8,9]"


def test_the_source_may_be_named_in_any_spelling(server: DurableServer) -> None:
    server.make("a/b", b"hello")
    assert server.put("f", stream_forked_from="/v1/stream/a%2Fb").status == 201
    assert server.put("f", stream_forked_from="/v1/stream/a/b").status == 200


@pytest.mark.parametrize(
    ("offset", "inherited"),
    [
        pytest.param(None, b"onetwothree", id="the tail unless told otherwise"),
        pytest.param("now", b"onetwothree", id="now is the tail"),
        pytest.param("-1", b"", id="the beginning"),
        pytest.param(START, b"", id="the start token"),
        pytest.param(token(1, 3), b"one", id="after the first append"),
        pytest.param(token(2, 6), b"onetwo", id="after the second"),
        pytest.param(token(3, 11), b"onetwothree", id="the tail token"),
    ],
)
def test_a_fork_leaves_its_source_at_an_offset(
    server: DurableServer, offset: str | None, inherited: bytes
) -> None:
    server.make("s", b"one", b"two", b"three")
    headers = {} if offset is None else {"stream_fork_offset": offset}
    tail = server.fork("f", **headers)
    assert server.content("f") == inherited
    assert server.get("f").next == tail
    assert server.append("f", b"!") > tail
    assert server.content("f") == inherited + b"!"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        pytest.param({"stream_fork_offset": BEYOND}, 400, "invalid_offset", id="past the tail"),
        pytest.param(
            {"stream_fork_offset": token(2, 7)}, 400, "invalid_offset", id="other bytes at the tail"
        ),
        pytest.param({"stream_fork_offset": token(1, 2)}, 400, "invalid_offset", id="other bytes"),
        pytest.param({"stream_fork_offset": "x"}, 400, "invalid_offset", id="malformed"),
        pytest.param({"stream_fork_offset": ""}, 400, "invalid_offset", id="empty"),
        pytest.param({"stream_forked_from": "s"}, 400, "invalid_request", id="not a path"),
        pytest.param({"stream_forked_from": ""}, 400, "invalid_request", id="empty source"),
        pytest.param({"stream_forked_from": "/v1/stream/"}, 400, "invalid_request", id="no name"),
        pytest.param(
            {"stream_forked_from": "/v1/stream/a/../s"}, 400, "invalid_request", id="dots"
        ),
        pytest.param({"stream_forked_from": "/other/s"}, 400, "invalid_request", id="other root"),
        pytest.param({"stream_forked_from": "/v1/stream/x"}, 404, "stream_not_found", id="missing"),
        pytest.param({"content_type": JSON}, 409, "content_type_mismatch", id="other content type"),
        pytest.param(producer("p", 0, 1), 409, "producer_gap", id="producer not at 0"),
    ],
)
def test_a_fork_that_is_refused_leaves_nothing_behind(
    server: DurableServer, headers: Headers, status: int, code: str
) -> None:
    server.make("s", b"one", b"two")
    reply = server.put("f", **{"stream_forked_from": SOURCE, **headers})
    assert (reply.status, reply.error) == (status, code)
    assert server.head("f").status == 404
    assert server.delete("s").status == 204
    assert server.head("s").status == 404, "no reference was leaked"


def test_an_offset_past_the_source_is_refused_with_its_tail(server: DurableServer) -> None:
    tail = server.make("s", b"one")
    reply = server.put("f", stream_forked_from=SOURCE, stream_fork_offset=BEYOND)
    assert reply.next == tail


@pytest.mark.parametrize("header", ["stream_fork_offset", "stream_fork_sub_offset"])
def test_fork_headers_need_a_source(server: DurableServer, header: str) -> None:
    value = START if header == "stream_fork_offset" else "0"
    assert server.put("f", **{header: value}).error == "invalid_request"


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        pytest.param({}, {}, 200, id="nothing asked for"),
        pytest.param({"content_type": TEXT}, {}, 200, id="content type left out"),
        pytest.param({}, {"content_type": "TEXT/plain"}, 200, id="content type spelt out"),
        pytest.param({}, {"content_type": JSON}, 409, id="other content type"),
        pytest.param({}, {"stream_fork_offset": token(2, 6)}, 200, id="the offset it had"),
        pytest.param({}, {"stream_fork_offset": token(1, 3)}, 409, id="other offset"),
        pytest.param(
            {"stream_fork_offset": token(1, 3), "stream_fork_sub_offset": "2"},
            {"stream_fork_offset": token(1, 3), "stream_fork_sub_offset": "2"},
            200,
            id="same sub-offset",
        ),
        pytest.param(
            {"stream_fork_offset": token(1, 3), "stream_fork_sub_offset": "2"},
            {"stream_fork_offset": token(1, 3), "stream_fork_sub_offset": "1"},
            409,
            id="other sub-offset",
        ),
        pytest.param(
            {"stream_fork_offset": token(1, 3), "stream_fork_sub_offset": "2"},
            {"stream_fork_offset": token(1, 3)},
            409,
            id="sub-offset left out",
        ),
        pytest.param({}, {"stream_ttl": "60"}, 409, id="lifetime added"),
        pytest.param({"stream_ttl": "60"}, {}, 200, id="lifetime left out"),
        pytest.param({}, {"stream_forked_from": "/v1/stream/t"}, 409, id="other source"),
        pytest.param({}, {"stream_closed": "true"}, 409, id="closed"),
    ],
)
def test_a_repeated_fork_succeeds_only_with_the_same_configuration(
    server: DurableServer, first: Headers, second: Headers, status: int
) -> None:
    server.make("s", b"one", b"two")
    server.make("t", b"one", b"two")
    assert server.put("f", **{"stream_forked_from": SOURCE, **first}).status == 201
    assert server.put("f", **{"stream_forked_from": SOURCE, **second}).status == status


def test_a_repeated_fork_does_not_mind_that_its_source_moved_on(server: DurableServer) -> None:
    server.make("s", b"one")
    server.fork("f")
    server.append("s", b"two")
    assert server.put("f", stream_forked_from=SOURCE).status == 200
    assert server.content("f") == b"one"


def test_a_fork_and_a_plain_stream_are_not_the_same(server: DurableServer) -> None:
    server.make("s", b"one")
    server.make("t", b"one")
    server.fork("f")
    assert server.put("t", stream_forked_from=SOURCE).error == "stream_exists"
    assert server.put("f", content_type=TEXT).error == "stream_exists"


# -- sub-offsets


@pytest.mark.parametrize(
    ("offset", "sub", "inherited"),
    [
        pytest.param(START, "0", b"[]", id="zero is the offset itself"),
        pytest.param(START, "1", b"[1]", id="one message"),
        pytest.param(START, "2", b"[1,22]", id="two messages"),
        pytest.param(START, "3", b"[1,22,333]", id="as many as the append has"),
        pytest.param(START, "003", b"[1,22,333]", id="leading zeros"),
        pytest.param(START, "4", None, id="one more than the append has"),
        pytest.param(token(1, 1), "1", b"[1,22]", id="from inside an append"),
        pytest.param(token(1, 1), "3", None, id="from inside, past the append"),
        pytest.param(token(3, 6), "1", b"[1,22,333,4]", id="the next append"),
        pytest.param(token(3, 6), "2", None, id="past the next append"),
        pytest.param(token(4, 7), "0", b"[1,22,333,4]", id="the tail"),
        pytest.param(token(4, 7), "1", None, id="past the tail"),
    ],
)
def test_a_sub_offset_counts_json_messages_inside_one_append(
    server: DurableServer, offset: str, sub: str, inherited: bytes | None
) -> None:
    server.make("s", b"[1, 22, 333]", b"4", content_type=JSON)
    check_fork(server, offset, sub, inherited)


@pytest.mark.parametrize(
    ("offset", "sub", "inherited"),
    [
        pytest.param(START, "0", b"", id="zero"),
        pytest.param(START, "1", b"h", id="one byte"),
        pytest.param(START, "5", b"hello", id="as many as the append has"),
        pytest.param(START, "6", None, id="one more"),
        pytest.param(token(1, 5), "2", b"hellowo", id="the next append"),
        pytest.param(token(1, 5), "5", b"helloworld", id="to the tail"),
        pytest.param(token(1, 5), "6", None, id="past the tail"),
        pytest.param(token(2, 10), "1", None, id="nothing there"),
        pytest.param(START, "9" * 16, None, id="absurd"),
    ],
)
@pytest.mark.parametrize("content_type", [TEXT, BYTES])
def test_a_sub_offset_counts_bytes_inside_one_append(
    server: DurableServer, content_type: str, offset: str, sub: str, inherited: bytes | None
) -> None:
    server.make("s", b"hello", b"world", content_type=content_type)
    check_fork(server, offset, sub, inherited)


def check_fork(server: DurableServer, offset: str, sub: str, inherited: bytes | None) -> None:
    headers = {"stream_fork_offset": offset, "stream_fork_sub_offset": sub}
    reply = server.put("f", stream_forked_from=SOURCE, **headers)
    if inherited is None:
        assert (reply.status, reply.error) == (400, "invalid_request")
        assert server.head("f").status == 404
        return
    assert reply.status == 201
    assert server.content("f") == inherited
    assert server.get("f").next == reply.next == server.head("f").next
    assert server.put("f", stream_forked_from=SOURCE, **headers).status == 200


@pytest.mark.parametrize("sub", ["", "-1", "+1", "1.0", "x", " 1", "1" * 17])
def test_a_malformed_sub_offset_is_refused(server: DurableServer, sub: str) -> None:
    server.make("s", b"hello")
    headers = {"stream_fork_offset": START, "stream_fork_sub_offset": sub}
    assert server.put("f", stream_forked_from=SOURCE, **headers).error == "invalid_request"


@pytest.mark.parametrize("offset", [None, "now"])
def test_a_sub_offset_needs_an_offset_unless_it_is_zero(
    server: DurableServer, offset: str | None
) -> None:
    server.make("s", b"hello")
    headers = {"stream_forked_from": SOURCE}
    if offset is not None:
        headers["stream_fork_offset"] = offset
    assert server.put("f", stream_fork_sub_offset="1", **headers).error == "invalid_request"
    assert server.put("f", stream_fork_sub_offset="0", **headers).status == 201


@pytest.mark.parametrize("sub", range(0, 101, 4))
def test_a_sub_offset_may_lie_anywhere_in_a_message_of_many_records(sub: int) -> None:
    body = bytes(range(100))
    with small_sizes(record_bytes=16), DurableServer() as server:
        server.make("s", body, content_type=BYTES)
        server.fork("f", stream_fork_offset=START, stream_fork_sub_offset=str(sub))
        assert server.content("f") == body[:sub]
        server.append("f", b"!")
        assert server.content("f") == body[:sub] + b"!"
        if sub:
            server.fork("g", "f", stream_fork_offset=START, stream_fork_sub_offset=str(sub // 2))
            assert server.content("g") == body[: sub // 2]


def test_a_fork_inside_a_long_message_is_refused(server: DurableServer) -> None:
    part = 1024 * 1024 - 64 * 1024
    server.make("s", b"x" * (part + 1), content_type=BYTES)
    reply = server.put("f", stream_forked_from=SOURCE, stream_fork_offset=token(1, part))
    assert reply.error == "invalid_offset"


# -- two lives


def test_what_happens_to_the_source_later_is_not_seen(server: DurableServer) -> None:
    tail = server.make("s", b"one")
    server.fork("f")
    poll, follower = server.poll("f", tail), server.follow("f", tail)
    server.append("s", b"two")
    server.close("s")
    assert poll.waiting
    assert (len(follower.events), follower.ended) == (1, False)
    assert (server.content("f"), server.get("f").closed) == (b"one", False)
    server.append("f", b"2")
    assert (poll.reply.body, follower.text) == (b"2", "2")
    assert server.content("s") == b"onetwo"


def test_the_inherited_part_is_served_at_once_to_live_readers(server: DurableServer) -> None:
    middle = server.make("s", b"one")
    server.append("s", b"two")
    server.fork("f")
    server.append("f", b"three")
    assert server.poll("f", "-1").reply.body == b"onetwothree"
    assert server.poll("f", middle).reply.body == b"twothree"
    assert server.follow("f", "-1").text == "onetwothree"


def test_offsets_of_the_inherited_part_are_those_of_the_source(server: DurableServer) -> None:
    server.make("s")
    tails = [server.append("s", body) for body in (b"one", b"two", b"three")]
    server.fork("f", stream_fork_offset=tails[1])
    server.append("f", b"own")
    for tail, rest in zip(tails[:2], [b"twoown", b"own"], strict=True):
        assert server.content("f", tail) == rest
    assert server.get("f", tails[2]).error == "invalid_offset", "the source went another way"


def test_json_of_source_and_fork_is_one_array(server: DurableServer) -> None:
    server.make("s", b"[1,2]", content_type=JSON)
    server.fork("f", stream_fork_offset=token(1, 1))
    server.append("f", b"[3,4]")
    assert server.content("f") == b"[1,3,4]"


def test_writers_are_not_inherited(server: DurableServer) -> None:
    server.make("s")
    server.append("s", b"one", stream_seq="9", **producer("p", 5, 0))
    server.fork("f")
    assert server.post("f", b"2", content_type=TEXT, stream_seq="1").status == 204
    assert server.post("f", b"3", content_type=TEXT, **producer("p", 0, 0)).status == 200
    assert server.post("f", b"4", content_type=TEXT, **producer("p", 5, 1)).status == 400


def test_forks_of_forks(server: DurableServer) -> None:
    server.make("s", b"0")
    previous = "s"
    for depth in range(1, 8):
        server.fork(f"f{depth}", previous)
        server.append(f"f{depth}", b"%d" % depth)
        previous = f"f{depth}"
    assert server.content("f7") == b"01234567"
    for depth in range(1, 7):
        assert server.delete(f"f{depth}").status == 204
    assert server.content("f7") == b"01234567"


@settings(max_examples=40, deadline=None)
@given(data=st.data(), json_mode=st.booleans())
def test_a_tree_of_forks_reads_like_copies(data: st.DataObject, json_mode: bool) -> None:
    """Against a model: each fork is a copied list of messages."""
    with small_sizes(record_bytes=4), DurableServer(chunk_bytes=7) as server:
        server.make("0", content_type=JSON if json_mode else TEXT)
        model: list[list[tuple[str, bytes]]] = [[]]
        for _ in range(data.draw(st.integers(1, 10))):
            name = data.draw(st.integers(0, len(model) - 1))
            if data.draw(st.booleans()):
                size = data.draw(st.integers(1, 12))
                body = b'"%b"' % (b"x" * size) if json_mode else bytes([97 + size]) * size
                model[name].append((server.append(str(name), body), body))
            else:
                kept = data.draw(st.integers(0, len(model[name])))
                at = model[name][kept - 1][0] if kept else START
                server.fork(str(len(model)), str(name), stream_fork_offset=at)
                model.append(model[name][:kept])
        for name, messages in enumerate(model):
            bodies = [body for _, body in messages]
            found, offset = b"", "-1"
            while True:
                reply = server.get(str(name), offset)
                part = reply.body[1:-1] if json_mode else reply.body
                found += (b"," if json_mode and found and part else b"") + part
                offset = reply.next
                if reply.up_to_date:
                    break
            assert found == (b"," if json_mode else b"").join(bodies)


# -- lifetimes


@pytest.mark.parametrize(
    ("source", "fork", "expected"),
    [
        pytest.param({}, {}, {}, id="none"),
        pytest.param({"stream_ttl": "60"}, {}, {"stream-ttl": "60"}, id="TTL inherited"),
        pytest.param(
            {"stream_expires_at": "2030-01-01T00:00:00Z"},
            {},
            {"stream-expires-at": "2030-01-01T00:00:00.000Z"},
            id="expiry inherited",
        ),
        pytest.param(
            {"stream_ttl": "60"}, {"stream_ttl": "3600"}, {"stream-ttl": "3600"}, id="not capped"
        ),
        pytest.param(
            {"stream_ttl": "60"},
            {"stream_expires_at": "2030-01-01T00:00:00Z"},
            {"stream-expires-at": "2030-01-01T00:00:00.000Z"},
            id="another kind",
        ),
        pytest.param({}, {"stream_ttl": "60"}, {"stream-ttl": "60"}, id="its own"),
    ],
)
def test_a_fork_has_its_own_lifetime_or_that_of_its_source(
    server: DurableServer, source: Headers, fork: Headers, expected: Headers
) -> None:
    server.make("s", b"one", **source)
    reply = server.put("f", stream_forked_from=SOURCE, **fork)
    for headers in (reply.headers, server.head("f").headers):
        found = {name: headers[name] for name in headers if name in LIFETIME}
        assert found == expected


LIFETIME = ("stream-ttl", "stream-expires-at")


def test_an_inherited_window_is_the_forks_own(server: DurableServer) -> None:
    server.make("s", b"one", stream_ttl="100")
    server.advance(60)
    server.fork("f")
    server.advance(60)
    assert server.head("s").status == 410
    assert server.content("f") == b"one"


def test_an_inherited_anchor_comes_along(server: DurableServer) -> None:
    server.make("s", b"one", stream_ttl="100", stream_ttl_anchor="creation")
    server.fork("f")
    assert server.head("f").headers["stream-ttl-anchor"] == "creation"


# -- the end of a source


@pytest.mark.parametrize("how", ["deleted", "expired", "expired, not swept yet"])
def test_a_source_that_ended_is_kept_for_its_forks_only(server: DurableServer, how: str) -> None:
    """Making it again while forks read it would rewrite their history."""
    server.make("s", b"AAAA", stream_ttl="10")
    server.fork("f", stream_ttl="1000")
    if how == "deleted":
        assert server.delete("s").status == 204
    elif how == "expired":
        server.advance(11)
    else:
        server.clock.advance(10)
    gone = [
        server.post("s", b"x", content_type=TEXT),
        server.post("s", stream_closed="true"),
        server.delete("s"),
        server.get("s"),
        server.get("s", "now"),
        server.head("s"),
        server.poll("s").reply,
        server.query("s", "offset=-1&live=sse"),
    ]
    assert [(reply.status, reply.error) for reply in gone] == [(410, "stream_gone")] * 8
    assert server.put("s", b"BBBB", content_type=TEXT).error == "stream_exists"
    assert server.put("s", b"BBBB", content_type=TEXT, stream_ttl="10").error == "stream_exists"
    assert server.put("g", stream_forked_from=SOURCE).error == "fork_refused"
    assert server.content("f") == b"AAAA"


def test_when_the_last_fork_is_gone_the_name_is_free(server: DurableServer) -> None:
    server.make("s", b"one")
    server.fork("f")
    server.fork("g")
    server.delete("s")
    server.delete("f")
    assert server.head("s").status == 410
    server.delete("g")
    assert server.head("s").status == 404
    assert server.make("s", b"two") == token(1, 3)
    assert server.content("s") == b"two"


def test_the_end_of_a_chain_frees_all_of_it(server: DurableServer) -> None:
    server.make("s", b"one")
    server.fork("f")
    server.fork("g", "f")
    server.delete("s")
    server.delete("f")
    assert (server.head("s").status, server.head("f").status) == (410, 410)
    server.delete("g")
    assert [server.head(name).status for name in "sfg"] == [404, 404, 404]


def test_a_fork_that_expires_frees_its_source(server: DurableServer) -> None:
    server.make("s", b"one")
    server.fork("f", stream_ttl="10")
    server.delete("s")
    server.advance(12)
    assert server.head("s").status == 404


@pytest.mark.parametrize("swept", [False, True])
def test_an_expired_source_without_forks_is_missing(server: DurableServer, swept: bool) -> None:
    server.make("s", b"one", stream_ttl="10")
    if swept:
        server.advance(12)
    else:
        server.clock.advance(10)
    assert server.put("f", stream_forked_from=SOURCE).error == "stream_not_found"


def test_a_source_kept_alive_by_readers_may_be_forked(server: DurableServer) -> None:
    server.make("s", b"one", stream_ttl="100")
    server.advance(20)
    server.get("s")
    server.advance(90)
    assert server.put("f", stream_forked_from=SOURCE).status == 201


def test_forks_survive_a_restart(tmp_path: Path) -> None:
    clock = FakeClock(NOW_MS)
    with DurableServer(RocksStore(tmp_path), clock) as server:
        server.make("s", b"hello", b"world")
        server.fork("f", stream_fork_offset=token(1, 5), stream_fork_sub_offset="2")
        server.append("f", b"!")
        server.delete("s")
        server.runner.close()
    with DurableServer(RocksStore(tmp_path), clock) as server:
        assert server.content("f") == b"hellowo!"
        assert server.get("s").status == 410
        assert server.put("s", content_type=TEXT).status == 409
        assert server.delete("f").status == 204
        assert server.get("s").status == 404
        server.runner.close()
