"""The native API over real sockets, with the clients that people use."""

from __future__ import annotations

import os
import socket
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection, IncompleteRead
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
import pyarrow.ipc as ipc
import pytest

from headwater.core.limits import KIB, MIB
from headwater.dialects.log.requests import ARROW_TYPE
from tests.support.inprocess import ServingThread, serving
from tests.support.log import encode_records

PATH = "/v1/log/records/durable-streams/s"


@pytest.fixture
def server() -> Iterator[ServingThread]:
    with serving(shutdown_grace_s=10.0) as server:
        yield server


class Client:
    """One connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.http = HTTPConnection(parts.hostname, parts.port or 80, timeout=10)

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> Any:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.http.request(method, path, body, given)
        response = self.http.getresponse()
        content = response.read()
        assert response.status < 300, content
        return content

    def fill(self, count: int, size: int) -> list[bytes]:
        self.send("PUT", "/v1/stream/s", content_type="application/octet-stream")
        bodies = [os.urandom(size) for _ in range(count)]
        self.send("POST", PATH, encode_records(bodies), content_type=ARROW_TYPE)
        return bodies


@pytest.fixture
def client(server: ServingThread) -> Iterator[Client]:
    client = Client(server.url)
    yield client
    client.http.close()


def open_arrow(url: str) -> Any:
    request = urllib.request.Request(url, headers={"accept": ARROW_TYPE})
    return urllib.request.urlopen(request, timeout=10)


def test_arrow_goes_in_and_comes_out(server: ServingThread, client: Client) -> None:
    bodies = client.fill(30_000, 20)
    with open_arrow(server.url + PATH) as response, ipc.open_stream(response) as reader:
        batches = list(reader)
    assert [len(batch) >= 10_000 for batch in batches[:-1]] == [True] * (len(batches) - 1)
    table = pa.Table.from_batches(batches)
    assert table.column("body").to_pylist() == bodies
    with duckdb.connect() as connection:
        connection.register("records", table)
        found = connection.sql(
            "select count(*), max(seq_num), sum(octet_length(body)) from records"
        )
        assert found.fetchall() == [(30_000, 29_999, 600_000)]


def test_lines_come_one_by_one_and_connections_are_kept(
    server: ServingThread, client: Client
) -> None:
    client.fill(1000, 20)
    for _ in range(3):
        assert client.send("GET", f"{PATH}?from=10&to=900").count(b"\n") == 890
    assert b'"name":"s"' in client.send("GET", "/v1/log/streams")
    assert b'"connections":1' in client.send("GET", "/v1/log/stats")


def begin_slowly(url: str, accept: str) -> socket.socket:
    parts = urlsplit(url)
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
    slow.connect((parts.hostname, parts.port))
    slow.settimeout(10)
    head = f"GET {PATH} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
    slow.sendall(head.encode())
    return slow


def read_to_the_end(slow: socket.socket) -> bytes:
    received = []
    while part := slow.recv(MIB):
        received.append(part)
    return b"".join(received)


def buffered(server: ServingThread) -> int:
    """Bytes that wait in the server for slow clients."""
    http = server.server._http  # noqa: SLF001
    assert http is not None
    return sum(
        connection._transport.get_write_buffer_size()  # type: ignore[attr-defined] # noqa: SLF001
        for connection in http.serving.connections
        if connection._transport is not None  # type: ignore[attr-defined] # noqa: SLF001
    )


@pytest.mark.parametrize("accept", [ARROW_TYPE, "application/x-ndjson"])
def test_a_client_that_does_not_read_holds_up_nobody(
    server: ServingThread, client: Client, accept: str
) -> None:
    client.fill(240, 64 * KIB)
    whole = len(client.send("GET", PATH, accept=accept))
    readers = [begin_slowly(server.url, accept) for _ in range(4)]
    for _ in range(20):
        assert b'"name":"s"' in client.send("GET", "/v1/log/streams")
        assert server.call(lambda: buffered(server)) < 4 * 4 * MIB
    for slow in readers:
        assert len(read_to_the_end(slow)) > whole
        slow.close()


def test_a_server_that_stops_lets_a_reader_finish(server: ServingThread, client: Client) -> None:
    bodies = client.fill(240, 64 * KIB)
    with open_arrow(server.url + PATH) as response:
        first = response.read(KIB)
        stopped = server.stop_soon()
        table = ipc.open_stream(first + response.read()).read_all()
    assert table.num_rows == len(bodies)
    assert stopped.result(10)


def test_a_reader_can_tell_that_it_was_cut_off(server: ServingThread, client: Client) -> None:
    client.fill(240, 64 * KIB)
    with open_arrow(server.url + PATH) as response:
        response.read(KIB)
        server.stop_soon(grace_s=0.2).result(10)
        with pytest.raises((IncompleteRead, ConnectionError)):
            response.read()
