"""Sessions over real sockets and HTTP/1.1, as the clients that have no HTTP/2 do it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any, Self
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
import s2_sdk._generated.s2.v1.s2_pb2 as pb

from tests.support.inprocess import ServingThread, serving
from tests.support.s2 import RECONNECT, Frame, encode_frame

PATH = "/v1/streams/s/records"
BASIN = "durable-streams"


@pytest.fixture
def server() -> Iterator[ServingThread]:
    with serving(shutdown_grace_s=10.0) as server:
        make = Request(f"{server.url}/v1/stream/s", method="PUT")
        make.add_header("Content-Type", "application/octet-stream")
        with urlopen(make) as reply:
            assert reply.status == 201
        yield server


class Duplex:
    """One request whose body goes on while its answer is read."""

    def __init__(self, url: str, head: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port or 80), timeout=10)
        self._socket.sendall(head.encode())
        self._file = self._socket.makefile("rb")
        self._unread = b""
        self.status = int(self._file.readline().split()[1])
        while self._file.readline() != b"\r\n":
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, *bodies: bytes) -> None:
        records = [pb.AppendRecord(body=body) for body in bodies]
        frame = encode_frame(pb.AppendInput(records=records).SerializeToString())
        self._socket.sendall(b"%x\r\n%b\r\n" % (len(frame), frame))

    def end(self) -> None:
        self._socket.sendall(b"0\r\n\r\n")

    def read(self) -> Frame | None:
        """The next frame; None at the end."""
        while len(self._unread) < 4 or len(self._unread) < 3 + self._size:
            size = int(self._file.readline(), 16)
            chunk = self._file.read(size + 2)[:-2]
            if not chunk:
                assert not self._unread
                return None
            self._unread += chunk
        size = self._size
        frame = Frame(self._unread[3], self._unread[4 : 3 + size])
        self._unread = self._unread[3 + size :]
        return frame

    @property
    def _size(self) -> int:
        return int.from_bytes(self._unread[:3], "big")


def open_append(server: ServingThread) -> Duplex:
    return Duplex(
        server.url,
        f"POST {PATH} HTTP/1.1\r\nhost: x\r\ns2-basin: {BASIN}\r\n"
        "content-type: s2s/proto\r\ntransfer-encoding: chunked\r\n\r\n",
    )


def open_read(server: ServingThread, query: str) -> Duplex:
    return Duplex(
        server.url,
        f"GET {PATH}?{query} HTTP/1.1\r\nhost: x\r\ns2-basin: {BASIN}\r\n"
        "content-type: s2s/proto\r\n\r\n",
    )


def next_frame(session: Duplex) -> Frame:
    frame = session.read()
    assert frame is not None
    return frame


def test_an_append_session_is_answered_while_it_goes_on(server: ServingThread) -> None:
    with open_append(server) as session:
        assert session.status == 200
        for number in range(3):
            session.send(b"a", b"b")
            assert next_frame(session).ack.end.seq_num == 2 * number + 2
        session.end()
        assert session.read() is None


def test_a_read_session_follows_an_append_session(server: ServingThread) -> None:
    with open_append(server) as writer, open_read(server, "seq_num=0") as reader:
        assert next_frame(reader).batch.tail.seq_num == 0
        for number in range(3):
            writer.send(b"%d" % number)
            assert [record.body for record in next_frame(reader).batch.records] == [b"%d" % number]


def test_what_was_appended_in_a_session_is_read_as_json(server: ServingThread) -> None:
    with open_append(server) as session:
        session.send(b"x" * 100_000, b"y")
        next_frame(session)
    request = Request(f"{server.url}{PATH}?seq_num=1", headers={"s2-basin": BASIN})
    with urlopen(request) as reply:
        found: Any = json.loads(reply.read())

    assert [record["body"] for record in found["records"]] == ["y"]


def test_a_server_that_stops_moves_its_sessions_and_loses_nothing(server: ServingThread) -> None:
    with open_append(server) as writer, open_read(server, "seq_num=0") as reader:
        next_frame(reader)
        stopped = server.stop_soon()
        assert next_frame(reader).flag == RECONNECT
        writer.send(b"last")
        ack = next_frame(writer)
        assert (ack.flag, ack.ack.end.seq_num) == (RECONNECT, 1)
        assert [record.body for record in next_frame(reader).batch.records] == [b"last"]
        for session in (reader, writer):
            last = next_frame(session)
            assert (last.status, last.error["code"]) == (503, "server_draining")
            assert session.read() is None
        assert stopped.result(10)


def test_a_body_that_is_too_large_is_refused_in_the_form_of_this_api() -> None:
    with serving(body_bytes_max=1024 * 1024) as server:
        parts = urlsplit(server.url)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=10)
        connection.putrequest("POST", PATH)
        for name, value in (("s2-basin", BASIN), ("content-length", str(2 * 1024 * 1024))):
            connection.putheader(name, value)
        connection.endheaders()
        reply = connection.getresponse()
        found = json.loads(reply.read())
        connection.close()

    assert (reply.status, found["code"]) == (413, "body_too_large")


def test_one_request_too_many_is_refused_in_the_form_of_this_api() -> None:
    with serving(requests_per_second_max=1) as server:
        request = Request(f"{server.url}/v1/basins")
        with urlopen(request), pytest.raises(HTTPError) as caught:
            urlopen(request)
        refused = caught.value
        with refused:
            found = json.loads(refused.read())

    assert (refused.code, found["code"]) == (429, "rate_limited")
    assert int(refused.headers["retry-after-ms"]) >= 1000
