"""HEAD {stream}. PROTOCOL §5.5."""

from __future__ import annotations

from tests.support.durable import JSON, TEXT, DurableServer, token


def test_head_tells_what_a_reader_needs_and_no_more(server: DurableServer) -> None:
    server.make("s", b"hello")
    reply = server.head()
    assert (reply.status, reply.body, reply.next) == (200, b"", token(1, 5))
    assert reply.headers["content-type"] == TEXT
    assert reply.headers["cache-control"] == "no-store"
    assert not reply.closed
    absent = {"stream-ttl", "stream-ttl-remaining", "stream-ttl-anchor", "stream-expires-at"}
    assert not (absent | {"etag", "stream-cursor", "stream-up-to-date"}) & reply.headers.keys()


def test_head_tells_that_a_stream_is_closed(server: DurableServer) -> None:
    server.make("s", b"hello")
    server.close()
    assert server.head().closed


def test_head_counts_json_as_its_messages(server: DurableServer) -> None:
    server.make("s", b"[1, 22]", content_type=JSON)
    assert server.head().next == token(2, 3)


def test_head_ignores_the_query(server: DurableServer) -> None:
    server.make("s", b"hello")
    reply = server.request("HEAD", "s", "offset=nonsense&live=sse")
    assert (reply.status, reply.next) == (200, token(1, 5))


def test_head_and_reads_agree_on_the_tail(server: DurableServer) -> None:
    server.make("s", b"a", b"b", b"c")
    assert server.head().next == server.get().next == server.get("s", "now").next
