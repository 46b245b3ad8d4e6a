"""Where two readers of the same bytes could disagree: each case is refused, or read as h11 does."""

from __future__ import annotations

from dataclasses import dataclass

import h11
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.server.http1_harness import Harness, chunked, get, parse_replies, request

POST = b"POST / HTTP/1.1\r\nhost: a\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nhost: a\r\n\r\n"

REFUSED = {
    "length and coding": POST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": POST + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
    "length twice": POST + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc",
    "two lengths": POST + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabc",
    "length list": POST + b"content-length: 3, 3\r\n\r\nabc",
    "length plus": POST + b"content-length: +3\r\n\r\nabc",
    "length minus": POST + b"content-length: -3\r\n\r\nabc",
    "length with space": POST + b"content-length: 3 3\r\n\r\nabc",
    "length hex": POST + b"content-length: 0x3\r\n\r\nabc",
    "length underscore": POST + b"content-length: 1_0\r\n\r\nabc",
    "length empty": POST + b"content-length:\r\n\r\nabc",
    "length overflow": POST + b"content-length: 18446744073709551619\r\n\r\nabc",
    "coding unknown": POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding suffix": POST + b"transfer-encoding: chunkedx\r\n\r\n0\r\n\r\n",
    "coding identity": POST + b"transfer-encoding: identity\r\n\r\n0\r\n\r\n",
    "coding twice": POST + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
    "coding list twice": POST + b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "coding not last": POST + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "coding comma": POST + b"transfer-encoding: ,chunked\r\n\r\n0\r\n\r\n",
    "coding vertical tab": POST + b"transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "coding quoted": POST + b'transfer-encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "coding empty": POST + b"transfer-encoding:\r\n\r\n0\r\n\r\n",
    "coding in HTTP/1.0": b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "folded line": POST + b"x: a\r\n b\r\n\r\n",
    "folded first line": b"GET / HTTP/1.1\r\n host: a\r\n\r\n",
    "folded coding": POST + b"transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\nhost: a\n\n",
    "bare LF in header": POST + b"x: a\ncontent-length: 3\r\n\r\nabc",
    "bare LF at end": POST + b"x: a\r\n\n",
    "bare CR": POST + b"x: a\rcontent-length: 3\r\n\r\nabc",
    "CR CR LF": POST + b"x: a\r\r\n\r\n",
    "space before colon": POST + b"content-length : 3\r\n\r\nabc",
    "tab before colon": POST + b"content-length\t: 3\r\n\r\nabc",
    "no name": POST + b": 3\r\n\r\n",
    "no colon": POST + b"content-length 3\r\n\r\nabc",
    "NUL in value": POST + b"x: a\0b\r\n\r\n",
    "NUL in name": POST + b"x\0: a\r\n\r\n",
    "high byte in name": POST + b"content\xadlength: 3\r\n\r\n",
    "control in value": POST + b"x: a\x01b\r\n\r\n",
    "version with space": b"GET / HTTP/1.1 \r\nhost: a\r\n\r\n",
    "space in target": b"GET /a b HTTP/1.1\r\nhost: a\r\n\r\n",
    "tab as separator": b"GET\t/\tHTTP/1.1\r\nhost: a\r\n\r\n",
    "chunk size prefix": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size minus": CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n",
    "chunk size plus": CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n",
    "chunk size overflow": CHUNKED + b"fffffffffffffffff3\r\nabc\r\n0\r\n\r\n",
    "chunk size empty": CHUNKED + b"\r\nabc\r\n0\r\n\r\n",
    "chunk size underscore": CHUNKED + b"0_3\r\nabc\r\n0\r\n\r\n",
    "space before chunk size": CHUNKED + b" 3\r\nabc\r\n0\r\n\r\n",
    "space after chunk size": CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n",
    "chunk size LF": CHUNKED + b"3\nabc\r\n0\r\n\r\n",
    "chunk data LF": CHUNKED + b"3\r\nabc\n0\r\n\r\n",
    "chunk too long": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    "chunk extension LF": CHUNKED + b"3;a\nabc\r\n0\r\n\r\n",
    "chunk extension CR": CHUNKED + b"3;a\rb\r\nabc\r\n0\r\n\r\n",
    "chunk extension quoted CRLF": CHUNKED + b'3;a="\r\n"\r\nabc\r\n0\r\n\r\n',
    "last chunk LF": CHUNKED + b"0\r\n\n",
    "length in trailer": CHUNKED + b"0\r\ncontent-length: 3\r\n\r\nabc",
    "coding in trailer": CHUNKED + b"0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "folded trailer": CHUNKED + b"0\r\nx: a\r\n b\r\n\r\n",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("step", [1, 100_000], ids=["by the byte", "at once"])
def test_ambiguous_framing_is_refused(data: bytes, step: int) -> None:
    harness = Harness()
    peer = harness.connect()
    both = data + NEXT
    peer.send(*[both[at : at + step] for at in range(0, len(both), step)])
    assert harness.application.requests == []
    reply = peer.reply()
    assert reply.status in (400, 501)
    assert reply["connection"] == "close"
    assert peer.ended


@dataclass(frozen=True)
class Seen:
    method: str
    target: str
    headers: dict[bytes, bytes]
    body: bytes


def seen_by_us(*pieces: bytes) -> list[Seen]:
    harness = Harness()
    peer = harness.connect()
    peer.send(*pieces)
    return [
        Seen(
            request.method,
            request.path + ("?" + request.query if request.query else ""),
            request.headers,
            request.body,
        )
        for request in harness.application.requests
    ]


def seen_by_h11(data: bytes) -> list[Seen]:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    seen: list[Seen] = []
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            headers: dict[bytes, bytes] = {}
            for name, value in event.headers:
                headers[name] = headers[name] + b", " + value if name in headers else value
            seen.append(Seen(event.method.decode(), event.target.decode(), headers, b""))
        elif isinstance(event, h11.Data):
            last = seen.pop()
            seen.append(Seen(last.method, last.target, last.headers, last.body + bytes(event.data)))
        elif isinstance(event, h11.EndOfMessage):
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is h11.MUST_CLOSE:
                return seen
            connection.start_next_cycle()
        else:
            return seen


ACCEPTED = {
    "length with zeros": POST + b"content-length: 003\r\n\r\nabc",
    "length with blanks around": POST + b"content-length: \t3 \t\r\n\r\nabc",
    "coding in capitals": POST + b"TRANSFER-ENCODING: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "coding with blanks around": POST + b"transfer-encoding: \tchunked \r\n\r\n0\r\n\r\n",
    "chunk size in capitals": CHUNKED + b"A\r\n0123456789\r\n0\r\n\r\n",
    "chunk size with zeros": CHUNKED + b"0003\r\nabc\r\n000\r\n\r\n",
    "chunk extension": CHUNKED + b"3;a=b\r\nabc\r\n0;c\r\n\r\n",
    "trailer": CHUNKED + b"3\r\nabc\r\n0\r\nx: y\r\n\r\n",
    "length with underscore in name": POST + b"content_length: 3\r\n\r\n",
    "length of nothing": b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
    "body of GET": b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc",
    "latin-1 in value": POST + b"x: \xe9\xff\r\n\r\n",
    "close": POST + b"connection: close\r\n\r\n",
}


@pytest.mark.parametrize("data", ACCEPTED.values(), ids=ACCEPTED.keys())
@pytest.mark.parametrize("step", [1, 100_000], ids=["by the byte", "at once"])
def test_odd_but_valid_framing_is_read_as_h11_reads_it(data: bytes, step: int) -> None:
    both = data if b"close" in data else data + NEXT
    pieces = [both[at : at + step] for at in range(0, len(both), step)]
    expected = seen_by_h11(both)
    assert len(expected) == (1 if both is data else 2)
    assert seen_by_us(*pieces) == expected
    # h11 fails on bytes after a last request; we ignore them.
    if both is data:
        assert seen_by_us(data + NEXT) == expected


TOKENS = st.text("abcxyz-_.!|~09", min_size=1, max_size=12).map(lambda name: "x" + name)
VALUES = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20
)
TARGETS = st.text("abc/%2F?&=;:@!$'()*+,~._-", max_size=30).map(lambda text: "/" + text)


