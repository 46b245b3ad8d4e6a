"""One Spark and one server for all tests here; every test has a bucket of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.spark import session
from tests.pipeline.support import Desk
from tests.support.server import ServerProcess


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    found = session("tests", cores=2)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as found:
        yield found


_numbers = iter(range(1_000_000))


@pytest.fixture
def desk(server: ServerProcess, spark: SparkSession, tmp_path: Path) -> Iterator[Desk]:
    with Desk(spark, server.url, f"bucket-{next(_numbers)}", tmp_path) as found:
        yield found
