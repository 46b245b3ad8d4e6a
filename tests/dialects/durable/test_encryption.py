"""Encrypted streams over the Durable Streams protocol: as any other, with the key."""

from __future__ import annotations

import gzip
import json
import logging
from base64 import b64decode
from collections.abc import Iterator

import pytest

from headwater.core.names import DURABLE_STREAMS_BUCKET
from tests.support.durable import (
    BYTES,
    JSON,
    TEXT,
    DurableServer,
    Headers,
    Reply,
    producer,
    token,
)
from tests.support.keys import CIPHERS, KEY, OTHER_KEY, WITH_KEY, WITH_OTHER, encrypt_bucket
from tests.support.uploads import IncrementalPost

NO_KEYS: list[Headers] = [
    {},
    {"s2_encryption_key": ""},
    {"s2_encryption_key": "c2hvcnQ="},
    {"s2_encryption_key": KEY + "?"},
]


@pytest.fixture(params=CIPHERS)
def server(request: pytest.FixtureRequest) -> Iterator[DurableServer]:
    with DurableServer() as server:
        encrypt_bucket(server.runner, DURABLE_STREAMS_BUCKET, request.param)
        yield server


@pytest.fixture
def stream(server: DurableServer) -> str:
    """One text stream with two appends, and its tail."""
    server.make("s")
    server.append("s", b"one ", **WITH_KEY)
    return server.append("s", b"two", **WITH_KEY)


