"""Snapshots on a real server: long ones stream in and out, and survive a kill once acknowledged."""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.server import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.timeout(60)]

SIZE = 6_000_000
SNAPSHOT_BYTES_MAX = 8_000_000
BODY = hashlib.shake_256(b"snapshot").digest(SIZE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    options = ("--snapshot-bytes-max", str(SNAPSHOT_BYTES_MAX), "--body-bytes-max", "1MiB")
    with ServerProcess(tmp_path / "data", *options) as server:
        yield server


def send(
    server: ServerProcess, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=20)
    try:
        chunked = isinstance(body, Iterator)
        connection.request(method, path, body, headers, encode_chunked=chunked)  # type: ignore[arg-type]
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def in_chunks(body: bytes) -> Iterator[bytes]:
    for at in range(0, len(body), 100_000):
        yield body[at : at + 100_000]


def test_what_was_acknowledged_is_there_whole_after_a_kill(server: ServerProcess) -> None:
    assert send(server, "PUT", "/demo/s", b"ab")[0] == 201
    assert send(server, "PUT", "/demo/s/snapshot/0", b"old")[0] == 204
    assert send(server, "PUT", "/demo/s/snapshot/2", in_chunks(BODY))[0] == 204
    server.kill9()
    server.restart()
    assert send(server, "GET", "/demo/s/snapshot/2") == (200, BODY)
    assert send(server, "GET", "/demo/s/snapshot/0")[0] == 404
    assert BODY in send(server, "GET", "/demo/s/bootstrap")[1]
    assert server.stop() == 0


def test_one_that_is_cut_off_leaves_the_one_before(server: ServerProcess) -> None:
    assert send(server, "PUT", "/demo/s", b"ab")[0] == 201
    assert send(server, "PUT", "/demo/s/snapshot/0", b"old")[0] == 204
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=20)
    connection.putrequest("PUT", "/demo/s/snapshot/2")
    connection.putheader("Content-Length", str(SIZE))
    connection.endheaders()
    connection.send(BODY[: SIZE // 2])
    server.kill9()
    connection.close()
    server.restart()
    assert send(server, "GET", "/demo/s/snapshot/0") == (200, b"old")
    assert send(server, "PUT", "/demo/s/snapshot/2", BODY)[0] == 204
    assert server.stop() == 0


def test_one_that_is_too_long_is_413(server: ServerProcess) -> None:
    assert send(server, "PUT", "/demo/s", b"ab")[0] == 201
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=20)
    connection.putrequest("PUT", "/demo/s/snapshot/2")
    connection.putheader("Content-Length", str(SNAPSHOT_BYTES_MAX + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    assert send(server, "GET", "/demo/s/snapshot")[0] == 404
