"""Incremental appends over real sockets: connections that break anywhere, and slow commits."""

from __future__ import annotations

import json
import random  # noqa: TID251
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from headwater.dialects.durable import incremental
from tests.support import event_stream
from tests.support.durable import producer
from tests.support.inprocess import ServingThread, serving
from tests.support.stores import FaultyStore

TIMEOUT_S = 10.0
JSON = "application/json"


@pytest.fixture(scope="module")
def server() -> Iterator[ServingThread]:
    with serving() as server:
        yield server


class Connection:
    """A client that says exactly what it is told to."""

    def __init__(self, server: ServingThread) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.received = b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def request(self, method: str, path: str, body: bytes | None = None, /, **headers: str) -> None:
        """Send a request, or the head of one whose body is chunked and follows."""
        lines = [f"{method} /v1/stream/{path} HTTP/1.1", "host: x"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"content-length: {len(body)}")
        elif method == "POST":
            lines.append("transfer-encoding: chunked")
        self.socket.sendall("\r\n".join((*lines, "", "")).encode() + (body or b""))

    def chunk(self, data: bytes) -> None:
        self.socket.sendall(chunked(data))

    def end(self) -> None:
        self.socket.sendall(b"0\r\n\r\n")

    def reset(self) -> None:
        """Go away without a word: the kernel tells the server."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def read_until(self, done: Callable[[bytes], bool]) -> bytes:
        while not done(self.received):
            data = self.socket.recv(65536)
            assert data, f"the server closed the connection: {self.received!r}"
            self.received += data
        return self.received

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        head, _, _ = self.read_until(lambda data: b"\r\n\r\n" in data).partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        end = len(head) + 4 + int(headers.get("content-length", 0))
        received = self.read_until(lambda data: len(data) >= end)
        self.received = received[end:]
        return int(first.split()[1]), headers, received[len(head) + 4 : end]


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def unchunked(framed: bytes) -> bytes:
    """The chunks that are whole."""
    body = b""
    while framed:
        size, _, rest = framed.partition(b"\r\n")
        body += rest[: int(size, 16)]
        framed = rest[int(size, 16) + 2 :]
    return body


def ask(server: ServingThread, method: str, path: str, **headers: str) -> tuple[int, bytes]:
    with Connection(server) as connection:
        connection.request(method, path, b"", **headers)
        status, _, body = connection.answer()
        return status, body


def make(server: ServingThread, name: str, content_type: str = JSON) -> None:
    assert ask(server, "PUT", name, content_type=content_type)[0] == 201


def start(server: ServingThread, name: str, **headers: str) -> Connection:
    connection = Connection(server)
    given = {"content_type": JSON, "stream_append": "incremental", **headers}
    connection.request("POST", name, **given)
    return connection


def in_chunks(body: bytes, chance: random.Random) -> bytes:
    """The body framed in chunks of any size."""
    framed = b""
    while body:
        size = chance.choice((1, 7, 40, 1000))
        framed += chunked(body[:size])
        body = body[size:]
    return framed + b"0\r\n\r\n"


def test_requests_follow_one_another_on_a_connection(server: ServingThread) -> None:
    make(server, "kept")
    with start(server, "kept") as connection:
        connection.chunk(b"1\n2")
        connection.end()
        status, headers, _ = connection.answer()
        assert (status, headers["stream-append-count"]) == (204, "2")
        connection.request("POST", "kept", b"3\n4", content_type=JSON, stream_append="incremental")
        assert connection.answer()[0] == 204
        connection.request("POST", "kept", b"", content_type=JSON, stream_append="incremental")
        assert connection.answer()[1]["stream-append-count"] == "0"
        connection.request("GET", "kept")
        assert connection.answer()[2] == b"[1,2,3,4]"


def test_followers_see_every_line_before_the_next_is_sent(server: ServingThread) -> None:
    make(server, "lines")
    with Connection(server) as follower, start(server, "lines") as writer:
        follower.request("GET", "lines?offset=-1&live=sse")
        follower.read_until(lambda data: b"event: control" in data)
        for number in range(20):
            writer.chunk(b'{"n":%d}\n' % number)
            follower.read_until(lambda data, text=b'{"n":%d}' % number: text in data)  # type: ignore[misc]
        writer.end()
        assert writer.answer()[1]["stream-append-count"] == "20"


def test_an_error_in_the_middle_reaches_a_client_that_goes_on_sending(
    server: ServingThread,
) -> None:
    make(server, "wrong")
    with start(server, "wrong") as connection:
        connection.chunk(b"1\n2\n}\n")
        connection.chunk(b"3\n" * 1000)
        status, headers, body = connection.answer()
        assert (status, headers["stream-append-count"]) == (400, "2")
        assert (headers["connection"], json.loads(body)["error"]["code"]) == (
            "close",
            "invalid_request",
        )
    assert ask(server, "GET", "wrong") == (200, b"[1,2]")


def test_a_refusal_does_not_wait_for_the_body(server: ServingThread) -> None:
    with start(server, "nobody") as connection:
        assert connection.answer()[0] == 404
    with start(server, "nobody", content_length="1000000000000") as connection:
        assert connection.answer()[0] == 400, "both framings at once"


def test_the_client_is_asked_for_a_body_it_offers(server: ServingThread) -> None:
    make(server, "polite")
    with start(server, "polite", expect="100-continue") as connection:
        assert connection.read_until(lambda data: b"\r\n\r\n" in data).startswith(b"HTTP/1.1 100 ")
        connection.received = b""
        connection.chunk(b"1\n")
        connection.end()
        assert connection.answer()[0] == 204


@pytest.mark.parametrize("seed", range(30))
def test_a_request_cut_anywhere_and_repeated_writes_every_line_once(
    server: ServingThread, seed: int
) -> None:
    chance = random.Random(seed)
    name = f"cut-{seed}"
    closes = {"stream_closed": "true"} if seed % 3 == 0 else {}
    lines = [
        json.dumps({"n": number, "text": "x" * chance.choice((0, 5, 300))}).encode()
        for number in range(chance.randrange(1, 200))
    ]
    body = b"\n".join(lines) + chance.choice((b"", b"\n"))
    make(server, name)
    for _ in range(chance.randrange(1, 6)):
        framed = in_chunks(body, chance)
        cut = framed[: chance.randrange(len(framed) - 4)]
        connection = start(server, name, **closes, **producer("p", 0, 0))
        for at in range(0, len(cut), 997):
            connection.socket.sendall(cut[at : at + 997])
            if chance.random() < 0.2:
                time.sleep(0.001)
        if chance.random() < 0.5:
            connection.reset()
        else:
            connection.socket.close()
        status, stored = ask(server, "GET", name)
        found = [json.dumps(value).encode() for value in json.loads(stored)]
        assert status == 200 and found == lines[: len(found)]
    with start(server, name, **closes, **producer("p", 0, 0)) as connection:
        connection.socket.sendall(in_chunks(body, chance))
        status, headers, _ = connection.answer()
    assert status in (200, 204)
    assert int(headers["stream-append-count"]) == len(lines)
    assert int(headers["producer-seq"]) == len(lines) - (0 if closes else 1)
    assert ask(server, "GET", name) == (200, b"[%b]" % b",".join(lines))


def test_a_follower_sees_a_broken_and_repeated_answer_once(server: ServingThread) -> None:
    make(server, "answer", "text/plain")
    tokens = [f"token {number}\n".encode() for number in range(50)]
    given = {"content_type": "text/plain", "stream_closed": "true", **producer("model", 0, 0)}
    with Connection(server) as follower:
        follower.request("GET", "answer?offset=-1&live=sse")
        for stop in (10, 25, 26):
            connection = start(server, "answer", **given)
            for token in tokens[:stop]:
                connection.chunk(token)
            connection.chunk(b"tok")
            connection.reset()
        with start(server, "answer", **given) as connection:
            for token in tokens:
                connection.chunk(token)
            connection.end()
            assert connection.answer()[1]["stream-closed"] == "true"
        stream = follower.read_until(lambda data: b'"streamClosed":true' in data)
    events = event_stream.parse(unchunked(stream.partition(b"\r\n\r\n")[2]))
    text = "".join(event.data for event in events if event.type == "data")
    assert text.encode() == b"".join(tokens)


def test_a_client_faster_than_the_commits_is_held_back() -> None:
    store = FaultyStore()
    with serving(store=store) as server:
        make(server, "fast", "text/plain")
        store.hold_syncs()
        committer = server.call(lambda: server.server.engine.committer)
        line = b"x" * 1023 + b"\n"
        with start(server, "fast", content_type="text/plain") as connection:
            connection.socket.setblocking(False)
            sent = bytearray()
            quiet_since = time.monotonic()
            piece = chunked(line) * 16
            unsent = b""
            while time.monotonic() - quiet_since < 0.3:
                unsent = unsent or piece
                try:
                    size = connection.socket.send(unsent)
                except BlockingIOError:
                    time.sleep(0.01)
                    continue
                sent += unsent[:size]
                unsent = unsent[size:]
                quiet_since = time.monotonic()
            held = server.call(lambda: committer.queue_bytes)
            assert held <= incremental.WINDOW_BYTES_MAX + 2 * len(line) + 300 * 256
            store.release_syncs()
            connection.socket.setblocking(True)
            connection.socket.settimeout(TIMEOUT_S)
            connection.socket.sendall(unsent)
            connection.end()
            status, headers, _ = connection.answer()
            lines = (len(sent) + len(unsent)) // len(chunked(line))
            assert (status, int(headers["stream-append-count"])) == (204, lines)


def test_a_server_that_stops_answers_what_goes_on() -> None:
    with serving() as server:
        make(server, "late")
        with start(server, "late") as connection:
            connection.chunk(b"1\n2\n")
            while b"[1,2]" not in ask(server, "GET", "late")[1]:
                time.sleep(0.005)
            stopped = server.stop_soon()
            status, headers, body = connection.answer()
            assert (status, headers["stream-append-count"]) == (503, "2")
            assert (headers["connection"], headers["retry-after"]) == ("close", "1")
            assert b"shutting down" in body
            assert connection.socket.recv(1) == b""
        assert stopped.result(TIMEOUT_S)
