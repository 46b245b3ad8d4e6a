"""Appends, reads and tails of many clients are linearizable, however often the server dies."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest

from tests.support.linearizability import NEVER, check
from tests.support.s2_history import History
from tests.support.server import ServerProcess

BASIN = "linearizable"
STREAM = "stream"
ROUND_TIMEOUT_S = 30.0


@pytest.mark.crash
@pytest.mark.timeout(120)
def test_a_history_with_kills_is_linearizable(tmp_path: Path) -> None:
    _check_history(tmp_path, seed=20_261_115, kills=5, operations=250)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(5))
def test_a_long_history_with_many_kills_is_linearizable(tmp_path: Path, seed: int) -> None:
    _check_history(tmp_path, seed=seed, kills=20, operations=400)


def _check_history(tmp_path: Path, *, seed: int, kills: int, operations: int) -> None:
    """`operations` are made before each kill, and as many after the last."""
    with ServerProcess(tmp_path / "data") as server:
        _create(server.port)
        history = History(seed, server.port, basin=BASIN, stream=STREAM, of_each=3)
        history.start()
        try:
            for _ in range(kills):
                history.wait_for(operations, ROUND_TIMEOUT_S)
                server.kill9()
                server.start()
            history.wait_for(operations, ROUND_TIMEOUT_S)
        finally:
            history.stop()
        assert not history.errors, history.errors[0]
        settled = history.finish()
        assert server.stop() == 0
    made = history.operations
    assert len(made) > kills * operations / 2
    assert any(operation.returned == NEVER for operation in made), "the kills came between calls"
    tokens = {operation.saw.token for operation in made}
    assert len(tokens - {None}) > 1, "nobody was ever fenced"
    verdict = check(settled)
    assert verdict.linearizable, str(verdict)


def _create(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    for path, body in (("/v1/basins", {"basin": BASIN}), ("/v1/streams", {"stream": STREAM})):
        headers = {"content-type": "application/json", "s2-basin": BASIN}
        connection.request("POST", path, json.dumps(body), headers)
        reply = connection.getresponse()
        assert reply.status == 201, reply.read()
        reply.read()
    connection.close()
