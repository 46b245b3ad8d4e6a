"""kill -9 in the middle of writes: what was acknowledged is there once, whoever wrote it.

Idempotent producers retry through the crashes and must end with every message once. Plain writers
do not retry: an acknowledged message is there once, an unanswered one at most once.
"""

from __future__ import annotations

import http.client
import json
import random  # noqa: TID251
import threading
import time
from pathlib import Path

import pytest

from headwater.cli.main import main
from tests.support.server import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

ROUNDS = 5
PRODUCERS = 4
PLAIN_WRITERS = 3
STREAMS = 2
JSON = {"Content-Type": "application/json"}


class Writers:
    """Threads that write until they are told to stop, and remember what was answered."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stopping = threading.Event()
        self.acknowledged: dict[str, list[int]] = {}
        self.attempted: dict[str, int] = {}
        self._threads = [
            threading.Thread(target=self._write, args=(f"producer-{n}", n, True))
            for n in range(PRODUCERS)
        ] + [
            threading.Thread(target=self._write, args=(f"plain-{n}", n, False))
            for n in range(PLAIN_WRITERS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _write(self, writer: str, number: int, idempotent: bool) -> None:
        acknowledged = self.acknowledged.setdefault(writer, [])
        path = f"/v1/stream/s{number % STREAMS}"
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        seq = 0
        while not self._stopping.is_set():
            self.attempted[writer] = seq
            headers = dict(JSON)
            if idempotent:
                headers |= {
                    "Producer-Id": writer,
                    "Producer-Epoch": "0",
                    "Producer-Seq": str(seq),
                }
            try:
                connection.request("POST", path, json.dumps([writer, seq]).join("[]"), headers)
                reply = connection.getresponse()
                reply.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                time.sleep(0.01)
                if not idempotent:
                    seq += 1  # it may be there or not: never send it again
                continue
            assert reply.status in (200, 204), reply.status
            acknowledged.append(seq)
            seq += 1
        connection.close()


def stored(port: int, stream: str) -> list[tuple[str, int]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    found: list[tuple[str, int]] = []
    offset = "-1"
    while True:
        connection.request("GET", f"/v1/stream/{stream}?offset={offset}")
        reply = connection.getresponse()
        found += [(writer, seq) for writer, seq in json.loads(reply.read())]
        offset = reply.headers["stream-next-offset"]
        if reply.headers["stream-up-to-date"]:
            connection.close()
            return found


def test_every_acknowledged_append_is_there_once_after_kills(tmp_path: Path) -> None:
    chance = random.Random(20_261_115)
    with ServerProcess(tmp_path / "data") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        for number in range(STREAMS):
            connection.request("PUT", f"/v1/stream/s{number}", headers=JSON)
            assert connection.getresponse().read() == b""
        connection.close()
        writers = Writers(server.port)
        for _ in range(ROUNDS):
            time.sleep(chance.uniform(0.2, 0.8))
            server.kill9()
            server.start()
        time.sleep(0.3)
        writers.stop()

        found = [item for number in range(STREAMS) for item in stored(server.port, f"s{number}")]
        for writer, acknowledged in writers.acknowledged.items():
            mine = [seq for who, seq in found if who == writer]
            assert mine == sorted(set(mine)), f"{writer}: doubled or out of order"
            assert set(acknowledged) <= set(mine), f"{writer}: acknowledged and lost"
            assert len(acknowledged) > ROUNDS, f"{writer} hardly wrote anything"
            if writer.startswith("producer"):
                assert mine == list(range(len(mine))), f"{writer}: a gap"
                assert len(mine) - len(acknowledged) <= 1
            else:
                assert set(mine) <= set(range(writers.attempted[writer] + 1))
        assert server.stop() == 0
    assert main(["check", str(tmp_path / "data")]) == 0
