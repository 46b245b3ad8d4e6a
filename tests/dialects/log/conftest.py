"""One server per test, in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.log import LogServer


@pytest.fixture
def server() -> Iterator[LogServer]:
    with LogServer() as server:
        yield server