@st.composite
def valid_requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]))
    target = draw(TARGETS).rstrip("?")  # h11 keeps the `?` of an empty query
    lines = [f"{name}: {value}" for name, value in draw(st.lists(st.tuples(TOKENS, VALUES)))]
    lines.append(f"x-request-id: {draw(VALUES)}")
    body = draw(st.binary(max_size=200))
    if draw(st.booleans()):
        chunks = [body[at : at + 50] for at in range(0, len(body), 50)]
        return request(method, target, *lines, "transfer-encoding: chunked") + chunked(*chunks)
    return request(method, target, *lines, body=body)


@given(requests=st.lists(valid_requests(), min_size=1, max_size=4), data=st.data())
@settings(max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_valid_requests_split_anywhere_are_read_as_h11_reads_them(
    requests: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(requests)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=10)))
    edges = [0, *cuts, len(whole)]
    pieces = [whole[start:end] for start, end in zip(edges, edges[1:], strict=False)]
    expected = seen_by_h11(whole)
    assert len(expected) == len(requests)
    assert seen_by_us(*[piece for piece in pieces if piece]) == expected


def assert_answered_or_closed(*pieces: bytes) -> None:
    """Whatever came: every answer is well formed, and an error is the last."""
    harness = Harness()
    peer = harness.connect()
    peer.send(*pieces)
    peer.end_input()
    assert peer.transport.lost
    methods = [accepted.method for accepted in harness.application.requests]
    replies = parse_replies(bytes(peer.transport.sent), *methods)
    replies = [reply for reply in replies if reply.status != 100]
    assert all(reply.whole for reply in replies)
    assert all(reply.status == 200 for reply in replies[:-1])
    assert [reply.status for reply in replies].count(200) == len(methods)
    assert all(reply.status in (200, 400, 413, 414, 417, 431, 501, 505) for reply in replies)
    harness.wait(100)
    assert harness.server.serving.connections == set()


