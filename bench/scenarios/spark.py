"""Spark on `local[2]`: reads beside Parquet, the sink, planning over many streams, an archive.

One JVM for all, made when the first scenario needs it. What is measured is warm: Java compiles the
code that it runs often, so the first rounds say little.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.ipc as ipc
from pyspark.sql import DataFrame, SparkSession

from bench import procfs
from bench.plan import MB, Plan
from bench.report import Row, at_least, at_most, compare, ratio_at_least, ratio_at_most, say
from bench.servers import Server, ours
from headwater.client import Client
from headwater.spark import session
from headwater.spark.options import parse_source
from headwater.spark.reader import BatchReader

BUCKET = "durable-streams"
STREAM = "records"
RECORD_BYTES = 200
RECORDS_PER_APPEND = 50_000
WARM_ROUNDS = 40
"""So many until Java has compiled all that it will: after ten the times still fall."""
READ_RATIO_MIN = 0.8
SINK_ROWS_MIN = 100_000
PLAN_S_MAX = 3.0
SINK_BATCHES = 4
MEMORY_RATIO_MAX = 1.5
"""Four times the data may take so much more memory: caches fill, nothing grows with the stream."""
SAMPLE_S = 0.1
MIB = 1024 * 1024


def reading(plan: Plan) -> list[Row]:
    """Records of 200 random bytes, through the connector and from Parquet without compression."""
    spark = _spark()
    with ours(plan.workspace("spark-read")) as server:
        _load(server, plan.records)
        streams = spark.read.format("headwater").options(**_given(server)).load()
        table = str(plan.folder / "spark-read" / "parquet")
        streams.repartition(2).write.option("compression", "none").parquet(table)
        files = spark.read.parquet(table)
        for _ in range(WARM_ROUNDS):
            _consume(files)
            _consume(streams)
        parquet, connector, cpu = [], [], []
        megabytes = plan.records * RECORD_BYTES / MB
        for number in range(plan.rounds):
            parquet.append(megabytes / _consume(files))
            cpu_s = server.cpu_s()
            connector.append(megabytes / _consume(streams))
            cpu.append((server.cpu_s() - cpu_s) / megabytes * 1e6)
            say(
                f"  {number + 1}/{plan.rounds} connector {connector[-1]:,.0f} MB/s, "
                f"parquet {parquet[-1]:,.0f} MB/s"
            )
    target = ratio_at_least(READ_RATIO_MIN)
    return [
        compare("spark-read", "MB/s, vs Parquet", connector, parquet, cpu_us=cpu, target=target)
    ]


def writing(plan: Plan) -> list[Row]:
    """A streaming query from one stream to another: rows a second of its steady micro-batches."""
    spark = _spark()
    with ours(plan.workspace("spark-write")) as server:
        _load(server, plan.records)
        options = {
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(plan.records // SINK_BATCHES),
            "minPartitions": "2",
        }
        follow = spark.readStream.format("headwater").options(**_given(server), **options).load()
        rates: list[float] = []
        for number in range(plan.rounds):
            rates += _copy(follow.select("value"), server, plan.folder / "spark-write", number)
            say(f"  {number + 1}/{plan.rounds} {rates[-1]:,.0f} rows/s")
    return [compare("spark-write", "rows/s", rates, target=at_least(SINK_ROWS_MIN))]


def planning(plan: Plan) -> list[Row]:
    """How long a read over ten thousand streams takes to be planned."""
    with ours(plan.workspace("spark-plan")) as server:
        command = [sys.executable, "-m", "bench.creator", str(server.port), "/v1/stream/many-"]
        subprocess.run([*command, str(plan.listed_streams)], check=True)
        given = {"endpoint": _url(server), "subscribePrefix": "many-"}
        reader = BatchReader(parse_source(given, streaming=False))
        seconds = []
        for _ in range(plan.rounds):
            started = time.perf_counter()
            parts = reader.partitions()
            seconds.append(time.perf_counter() - started)
            assert sum(len(part.value) for part in parts) == plan.listed_streams
            say(f"  {seconds[-1]:.2f} s")
    measure = f"s, {plan.listed_streams:,} streams"
    return [compare("spark-plan", measure, seconds, target=at_most(PLAN_S_MAX))]


def archiving(plan: Plan) -> list[Row]:
    """A stream into a Delta table: what it takes of memory, beside a quarter of that stream."""
    whole, quarter = (
        _archive(plan, f"spark-archive-{part}", plan.archived_bytes // part) for part in (1, 4)
    )
    bounded = ratio_at_most(MEMORY_RATIO_MAX)
    return [
        compare("spark-archive", "MB/s", [whole.megabytes_per_s]),
        *(
            compare(
                f"spark-archive-{who}",
                f"MiB at most, {plan.archived_bytes // MB:,} MB vs a quarter of it",
                [whole.peak_bytes[who] / MIB],
                [quarter.peak_bytes[who] / MIB],
                target=bounded,
            )
            for who in ("server", "worker", "java")
        ),
    ]


class _Archived(NamedTuple):
    megabytes_per_s: float
    peak_bytes: dict[str, int]
    """Of the server, the JVM, and the largest Python worker."""


def _archive(plan: Plan, name: str, size: int) -> _Archived:
    """Into a new table, by the command that users have."""
    folder = plan.workspace(name)
    with ours(folder) as server:
        _load(server, size // RECORD_BYTES)
        command = [sys.executable, "-m", "headwater", "pipeline", "archive", STREAM]
        command += ["--bucket", BUCKET, "--to", str(folder / "table"), "--once", "--quiet"]
        command += ["--state", str(folder / "state"), "--url", _url(server), "--cores", "2"]
        started = time.perf_counter()
        peak: dict[str, int] = {}
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as archive:
            while archive.poll() is None:
                for pid, (program, used) in procfs.peaks(archive.pid).items():
                    who = "java" if program == "java" else "worker"
                    if pid != archive.pid:
                        peak[who] = max(peak.get(who, 0), used)
                time.sleep(SAMPLE_S)
        seconds = time.perf_counter() - started
        if archive.returncode:
            raise RuntimeError(f"the archive ended with {archive.returncode}")
        peak["server"] = max(used for _, used in procfs.peaks(server.pid).values())
    shutil.rmtree(folder)
    shown = ", ".join(f"{who} {used / MIB:,.0f} MiB" for who, used in sorted(peak.items()))
    say(f"  {size / MB:,.0f} MB in {seconds:.0f} s, {shown}")
    return _Archived(size / MB / seconds, peak)


@cache
def _spark() -> SparkSession:
    return session("bench", cores=2)


def _url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


def _given(server: Server) -> dict[str, str]:
    return {"endpoint": _url(server), "subscribe": STREAM}


def _consume(frame: DataFrame) -> float:
    """Every column of every row; seconds."""
    started = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def _copy(frame: DataFrame, server: Server, folder: Path, number: int) -> list[float]:
    """Rows a second of each micro-batch but the first, in which the query starts up."""
    query = (
        frame.writeStream.format("headwater")
        .options(endpoint=_url(server), stream=f"copy-{number}")
        .option("checkpointLocation", str(folder / f"checkpoint-{number}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = [
        progress["numInputRows"] / progress["durationMs"]["triggerExecution"] * 1000
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]
    return found[1:]


def _load(server: Server, count: int) -> None:
    with Client(_url(server)) as client:
        client.create(BUCKET, STREAM, "application/octet-stream")
        for _ in range(count // RECORDS_PER_APPEND):
            bodies = [os.urandom(RECORD_BYTES) for _ in range(RECORDS_PER_APPEND)]
            table = pa.table({"body": pa.array(bodies, pa.binary())})
            sink = pa.BufferOutputStream()
            with ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            client.append(BUCKET, STREAM, sink.getvalue())