def code(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.error


# -- writing


@pytest.mark.parametrize("wrong", NO_KEYS)
def test_whoever_writes_sends_a_key(server: DurableServer, stream: str, wrong: Headers) -> None:
    for reply in (
        server.post("s", b"x", content_type=TEXT, **wrong),
        server.put("new", b"x", content_type=TEXT, **wrong),
        server.put("fork", b"x", stream_forked_from="/v1/stream/s", **wrong),
    ):
        assert code(reply) == (400, "key_required")
        assert any(cipher in reply.body.decode() for cipher in CIPHERS)
        assert KEY not in reply.body.decode()
    assert server.head("s").next == stream
    assert server.head("new").status == 404


def test_what_adds_nothing_needs_none(server: DurableServer, stream: str) -> None:
    assert server.head("s").next == stream
    assert server.put("s", content_type=TEXT).status == 200
    server.fork("f")
    assert server.close("s") == stream
    assert code(server.post("s", b"x", content_type=TEXT)) == (409, "stream_closed")
    assert server.delete("s").status == 204


def test_a_create_may_bring_the_first_of_it(server: DurableServer) -> None:
    reply = server.put("j", b"[1, 2]", content_type=JSON, **WITH_KEY)
    assert (reply.status, reply.next) == (201, token(2, 2))
    assert server.get("j", "-1", **WITH_KEY).body == b"[1,2]"
    assert code(server.put("k", b"[1", content_type=JSON, **WITH_KEY)) == (400, "invalid_request")
    assert server.put("j", b"[3]", content_type=JSON, **WITH_KEY).status == 200
    assert server.get("j", "-1", **WITH_KEY).body == b"[1,2]"


def test_conditions_are_judged_as_ever(server: DurableServer) -> None:
    server.make("j", content_type=JSON)
    headers: Headers = {"content_type": JSON, **WITH_KEY}
    assert server.post("j", b"[1,2]", **headers, **producer(seq=0)).status == 200
    assert server.post("j", b"[1,2]", **headers, **producer(seq=0)).status == 204
    assert code(server.post("j", b"3", **headers, **producer(seq=2))) == (409, "producer_gap")
    assert server.post("j", b"3", **headers, stream_seq="b").next == token(3, 3)
    assert code(server.post("j", b"4", **headers, stream_seq="a")) == (409, "sequence_regression")
    late = server.post("j", b"4", **headers, if_match=token(0, 0))
    assert code(late) == (412, "precondition_failed")
    assert code(server.post("j", b"{", **headers)) == (400, "invalid_request")
    assert code(server.post("j", b"x", content_type=TEXT, **WITH_KEY)) == (
        409,
        "content_type_mismatch",
    )
    ended = server.post("j", b"[4]", **headers, stream_closed="true")
    assert (ended.status, ended.closed) == (204, True)
    reply = server.get("j", "-1", **WITH_KEY)
    assert (reply.body, reply.closed) == (b"[1,2,3,4]", True)


def test_an_incremental_append_is_sealed_line_by_line(server: DurableServer) -> None:
    server.make("s", content_type=JSON)
    post = IncrementalPost(server, "s", content_type=JSON, **WITH_KEY, **producer())
    post.send(b'{"a":1}\n[2]\n')
    reply = post.finish(b"3\n")
    assert (reply.status, reply.headers["stream-append-count"]) == (200, "3")
    assert server.get("s", "-1", **WITH_KEY).body == b'[{"a":1},[2],3]'


def test_an_incremental_append_without_a_key_is_refused_before_its_body(
    server: DurableServer,
) -> None:
    server.make("s", content_type=TEXT)
    post = IncrementalPost(server, "s", content_type=TEXT)
    assert code(post.reply) == (400, "key_required")


# -- reading


@pytest.mark.parametrize("wrong", NO_KEYS)
@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_whoever_reads_sends_a_key(
    server: DurableServer, stream: str, live: str, wrong: Headers
) -> None:
    for offset in ("-1", stream, "now"):
        reply = server.query("s", f"offset={offset}{live}", **wrong)
        assert code(reply) == (400, "key_required")
    assert not server.engine.followers


@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_another_key_opens_nothing(server: DurableServer, stream: str, live: str) -> None:
    reply = server.query("s", f"offset=-1{live}", **WITH_OTHER)
    assert code(reply) == (400, "decryption_failed")
    assert not server.engine.followers


def test_offsets_are_those_of_what_was_written(server: DurableServer, stream: str) -> None:
    assert stream == token(2, 7)
    assert server.get("s", "-1", **WITH_KEY).body == b"one two"
    reply = server.get("s", token(1, 4), **WITH_KEY)
    assert (reply.body, reply.next, reply.up_to_date) == (b"two", stream, True)
    assert server.get("s", "now", **WITH_KEY).body == b""


def test_nothing_of_it_is_kept_by_a_cache(server: DurableServer, stream: str) -> None:
    for offset in ("-1", token(1, 4), stream, "now"):
        reply = server.get("s", offset, **WITH_KEY, if_none_match="*")
        assert reply.status == 200
        assert reply.headers["cache-control"] == "no-store"
        assert "etag" not in reply.headers
    poll = server.poll("s", "-1", **WITH_KEY)
    assert poll.reply.headers["cache-control"] == "no-store" and "etag" not in poll.reply.headers
    assert server.follow("s", "-1", **WITH_KEY).reply.headers["cache-control"] == "no-store"


def test_answers_are_compressed_as_ever(server: DurableServer) -> None:
    server.make("s")
    server.append("s", b"again and " * 1000, **WITH_KEY)
    reply = server.get("s", "-1", accept_encoding="gzip", **WITH_KEY)
    assert reply.headers["content-encoding"] == "gzip" and "etag" not in reply.headers
    assert gzip.decompress(reply.body) == b"again and " * 1000


def test_a_long_message_is_put_together(server: DurableServer) -> None:
    server.make("s", content_type=BYTES)
    text = bytes(range(256)) * 10_000
    server.append("s", text, b"end", **WITH_KEY)
    assert server.get("s", "-1", **WITH_KEY).body == text
    assert server.get("s", token(3, len(text)), **WITH_KEY).body == b"end"


def test_a_long_poll_is_answered_with_what_came(server: DurableServer, stream: str) -> None:
    right = server.poll("s", stream, **WITH_KEY)
    wrong = server.poll("s", stream, **WITH_OTHER)
    server.append("s", b"three", **WITH_KEY)
    assert right.reply.body == b"three"
    assert code(wrong.reply) == (400, "decryption_failed")


# -- live


def test_followers_with_keys_of_their_own_share_nothing(server: DurableServer, stream: str) -> None:
    readers = [server.follow("s", stream, **WITH_KEY) for _ in range(20)]
    others = [server.follow("s", stream, **WITH_OTHER) for _ in range(20)]
    server.append("s", b"only for some", **WITH_KEY)
    assert {reader.text for reader in readers} == {"only for some"}
    assert all(not reader.ended for reader in readers)
    for other in others:
        assert other.ended and other.data == []
        assert b"only" not in other.received
    assert server.engine.followers == 20


def test_a_reader_with_the_wrong_key_is_told_when_it_comes_back(
    server: DurableServer, stream: str
) -> None:
    follower = server.follow("s", stream, **WITH_OTHER)
    server.append("s", b"x", **WITH_KEY)
    assert follower.ended and not follower.writer.aborted
    last = follower.controls[-1]["streamNextOffset"]
    again = server.query("s", f"offset={last}&live=sse", **WITH_OTHER)
    assert code(again) == (400, "decryption_failed")


def test_events_are_those_of_a_plain_stream(server: DurableServer) -> None:
    server.make("j", content_type=JSON)
    server.make("b", content_type=BYTES)
    lines, chunks = (server.follow(name, "-1", **WITH_KEY) for name in ("j", "b"))
    server.append("j", b'[{"a": 1}, 2]', **WITH_KEY)
    server.append("b", b"\0\xff", **WITH_KEY)
    assert [json.loads(data) for data in lines.data] == [[{"a": 1}, 2]]
    assert [b64decode(data) for data in chunks.data] == [b"\0\xff"]
    assert chunks.reply.headers["stream-sse-data-encoding"] == "base64"


def test_a_character_in_two_appends_comes_whole(server: DurableServer) -> None:
    server.make("s", content_type="text/plain; charset=utf-8")
    first, second = "a é".encode()[:-1], "é".encode()[-1:]
    follower = server.follow("s", "-1", **WITH_KEY)
    server.append("s", first, **WITH_KEY)
    server.append("s", second, **WITH_KEY)
    assert follower.text == "a é"


# -- forks


def test_a_fork_goes_on_with_the_same_key_or_another(server: DurableServer, stream: str) -> None:
    encrypt_bucket(server.runner, DURABLE_STREAMS_BUCKET, None)
    server.fork("f", stream_fork_offset=token(1, 4))
    server.append("f", b"fork", **WITH_KEY)
    assert server.get("f", "-1", **WITH_KEY).body == b"one fork"
    server.append("f", b"!", **WITH_OTHER)
    assert code(server.get("f", "-1", **WITH_KEY)) == (400, "decryption_failed")
    assert server.get("f", token(2, 8), **WITH_OTHER).body == b"!"


def test_a_stream_stays_what_it_was_made(server: DurableServer, stream: str) -> None:
    encrypt_bucket(server.runner, DURABLE_STREAMS_BUCKET, None)
    server.make("plain", b"a")
    assert server.content("plain") == b"a"
    assert server.get("plain", "-1", **WITH_OTHER).body == b"a"
    assert code(server.get("s", "-1")) == (400, "key_required")


# -- what else is told


def test_no_key_and_no_text_is_logged(
    server: DurableServer, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        follower = server.follow("s", stream, **WITH_OTHER)
        server.append("s", b"a secret", **WITH_KEY)
        server.get("s", "-1", **WITH_KEY)
        server.get("s", "-1", **WITH_OTHER)
        server.get("s", "-1", s2_encryption_key=KEY[:-2])
        assert follower.ended
    for hidden in (KEY[:16], OTHER_KEY[:16], "secret"):
        assert hidden not in caplog.text
