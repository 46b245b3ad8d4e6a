"""One server per test, in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ursula import UrsulaServer


@pytest.fixture
def server() -> Iterator[UrsulaServer]:
    with UrsulaServer() as server:
        yield server
