"""ETag, If-None-Match and Cache-Control. PROTOCOL §10."""

from __future__ import annotations

import pytest

from tests.support.clock import FakeClock
from tests.support.durable import NOW_MS, START, TEXT, DurableServer, Headers, token

SHARED = "public, max-age=60, stale-while-revalidate=300"


# -- entity tags


def test_a_tag_names_the_stream_and_the_range(server: DurableServer) -> None:
    tail = server.make("s", b"hello")
    tag = server.get().etag
    assert tag.startswith('"') and tag.endswith(f':{START}:{tail}"')
    assert server.get().etag == tag


def test_what_changed_has_another_tag(server: DurableServer) -> None:
    tail = server.make("s", b"hello")
    tags = [server.get().etag, server.get("s", tail).etag]
    server.append("s", b"world")
    tags += [server.get().etag, server.get("s", tail).etag]
    server.close()
    tags += [server.get().etag, server.get("s", tail).etag]
    assert len(set(tags)) == len(tags)


def test_the_same_range_of_another_stream_has_another_tag(server: DurableServer) -> None:
    server.make("s", b"hello")
    server.make("t", b"hello")
    assert server.get("s").etag != server.get("t").etag


@pytest.mark.parametrize(
    "form",
    ["{}", "W/{}", '"x", {}', '"x",W/{} , "y"', "*"],
    ids=["the tag", "weak", "in a list", "weak in a list", "star"],
)
def test_a_known_tag_is_not_sent_again(server: DurableServer, form: str) -> None:
    server.make("s", b"hello")
    full = server.get()
    reply = server.get("s", "-1", if_none_match=form.format(full.etag))
    assert (reply.status, reply.body) == (304, b"")
    assert reply.headers == full.headers


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_304_names_the_representation_that_the_client_has(
    server: DurableServer, coding: str
) -> None:
    server.make("s", b"hello " * 1000)
    full = server.get("s", "-1", accept_encoding=coding)
    assert full.headers["content-encoding"] == coding
    again = server.get("s", "-1", accept_encoding=coding, if_none_match=full.etag)
    assert (again.status, again.etag) == (304, full.etag)
    assert server.get("s").etag != full.etag


@pytest.mark.parametrize("form", ['"x"', "", "hello", '"x", "y"'])
def test_an_unknown_tag_gets_the_data(server: DurableServer, form: str) -> None:
    server.make("s", b"hello")
    assert server.get("s", "-1", if_none_match=form).body == b"hello"


def test_a_304_never_hides_new_data(server: DurableServer) -> None:
    server.make("s", b"hello")
    tag = server.get().etag
    server.append("s", b"world")
    assert server.get("s", "-1", if_none_match=tag).body == b"helloworld"


@pytest.mark.parametrize("at_tail", [False, True])
def test_a_304_never_hides_closure(server: DurableServer, at_tail: bool) -> None:
    tail = server.make("s", b"hello")
    offset = tail if at_tail else "-1"
    open_tag = server.get("s", offset).etag
    server.close()
    reply = server.get("s", offset, if_none_match=open_tag)
    assert (reply.status, reply.closed) == (200, True)
    again = server.get("s", offset, if_none_match=reply.etag)
    assert (again.status, again.closed) == (304, True)


def test_a_stream_made_again_under_the_same_name_never_matches(server: DurableServer) -> None:
    server.make("s", b"hello")
    tag = server.get().etag
    server.delete()
    server.make("s", b"HELLO")
    assert server.get("s", "-1", if_none_match=tag).body == b"HELLO"


def test_a_stream_of_another_store_never_matches() -> None:
    tags = set()
    for draws in range(3):
        clock = FakeClock(NOW_MS)
        clock.random_bytes(1 + 32 * draws)
        with DurableServer(clock=clock) as server:
            server.make("s", b"hello")
            tags.add(server.get().etag)
    assert len(tags) == 3


