"""What a request line and its headers become, and which of them are refused."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.server.serving import ServerLimits
from headwater.wire.http import Request, Response
from tests.server.http1_harness import HOST, Harness, chunked, get, request


def accept(data: bytes, **extra: Any) -> Request:
    """The one request that `data` is."""
    harness = Harness()
    peer = harness.connect(**extra)
    peer.send(data)
    [accepted] = harness.application.requests
    return accepted


def refused(data: bytes, limits: ServerLimits | None = None) -> int:
    """The status that `data` is refused with, after which the connection ends."""
    harness = Harness(limits=limits)
    peer = harness.connect()
    peer.send(data)
    assert harness.application.requests == []
    assert peer.ended
    reply = peer.reply()
    assert reply["connection"] == "close"
    return reply.status


@pytest.mark.parametrize(
    ("method", "target", "path", "query"),
    [
        ("GET", "/", "/", ""),
        ("GET", "/a/b", "/a/b", ""),
        ("GET", "/a?b=c&d", "/a", "b=c&d"),
        ("GET", "/a?", "/a", ""),
        ("GET", "/a?b?c", "/a", "b?c"),
        ("GET", "/%2e%2E/%00?%ff", "/%2e%2E/%00", "%ff"),
        ("GET", "//a", "//a", ""),
        ("GET", "http://x/a?b", "/a", "b"),
        ("GET", "HTTPS://x:80/a", "/a", ""),
        ("GET", "http://x", "/", ""),
        ("GET", "http://x?b", "/", "b"),
        ("GET", "http://[::1]:80/a/b", "/a/b", ""),
        ("OPTIONS", "*", "*", ""),
        ("DELETE", "/a", "/a", ""),
        ("PATCH", "/a", "/a", ""),
    ],
)
def test_a_target_is_split_but_not_decoded(method: str, target: str, path: str, query: str) -> None:
    accepted = accept(request(method, target))
    assert (accepted.method, accepted.path, accepted.query) == (method, path, query)


@pytest.mark.parametrize(
    "target", ["a", "*", "/a#b", "/#", "http://", "http:///a", "http://u@x/", "ftp://x/", "x:80"]
)
def test_other_targets_are_refused(target: str) -> None:
    assert refused(request("GET", target)) == 400


@pytest.mark.parametrize("where", ["/%b", "/?%b", "http://%b/", "http://x/%b", "/a%bb"])
def test_no_byte_outside_visible_ascii_gets_into_a_target(where: str) -> None:
    for byte in range(256):
        data = b"GET %b HTTP/1.1\r\n%b\r\n" % (where.encode() % bytes([byte]), HOST)
        harness = Harness()
        harness.exchange(data)
        for accepted in harness.application.requests:
            text = accepted.path + accepted.query
            assert text.isascii() and text.isprintable() and " " not in text and "#" not in text


def test_the_authority_of_a_target_replaces_host() -> None:
    assert accept(request("GET", "http://x:80/a")).headers[b"host"] == b"x:80"


def test_connect_is_not_implemented() -> None:
    assert refused(b"CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\n") == 501


def test_header_names_are_lower_case_and_values_are_trimmed() -> None:
    accepted = accept(get("/", "X-Some:  a  b \t", "Y:", "z:\té\t"))
    assert accepted.headers == {
        b"host": b"a",
        b"x-some": b"a  b",
        b"y": b"",
        b"z": b"\xe9",
    }


def test_repeated_headers_are_joined() -> None:
    assert accept(get("/", "x: a", "y: b", "X: c", "x:")).headers[b"x"] == b"a, c, "


@pytest.mark.parametrize(
    "name", ["host", "content-length", "transfer-encoding", "authorization", "expect"]
)
def test_headers_that_decide_something_may_not_be_repeated(name: str) -> None:
    assert refused(request("POST", "/", f"{name}: 1", f"{name}: 1")) == 400


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET http://a/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a/b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: u@b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a, b\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nhost: a?\r\n\r\n", 400),
        (b"GET / HTTP/0.9\r\nhost: a\r\n\r\n", 505),
        (b"GET /\r\n\r\n", 505),
        (b"GET / HTTP/1.2\r\nhost: a\r\n\r\n", 505),
        (b"GET / HTTP/2.0\r\nhost: a\r\n\r\n", 505),
        (b"GET / HTTP/3.0\r\nhost: a\r\n\r\n", 505),
        (b"GET / HTTP/1.x\r\nhost: a\r\n\r\n", 400),
        (b"GET / HTTX/1.1\r\nhost: a\r\n\r\n", 400),
        (b"FETCH / HTTP/1.1\r\nhost: a\r\n\r\n", 501),
        (b"get / HTTP/1.1\r\nhost: a\r\n\r\n", 501),
        (b"G\x00T / HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 200-ok\r\n\r\n", 417),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 400),
    ],
)
def test_what_is_not_http_1_is_refused(head: bytes, status: int) -> None:
    assert refused(head) == status


@pytest.mark.parametrize("host", [b"", b"a", b"a:80", b"127.0.0.1", b"[::1]:80", b"a_b.c"])
def test_a_valid_host_is_accepted(host: bytes) -> None:
    assert accept(b"GET / HTTP/1.1\r\nhost: %b\r\n\r\n" % host).headers[b"host"] == host


def test_http_1_0_needs_no_host() -> None:
    assert accept(b"GET / HTTP/1.0\r\n\r\n").headers == {}


LIMITS = ServerLimits(request_line_bytes_max=100, header_bytes_max=1000, header_count_max=10)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (get("/" + "a" * 99), None),
        (get("/" + "a" * 100), 414),
        (get("/", *[f"x{n}: y" for n in range(9)]), None),
        (get("/", *[f"x{n}: y" for n in range(10)]), 431),
        (get("/", *["x: y"] * 9), None),
        (get("/", *["x: y"] * 10), 431),
        (get("/", *["x: y"] * 10000), 431),
        (get("/", "x: " + "y" * 980), None),
        (get("/", "x: " + "y" * 1000), 431),
        (get("/", "y" * 1000 + ": x"), 431),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_heads_have_bounds(head: bytes, status: int | None, step: int) -> None:
    pieces = [head[at : at + step] for at in range(0, len(head), step)]
    harness = Harness(limits=LIMITS)
    peer = harness.connect()
    peer.send(*pieces)
    assert peer.reply().status == (status or 200)


@pytest.mark.parametrize(
    "endless",
    [b"GET /" + b"a" * 10000, b"GET / HTTP/1.1\r\nx: " + b"y" * 10000, b"\r\n" * 10000],
    ids=["target", "header", "line breaks"],
)
def test_an_endless_head_is_refused_before_it_ends(endless: bytes) -> None:
    assert refused(endless, LIMITS) in (414, 431)


def test_default_limits_are_eight_and_thirty_two_kibibytes() -> None:
    assert accept(get("/" + "a" * 8191)).path == "/" + "a" * 8191
    assert refused(get("/" + "a" * 8192)) == 414
    assert accept(get("/", "x: " + "y" * 32_000)).headers[b"x"] == b"y" * 32_000
    assert refused(get("/", "x: " + "y" * 33_000)) == 431


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (request("POST", "/", body=b"abc"), b"abc"),
        (request("POST", "/", "content-length: 0"), b""),
        (request("POST", "/", "transfer-encoding: chunked") + chunked(), b""),
        (request("POST", "/", "transfer-encoding: chunked") + chunked(b"a", b"bc"), b"abc"),
        (request("POST", "/", "Transfer-Encoding: Chunked") + chunked(b"abc"), b"abc"),
        (request("GET", "/", body=b"abc"), b"abc"),
        (request("POST", "/", "connection: upgrade", "upgrade: h2c", body=b"abc"), b"abc"),
        (
            request("POST", "/", "connection: upgrade", "upgrade: x", "transfer-encoding: chunked")
            + chunked(b"abc"),
            b"abc",
        ),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_body_is_whole_and_what_follows_is_the_next_request(
    data: bytes, body: bytes, step: int
) -> None:
    harness = Harness()
    peer = harness.connect()
    both = data + get("/next")
    peer.send(*[both[at : at + step] for at in range(0, len(both), step)])
    first, second = harness.application.requests
    assert first.body == body
    assert (second.path, second.body) == ("/next", b"")
    assert [reply.status for reply in peer.replies()] == [200, 200]


def test_an_upgrade_without_a_body_is_ignored() -> None:
    harness = Harness()
    replies = harness.exchange(get("/a", "connection: upgrade", "upgrade: websocket") + get("/b"))
    assert [reply.body for reply in replies] == [b"GET /a ", b"GET /b "]


@pytest.mark.parametrize(
    ("rest", "status"),
    [(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: ,chunked\r\n\r\n", 501), (b"?", 400)],
)
def test_what_is_wrong_after_an_upgrade_is_refused(rest: bytes, status: int) -> None:
    replies = Harness().exchange(get("/a", "connection: upgrade", "upgrade: h2c") + rest)
    assert [reply.status for reply in replies] == [200, status]


def test_a_large_body_is_one_piece_whatever_it_arrives_with() -> None:
    harness = Harness()
    harness.application.body_bytes_max = 10_000_000
    body = bytes(range(256)) * 4096
    peer = harness.connect()
    data = get("/first") + request("POST", "/", body=body) + get("/last")
    peer.send(*[data[at : at + 200_000] for at in range(0, len(data), 200_000)])
    assert [accepted.path for accepted in harness.application.requests] == ["/first", "/", "/last"]
    assert harness.application.requests[1].body == body


def test_a_body_in_many_small_pieces_is_whole() -> None:
    harness = Harness()
    harness.application.body_bytes_max = 100_000
    chunks = [bytes([n % 256]) * (n % 50 + 1) for n in range(2000)]
    peer = harness.connect()
    peer.send(request("POST", "/", "transfer-encoding: chunked") + chunked(*chunks, b"z" * 5000))
    assert harness.application.requests[0].body == b"".join(chunks) + b"z" * 5000


def test_trailers_are_dropped() -> None:
    harness = Harness()
    data = request("POST", "/", "transfer-encoding: chunked", "x: y")
    replies = harness.exchange(data + b"1\r\na\r\n0\r\nx: z\r\nhost: b\r\n\r\n" + get("/next"))
    assert [reply.status for reply in replies] == [200, 200]
    assert harness.application.requests[0].headers[b"x"] == b"y"
    assert harness.application.requests[1].headers == {b"host": b"a"}


@pytest.mark.parametrize(
    "endless",
    [b"1;" + b"a" * 200_000, b"0\r\nx: " + b"y" * 200_000, b"0\r\n" + b"x: y\r\n" * 40_000],
    ids=["chunk extension", "trailer", "trailers"],
)
def test_framing_without_end_is_refused(endless: bytes) -> None:
    head = request("POST", "/", "transfer-encoding: chunked")
    harness = Harness()
    peer = harness.connect()
    peer.send(head, *[endless[at : at + 10_000] for at in range(0, len(endless), 10_000)])
    assert harness.application.requests == []
    assert peer.reply().status in (400, 431)


@pytest.mark.parametrize("given", ["a", "A-b_c.9", "x" * 128])
def test_the_clients_request_id_is_kept(given: str) -> None:
    harness = Harness()
    [reply] = harness.exchange(get("/", f"x-request-id: {given}"))
    assert harness.application.requests[0].id == reply["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "a b", "a, b", "é", "x" * 129, 'a"'])
def test_any_other_request_id_is_replaced(given: str) -> None:
    harness = Harness()
    replies = harness.exchange(get("/", f"x-request-id: {given}") + get("/"))
    ids = [reply["x-request-id"] for reply in replies]
    assert given not in ids
    assert len(set(ids)) == 2
    assert ids == [accepted.id for accepted in harness.application.requests]


def test_the_peer_is_an_address_without_its_port() -> None:
    assert accept(get(), peername=("2001:db8::1", 80, 0, 0)).peer == "2001:db8::1"
    assert accept(get(), peername="").peer == ""
    assert accept(get(), peername=b"").peer == ""


def test_tls_makes_a_request_secure() -> None:
    assert accept(get(), sslcontext=object()).secure
    assert not accept(get()).secure


def test_a_response_from_begin_refuses_without_calling_a_route() -> None:
    harness = Harness()
    harness.application.refusal = lambda request: Response(401) if request.path == "/a" else None
    replies = harness.exchange(get("/a") + get("/b"))
    assert [reply.status for reply in replies] == [401, 200]
    assert [accepted.path for accepted in harness.application.requests] == ["/b"]
