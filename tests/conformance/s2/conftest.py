"""One server for the tests of a file: each makes basins of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("s2") / "data") as server:
        yield server


@pytest.fixture
def url(server: ServerProcess) -> str:
    return server.url
