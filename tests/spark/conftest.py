"""One Spark and one real server for all tests here; every test has a bucket of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.spark import session
from tests.spark.cluster import Cluster, standing
from tests.spark.support import Streams
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


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standing(tmp_path_factory.mktemp("cluster")) as found:
        yield found


_numbers = iter(range(1_000_000))


@pytest.fixture
def streams(server: ServerProcess, tmp_path: Path) -> Iterator[Streams]:
    """A bucket on the server, for tests without Spark too."""
    with Streams(server.url, f"bucket-{next(_numbers)}", tmp_path) as found:
        yield found