def test_a_tag_on_a_chunk_outlives_appends_and_closure() -> None:
    with DurableServer(chunk_bytes=4) as server:
        server.make("s", b"aaaa", b"bbbb")
        tag = server.get().etag
        server.append("s", b"cccc")
        server.close()
        assert server.get("s", "-1", if_none_match=tag).status == 304


def test_only_reads_of_a_range_have_tags(server: DurableServer) -> None:
    replies = [
        server.put("s", content_type=TEXT),
        server.post("s", b"hello", content_type=TEXT),
        server.head(),
        server.get("s", "now"),
        server.get("s", "nonsense"),
        server.query("s", "offset=-1&live=sse"),
        server.delete(),
    ]
    assert all("etag" not in reply.headers for reply in replies)


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE"])
def test_only_reads_are_conditional(server: DurableServer, method: str) -> None:
    server.make("s", b"hello")
    body = b"x" if method == "POST" else b""
    reply = server.request(method, "s", "", body, content_type=TEXT, if_none_match="*")
    assert reply.status in (200, 204)


def test_now_is_never_not_modified(server: DurableServer) -> None:
    server.make("s", b"hello")
    assert server.get("s", "now", if_none_match="*").status == 200


# -- how long an answer may be kept


@pytest.mark.parametrize(
    ("lifetime", "expected"),
    [
        pytest.param({}, SHARED, id="for ever"),
        pytest.param({"stream_ttl": "3600"}, SHARED, id="an hour"),
        pytest.param({"stream_ttl": "360"}, SHARED, id="just long enough"),
        pytest.param(
            {"stream_ttl": "100"}, "public, max-age=60, stale-while-revalidate=40", id="100 s"
        ),
        pytest.param(
            {"stream_ttl": "30"}, "public, max-age=30, stale-while-revalidate=0", id="30 s"
        ),
        pytest.param(
            {"stream_expires_at": "2027-01-15T08:00:45.999Z"},
            "public, max-age=45, stale-while-revalidate=0",
            id="a moment in 45.999 s",
        ),
        pytest.param({"stream_expires_at": "2027-01-15T08:00:00.999Z"}, "no-store", id="under 1 s"),
    ],
)
def test_an_answer_is_never_kept_past_the_end_of_its_stream(
    server: DurableServer, lifetime: Headers, expected: str
) -> None:
    server.make("s", b"hello", **lifetime)
    assert server.get().headers["cache-control"] == expected
    assert server.poll("s", "-1").reply.headers["cache-control"] == expected


def test_a_ttl_from_creation_runs_down(server: DurableServer) -> None:
    server.make("s", b"hello", stream_ttl="100", stream_ttl_anchor="creation")
    server.advance(80)
    expected = "public, max-age=20, stale-while-revalidate=0"
    assert server.get().headers["cache-control"] == expected


def test_with_tokens_on_answers_are_private() -> None:
    with DurableServer(private=True) as server:
        server.make("s", b"hello")
        expected = "private, max-age=60, stale-while-revalidate=300"
        assert server.get().headers["cache-control"] == expected


def test_what_is_true_for_a_moment_only_is_not_kept(server: DurableServer) -> None:
    tail = server.make("s", b"hello")
    waiting = server.poll("s", "now")
    replies = [server.head(), server.get("s", tail), server.get("s", "now"), server.put("t")]
    server.append("s", b"world")
    replies.append(waiting.reply)
    assert [reply.headers["cache-control"] for reply in replies] == ["no-store"] * 5


def test_the_empty_end_of_a_closed_stream_may_be_kept(server: DurableServer) -> None:
    server.make("s", b"hello")
    tail = server.close()
    assert server.get("s", tail).headers["cache-control"] == SHARED


def test_a_long_poll_that_waited_at_a_token_may_be_kept(server: DurableServer) -> None:
    """The cursor keeps readers from being sent round in circles by a cache."""
    tail = server.make("s", b"hello")
    waiting = server.poll("s", tail)
    server.append("s", b"world")
    assert waiting.reply.next == token(2, 10)
    assert waiting.reply.headers["cache-control"] == SHARED
