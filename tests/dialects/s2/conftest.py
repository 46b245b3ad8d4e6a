"""One server per test, in memory, with a basin and nothing in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.s2 import S2Server


@pytest.fixture
def server() -> Iterator[S2Server]:
    with S2Server() as server:
        yield server
