"""A server that is killed in the middle of an incremental append, and a writer that begins anew."""

from __future__ import annotations

import json
import random  # noqa: TID251
import re
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.support.server import ServerProcess

pytestmark = pytest.mark.crash

LINES = 3000
HEAD = (
    b"POST /v1/stream/answer HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    b"stream-append: incremental\r\nstream-closed: true\r\n"
    b"producer-id: model\r\nproducer-epoch: 0\r\nproducer-seq: 0\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def write(port: int, *, slowly: bool) -> bytes:
    """Send every line, from the first. Returns the answer, or nothing if the server went away."""
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(HEAD)
            for number in range(LINES):
                line = b'{"n":%d}\n' % number
                connection.sendall(b"%x\r\n%b\r\n" % (len(line), line))
                if slowly and number % 50 == 0:
                    time.sleep(0.005)
            connection.sendall(b"0\r\n\r\n")
            return connection.recv(65536)
    except OSError:
        return b""


def stored(url: str) -> list[int]:
    with httpx.Client(base_url=url) as client:
        messages: list[int] = []
        offset = "-1"
        while True:
            reply = client.get("/v1/stream/answer", params={"offset": offset})
            messages += [message["n"] for message in json.loads(reply.content)]
            offset = reply.headers["stream-next-offset"]
            if "stream-up-to-date" in reply.headers:
                return messages


def test_every_line_is_there_once_after_crashes(tmp_path: Path) -> None:
    chance = random.Random(7)
    with ServerProcess(tmp_path / "data") as server:
        httpx.put(
            f"{server.url}/v1/stream/answer", headers={"content-type": "application/json"}
        ).raise_for_status()
        found = 0
        for _ in range(3):
            writer = threading.Thread(target=write, args=(server.port,), kwargs={"slowly": True})
            writer.start()
            time.sleep(chance.uniform(0.02, 0.25))
            server.kill9()
            writer.join()
            server.start()
            messages = stored(server.url)
            assert messages == list(range(len(messages)))
            assert len(messages) >= found
            found = len(messages)
        assert 0 < found < LINES, "the test is about what is cut in the middle"
        for status in (b"200", b"204"):  # the second time all of it is a repeat, the close too
            answer = write(server.port, slowly=False)
            assert answer.startswith(b"HTTP/1.1 %b " % status), answer
            assert re.search(rb"stream-append-count: %d\r\n" % LINES, answer)
            assert b"stream-closed: true\r\n" in answer
        assert stored(server.url) == list(range(LINES))
