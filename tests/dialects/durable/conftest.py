"""One server per test, in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.durable import DurableServer
from tests.support.uploads import SlowServer


@pytest.fixture
def server() -> Iterator[DurableServer]:
    with DurableServer() as server:
        yield server


@pytest.fixture
def slow() -> Iterator[SlowServer]:
    with SlowServer() as server:
        yield server
        server.release()