@given(pieces=st.lists(st.binary(min_size=1, max_size=100), min_size=1, max_size=5))
@settings(max_examples=3000, deadline=None)
@example(pieces=[b"PRI * HTTP/2.0\r\n", b"\r\nSM\r\n\r\n"])
def test_random_bytes_do_no_harm(pieces: list[bytes]) -> None:
    assert_answered_or_closed(*pieces)


SEEDS = [
    *REFUSED.values(),
    *ACCEPTED.values(),
    get("/a", "connection: upgrade", "upgrade: h2c"),
    request("POST", "/a", "connection: upgrade", "upgrade: h2c", body=b"abc"),
    request("POST", "/a", "expect: 100-continue", body=b"abc"),
    request("POST", "/a", body=b"a" * 2000),
    b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
]


@given(
    seeds=st.lists(st.sampled_from(SEEDS), min_size=1, max_size=3),
    changes=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 3), st.binary(max_size=3)),
        max_size=4,
    ),
    step=st.integers(1, 200),
)
@settings(max_examples=30000, deadline=None)
def test_mutated_requests_do_no_harm(
    seeds: list[bytes], changes: list[tuple[float, int, bytes]], step: int
) -> None:
    data = bytearray(b"".join(seeds))
    for place, deleted, inserted in changes:
        at = int(place * len(data))
        data[at : at + deleted] = inserted
    assert_answered_or_closed(*[bytes(data[at : at + step]) for at in range(0, len(data), step)])
