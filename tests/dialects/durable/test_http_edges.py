"""Methods, preflights, limits, and a server that does not take writes. PROTOCOL §11 to §13."""

from __future__ import annotations

import pytest

from headwater.dialects.durable.routes import METHODS
from headwater.dialects.durable.rules import ROOT
from headwater.wire.http import Request, Route
from tests.support.durable import TEXT, DurableServer, Reply, producer

READ_METHODS = "GET, HEAD, OPTIONS"


@pytest.mark.parametrize("method", ["TRACE", "COPY", "LOCK", "get"])
@pytest.mark.parametrize("read_only", [False, True])
def test_other_methods_are_405_and_told_which_there_are(method: str, read_only: bool) -> None:
    with DurableServer(read_only=read_only) as server:
        reply = server.request(method, "s")
        assert (reply.status, reply.error) == (405, "method_not_allowed")
        assert reply.headers["allow"] == (READ_METHODS if read_only else METHODS)


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_a_read_only_server_refuses_writes(method: str) -> None:
    with DurableServer(read_only=True) as server:
        reply = server.request(method, "s", "", b"x", content_type=TEXT)
        assert (reply.status, reply.error) == (405, "read_only")
        assert reply.headers["allow"] == READ_METHODS
        assert server.get("s").status == 404


def test_a_preflight_allows_what_a_page_needs(server: DurableServer) -> None:
    reply = server.request("OPTIONS", "any", access_control_request_method="PUT")
    assert (reply.status, reply.body) == (204, b"")
    assert reply.headers["access-control-allow-methods"] == METHODS
    assert reply.headers["allow"] == METHODS
    assert int(reply.headers["access-control-max-age"]) > 0
    allowed = {name.strip() for name in reply.headers["access-control-allow-headers"].split(",")}
    assert {"Content-Type", "Authorization", "If-None-Match", "Stream-Closed", "Stream-Seq"} <= (
        allowed
    )
    assert {"Stream-TTL", "Stream-Expires-At", "Stream-TTL-Anchor"} <= allowed
    assert {"Stream-Forked-From", "Stream-Fork-Offset", "Stream-Fork-Sub-Offset"} <= allowed
    assert {"Producer-Id", "Producer-Epoch", "Producer-Seq"} <= allowed


def test_a_page_may_see_every_header_of_the_protocol(server: DurableServer) -> None:
    server.make("s", b"hello", stream_ttl="60")
    batch, gap = producer("p", 0, 0), producer("p", 0, 9)
    replies = [
        server.get(),
        server.head(),
        server.put("t"),
        server.poll("s", "-1").reply,
        server.post("s", b"x", content_type=TEXT, **batch),
        server.post("s", b"x", content_type=TEXT, **gap),
        server.query("t", "offset=-1&live=sse"),
    ]
    for reply in replies:
        exposed = reply.headers["access-control-expose-headers"].lower().split(", ")
        of_protocol = {name for name in reply.headers if name.startswith(("stream-", "producer-"))}
        assert "*" in exposed or of_protocol | {"etag", "location"} <= set(exposed)


def test_the_body_limit_is_told_to_the_http_server() -> None:
    """It answers 413 itself, before the body is here."""
    with DurableServer(body_bytes_max=1234) as server:
        for method in ("PUT", "POST"):
            route = server.dialect.begin(Request(method, f"{ROOT}/s", "", {}))
            assert isinstance(route, Route)
            assert (route.body_bytes_max, route.streams_body) == (1234, False)


# -- limits on live readers


def test_too_many_live_readers_are_429_and_told_when_to_retry() -> None:
    with DurableServer(followers_max=2) as server:
        server.make("s", b"hello")
        polling, following = server.poll(), server.follow()
        refused = [server.poll().reply, server.query("s", "offset=now&live=sse")]
        for reply in refused:
            assert (reply.status, reply.error) == (429, "too_many_requests")
            assert int(reply.headers["retry-after"]) > 0
        polling.cancel()
        assert server.poll().waiting
        following.disconnect()
        assert server.follow().controls


def test_reads_that_do_not_wait_are_not_limited() -> None:
    with DurableServer(followers_max=0) as server:
        server.make("s", b"hello")
        assert server.get().status == 200
        assert server.poll("s", "-1").reply.status == 200
        server.close()
        assert server.poll("s", "now").reply.status == 204


# -- a server in trouble


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_with_the_disk_nearly_full_writes_are_507(server: DurableServer, method: str) -> None:
    server.make("s", b"hello")
    server.engine.sweeper.disk_low = True
    reply = server.request(method, "s", "", b"x", content_type=TEXT)
    assert (reply.status, reply.error) == (507, "disk_full")
    assert server.get().body == b"hello"
    assert server.delete().status == 204


def test_a_server_that_shuts_down_takes_no_more_writes(server: DurableServer) -> None:
    server.make("s", b"hello")
    server.engine.committer.close()
    reply = server.post("s", b"x", content_type=TEXT)
    assert (reply.status, reply.error) == (503, "overloaded")
    assert "retry-after" in reply.headers


def test_after_a_storage_failure_nothing_is_promised(server: DurableServer) -> None:
    server.make("s", b"hello")
    server.engine.committer.failed = True
    replies: list[Reply] = [
        server.get(),
        server.head(),
        server.post("s", b"x", content_type=TEXT),
        server.put("t"),
        server.delete(),
    ]
    assert [(reply.status, reply.error) for reply in replies] == [(503, "storage_failed")] * 5
