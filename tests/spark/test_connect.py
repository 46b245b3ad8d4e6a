"""On a Spark Connect server from the PyPI package: queries, pipelines and Declarative Pipelines."""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headwater.pipeline.progress import read_status
from tests.pipeline.support import forget_last
from tests.spark.driving import driving
from tests.spark.processes import SPARK_HOME, Program, spark_environment
from tests.spark.support import Streams, numbers

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}


class Connect:
    """A server that is up. `run` runs a command of ours or of Spark's against it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.tables = folder / "tables"

    def run(self, *command: str | Path) -> str:
        """What a command prints."""
        self.folder.joinpath("run.log").unlink(missing_ok=True)
        with Program(command, self.folder / "run.log", spark_environment()) as program:
            program.finish(timeout_s=150)
            return program.said


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    folder = tmp_path_factory.mktemp("connect")
    settings = {**SETTINGS, "spark.sql.warehouse.dir": str(folder / "tables")}
    # What start-connect-server.sh does, which is not in the package of 4.2.
    command: list[str | Path] = [SPARK_HOME / "bin" / "spark-submit", "--class", SERVER]
    command += ["--master", "local[2,4]"]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    with Program(command, folder / "server.log", spark_environment()) as server:
        port = server.wait_for(r"Spark Connect server started at: \S*:(\d+)")
        yield Connect(f"sc://127.0.0.1:{port}", folder)


def test_a_query_moves_every_record_once(connect: Connect, streams: Streams) -> None:
    for name in ("in/1", "in/2"):
        streams.make(name, numbers(1000))
    limit = {"maxOffsetsPerTrigger": "900"}
    with driving(streams, master=connect.url, source=limit) as driver:
        driver.finish(timeout_s=150)
    assert Counter(streams.bodies("out")) == Counter(numbers(1000) * 2)


def test_a_pipeline_file_runs_unchanged(connect: Connect, streams: Streams) -> None:
    streams.make("orders/1", [b'{"id": %d}' % number for number in range(100)])
    file, table = streams.folder / "archive.yaml", streams.folder / "lake" / "orders"
    file.write_text(f"archive: {{streams: orders/*, bucket: {streams.bucket}, to: {table}}}\n")
    headwater = (sys.executable, "-m", "headwater")
    there = ("--url", streams.url, "--master", connect.url)
    state = ("--state", streams.folder / "state")
    connect.run(*headwater, "pipeline", "run", file, "--once", *state, *there)
    assert sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist()) == list(range(100))
    said = connect.run(
        *headwater,
        "query",
        f"select count(*) as n from stream('orders/*', bucket => '{streams.bucket}') "
        f"join lake('{table}') using (stream, offset)",
        "--output=json",
        *there,
    )
    assert '{"n": 100}' in said


TOTALS = """
    sources: {orders: {streams: orders, bucket: BUCKET, json: "item string, price double"}}
    transforms: {totals: "select item, sum(price) as total from orders group by item"}
    sinks: {live: {from: totals, stream: totals, bucket: BUCKET, mode: update}}
"""


def test_results_that_changed_are_told_once(connect: Connect, streams: Streams) -> None:
    file, state = streams.folder / "totals.yaml", streams.folder / "state [1]*"
    file.write_text(textwrap.dedent(TOTALS.replace("BUCKET", streams.bucket)))
    command = (sys.executable, "-m", "headwater", "pipeline", "run", file, "--once")
    where = ("--url", streams.url, "--master", connect.url, "--state", state)
    streams.make("orders", [b'{"item": "a", "price": 1.5}', b'{"item": "b", "price": 2}', b"bad"])
    connect.run(*command, *where)
    forget_last(state / "totals" / "live")  # so the same batch is handed over again
    streams.add("orders", [b'{"item": "a", "price": 3}'])
    connect.run(*command, *where)
    told = [json.loads(body) for body in streams.bodies("totals")]
    assert sorted((row["item"], row["total"]) for row in told[:2]) == [("a", 1.5), ("b", 2.0)]
    assert told[2:] == [{"item": "a", "total": 4.5}]
    status = {each.query: each.rows for each in read_status(streams.client, "totals")}
    assert status["dead-letters-orders"] == 1


FLOW = """
    from pyspark import pipelines as dp
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = SparkSession.active()
    server = {"endpoint": "URL", "bucket": "BUCKET"}


    @dp.table
    def events():
        source = spark.readStream.format("headwater").options(**server, subscribe="in")
        return source.option("startingOffsets", "earliest").load().select("value", "offset")


    @dp.materialized_view
    def totals():
        by_kind = spark.read.table("events").groupBy((F.col("offset") % 2).alias("kind"))
        return by_kind.agg(F.count("*").alias("events"))


    dp.create_sink("back", "headwater", {**server, "stream": "out", "contentType": "text/plain"})


    @dp.append_flow(target="back")
    def to_stream():
        return spark.readStream.table("events").select("value")
"""


def test_declarative_pipelines_read_and_write_streams(connect: Connect, streams: Streams) -> None:
    folder = streams.folder
    flow = FLOW.replace("URL", streams.url).replace("BUCKET", streams.bucket)
    (folder / "flow.py").write_text(textwrap.dedent(flow))
    spec = folder / "spark-pipeline.yml"
    spec.write_text(
        f"name: flow\nstorage: {(folder / 'state').as_uri()}\n"
        "libraries: [{glob: {include: flow.py}}]\n"
    )
    streams.make("in")
    for first in (0, 1000):  # an update adds what is new
        streams.add("in", numbers(1000, first))
        connect.run(
            SPARK_HOME / "bin" / "spark-pipelines", "run", "--remote", connect.url, "--spec", spec
        )
        assert sorted(streams.bodies("out")) == sorted(numbers(first + 1000))
    totals = pq.read_table(connect.tables / "totals").sort_by("kind").to_pylist()
    assert totals == [{"kind": 0, "events": 1000}, {"kind": 1, "events": 1000}]
