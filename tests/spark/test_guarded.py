"""Spark and a server that asks for tokens and keys: both options reach every task."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.support import Streams, numbers
from tests.support.server import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TOKEN = "a root token of the tests"
KEY, OTHER_KEY = (b64encode(bytes([each]) * 32).decode() for each in (1, 2))
BUCKET = "sealed-records"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With a bucket whose streams are encrypted."""
    folder = tmp_path_factory.mktemp("guarded") / "data"
    with ServerProcess(folder, "--auth", env={"HEADWATER_ROOT_TOKEN": TOKEN}) as server:
        basin = {"basin": BUCKET, "config": {"stream_cipher": "aegis-256"}}
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        urlopen(Request(f"{server.url}/v1/basins", json.dumps(basin).encode(), headers)).close()
        yield server


@pytest.fixture
def sealed(guarded: ServerProcess, tmp_path: Path) -> Iterator[Streams]:
    with Streams(guarded.url, BUCKET, tmp_path) as found:
        yield found


def test_a_query_with_token_and_key_writes_and_reads(spark: SparkSession, sealed: Streams) -> None:
    allowed = {"token": TOKEN, "encryptionKey": KEY}
    rows = spark.createDataFrame([(body,) for body in numbers(1000)], "value binary").coalesce(1)
    sealed.write(rows, stream="in", **allowed)
    sealed.run(
        sealed.follow(spark, subscribe="in", **allowed).select("value"), stream="out", **allowed
    )
    for name in ("in", "out"):
        found = sealed.read(spark, subscribe=name, **allowed).orderBy("offset").collect()
        assert [bytes(row.value) for row in found] == numbers(1000)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "token"),
        ({"token": TOKEN}, "aegis-256"),
        ({"token": TOKEN, "encryptionKey": OTHER_KEY}, "key"),
    ],
    ids=["no token", "no key", "another key"],
)
def test_a_query_without_them_says_what_is_missing(
    spark: SparkSession, sealed: Streams, given: dict[str, str], expected: str
) -> None:
    rows = spark.createDataFrame([(b"secret",)], "value binary")
    sealed.write(rows, stream="refused", token=TOKEN, encryptionKey=KEY)
    with pytest.raises(PySparkException, match=expected) as caught:
        sealed.read(spark, subscribe="refused", **given).collect()
    assert KEY not in str(caught.value)
    assert TOKEN not in str(caught.value)
