"""On a standalone cluster: the built-in pipelines, where the package is installed, and a job of
spark-submit for executors that have nothing of ours, to which it goes as a zip file."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.spark.cluster import SETTINGS, Cluster, bare_python, package
from tests.spark.processes import SPARK_HOME, Program, spark_environment
from tests.spark.support import Streams, numbers

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ARCHIVE = """
    archive:
      streams: orders/*
      bucket: BUCKET
      to: FOLDER/lake/orders
      options: {maxOffsetsPerTrigger: 150}
"""

TRANSFORM = """
    sources:
      orders: {streams: orders/*, bucket: BUCKET, json: "item string, price double"}
    transforms:
      totals: select item, count(*) as orders, sum(price) as total from orders group by item
    sinks:
      live: {from: totals, stream: totals, bucket: BUCKET, mode: update}
      lake: {from: totals, table: FOLDER/lake/totals, mode: complete}
"""

ARCHIVE_AND_LIVE = """
    select stream, count(*) as orders, count(distinct id) as ids, min(offset) as first,
           max(id) as last
    from stream('orders/*', bucket => 'BUCKET', archive => 'FOLDER/lake/orders')
    group by stream order by stream
"""

REPLAY = """
    replay:
      table: FOLDER/lake/orders
      bucket: BUCKET-again
      content_type: application/json
"""


class Desk:
    """Pipeline files, and what runs them on the cluster."""

    def __init__(self, cluster: Cluster, streams: Streams) -> None:
        self._streams = streams
        self._folder = streams.folder
        self._on = ["--master", cluster.url, "--url", streams.url]

    def run(self, **files: str) -> None:
        """Until there is nothing left to do."""
        paths = [self._write(name, text) for name, text in files.items()]
        state = self._folder / "state"
        self._headwater("pipelines.log", "pipeline", "run", *paths, "--once", "--state", state)

    def ask(self, statement: str) -> list[Any]:
        """The rows that a query prints."""
        self._headwater("query.log", "query", self._fill(statement), "--output", "json")
        lines = (self._folder / "query.log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def _headwater(self, log: str, *arguments: str | Path) -> None:
        command: list[str | Path] = [sys.executable, "-m", "headwater", *arguments, *self._on]
        for key, value in SETTINGS.items():
            command += ["--conf", f"{key}={value}"]
        run(command, self._folder / log)

    def _write(self, name: str, text: str) -> Path:
        path = self._folder / f"{name}.yaml"
        path.write_text(textwrap.dedent(self._fill(text)))
        return path

    def _fill(self, text: str) -> str:
        return text.replace("FOLDER", str(self._folder)).replace("BUCKET", self._streams.bucket)


def run(command: Sequence[str | Path], log: Path, env: dict[str, str] | None = None) -> None:
    with Program(command, log, env) as program:
        program.finish(timeout_s=150)


def order(number: int) -> bytes:
    return json.dumps({"id": number, "item": "abc"[number % 3], "price": number / 2}).encode()


def test_each_built_in_pipeline_runs_and_queries_do(cluster: Cluster, streams: Streams) -> None:
    orders = {f"orders/{n}": [order(300 * n + i) for i in range(300)] for n in range(2)}
    for name, bodies in orders.items():
        streams.make(name, bodies, content_type="application/json")
    desk = Desk(cluster, streams)
    desk.run(archive=ARCHIVE, transform=TRANSFORM)
    archived = DeltaTable(streams.folder / "lake" / "orders").to_pyarrow_table()
    assert sorted(archived["id"].to_pylist()) == list(range(600))
    totals = DeltaTable(streams.folder / "lake" / "totals").to_pyarrow_table()
    expected = [
        {"item": item, "orders": 200, "total": sum(n / 2 for n in range(at, 600, 3))}
        for at, item in enumerate("abc")
    ]
    assert totals.sort_by("item").to_pylist() == expected
    assert sorted(map(json.loads, streams.bodies("totals")), key=str) == expected

    streams.trim("orders/0", 200)
    streams.add("orders/0", [order(600 + number) for number in range(50)])
    assert desk.ask(ARCHIVE_AND_LIVE) == [
        {"stream": "orders/0", "orders": 350, "ids": 350, "first": 0, "last": 649},
        {"stream": "orders/1", "orders": 300, "ids": 300, "first": 0, "last": 599},
    ]

    desk.run(replay=REPLAY)
    streams.bucket += "-again"
    for name, bodies in orders.items():
        assert streams.bodies(name) == bodies


JOB = """
    import sys

    from headwater.spark import HeadwaterDataSource, session

    spark = session()
    assert spark.sparkContext.master.startswith("spark://"), spark.sparkContext.master
    spark.dataSource.register(HeadwaterDataSource)
    server = {"endpoint": sys.argv[1], "bucket": sys.argv[2]}
    found = spark.read.format("headwater").options(**server, subscribe="in").load()
    found.select("value").write.format("headwater").options(**server, stream="out").mode(
        "append"
    ).save()
"""


def test_spark_submit_takes_the_package_as_a_zip_file(cluster: Cluster, streams: Streams) -> None:
    streams.make("in", numbers(1000))
    job = streams.folder / "job.py"
    job.write_text(textwrap.dedent(JOB))
    command: list[str | Path] = [SPARK_HOME / "bin" / "spark-submit", "--master", cluster.url]
    command += ["--py-files", package(streams.folder)]
    for key, value in SETTINGS.items():
        command += ["--conf", f"{key}={value}"]
    python = str(bare_python(streams.folder))
    env = {**spark_environment(), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    run([*command, job, streams.url, streams.bucket], streams.folder / "job.log", env)
    assert sorted(streams.bodies("out")) == sorted(numbers(1000))
