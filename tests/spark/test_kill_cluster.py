"""Kill -9 of the driver, of executors and of the server, at random moments, while one pipeline
writes to a stream, a Delta table and an Iceberg table: every record is in each exactly once.

On a standalone cluster, with a shuffle before the sinks, and with speculation on.
"""

from __future__ import annotations

import os
import random  # noqa: TID251
import signal
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.spark.cluster import SETTINGS, Cluster
from tests.spark.processes import Program
from tests.spark.support import Streams
from tests.spark.test_cluster import SPECULATION
from tests.support.server import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

BUCKET = "kills"
ROUND_ROWS = 600
"""Added before every kill: two micro-batches for each sink."""
MOMENT_S = 1.5
"""A kill comes at most so long after some row of a round is in the stream."""
WAIT_S = 240.0

PIPELINE = f"""
    name: kills
    sources:
      input:
        streams: in/*
        bucket: {BUCKET}
        options: {{maxOffsetsPerTrigger: {ROUND_ROWS // 2}}}
    transforms:
      shuffled: select /*+ repartition(2, value) */ value from input
    sinks:
      stream: {{from: shuffled, stream: out, bucket: {BUCKET}, content_type: text/plain}}
      delta: {{from: shuffled, table: FOLDER/lake/delta}}
      iceberg: {{from: shuffled, table: FOLDER/lake/iceberg, format: iceberg}}
"""


class Scene:
    """The pipeline at work, what it reads, and where it writes to."""

    def __init__(self, cluster: Cluster, server: ServerProcess, folder: Path, seed: int) -> None:
        self.server = server
        self.chance = random.Random(seed)
        self.streams = Streams(server.url, BUCKET, folder)
        self.expected: list[bytes] = []
        self._cluster = cluster
        self._lake = folder / "lake"
        self.pipeline = Program(self._command(), folder / "pipeline.log")
        for name in ("in/1", "in/2"):
            self.streams.make(name)

    def _command(self) -> list[str | Path]:
        folder = self.streams.folder
        file = folder / "kills.yaml"
        file.write_text(textwrap.dedent(PIPELINE).replace("FOLDER", str(folder)))
        command: list[str | Path] = [sys.executable, "-m", "headwater", "pipeline", "run", file]
        command += ["--restart", "--state", folder / "state"]
        command += ["--url", self.server.url, "--master", self._cluster.url]
        for key, value in {**SETTINGS, **SPECULATION}.items():
            command += ["--conf", f"{key}={value}"]
        return command

    def feed(self) -> list[bytes]:
        """One more round of rows, in both streams."""
        first = len(self.expected)
        rows = [b"row %06d" % number for number in range(first, first + ROUND_ROWS)]
        for at, name in enumerate(("in/1", "in/2")):
            self.streams.add(name, rows[at::2])
        self.expected += rows
        return rows

    # -- the sinks

    def written(self) -> int:
        found = self.streams.client.stream(BUCKET, "out")
        return 0 if found is None else found.tail

    def in_stream(self) -> list[bytes]:
        return self.streams.bodies("out") if self.written() else []

    def in_delta(self) -> list[bytes]:
        where = str(self._lake / "delta")
        if not DeltaTable.is_deltatable(where):
            return []
        found: list[bytes] = DeltaTable(where).to_pyarrow_table()["value"].to_pylist()
        return found

    def in_iceberg(self) -> list[bytes]:
        uri = f"sqlite:///{self._lake}/iceberg.db"
        if not (self._lake / "iceberg.db").exists():
            return []
        catalog = load_catalog("headwater", type="sql", uri=uri)
        try:
            table = catalog.load_table("headwater.iceberg")
            found: list[bytes] = table.scan().to_arrow()["value"].to_pylist()
            return found
        finally:
            catalog.close()

    def wait_for_rows(self, at_least: int) -> None:
        self._until(lambda: self.written() >= at_least)

    def wait_for(self, sink: Callable[[], list[bytes]], rows: list[bytes]) -> None:
        wanted = set(rows)
        self._until(lambda: wanted <= set(sink()), poll_s=1.0)

    def _until(self, condition: Callable[[], object], poll_s: float = 0.1) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert self.pipeline.running and time.monotonic() < deadline, self.pipeline.said[-4000:]
            time.sleep(poll_s)

    # -- kills

    def kill_driver(self) -> None:
        self.pipeline.kill9()
        self.pipeline.start()

    def kill_executor(self) -> None:
        """The process that runs tasks; the worker starts another."""
        self._until(self._cluster.executors)
        os.kill(self.chance.choice(self._cluster.executors()), signal.SIGKILL)

    def kill_server(self) -> None:
        self.server.kill9()
        self.streams.client.close()
        self.server.start()

    def kill_at_random(self, times: int) -> None:
        kills = [self.kill_driver, self.kill_executor, self.kill_server] * times
        self.chance.shuffle(kills)
        for kill in kills:
            before = len(self.expected)
            self.feed()
            self.wait_for_rows(before + self.chance.randrange(1, ROUND_ROWS))
            time.sleep(self.chance.random() * MOMENT_S)
            kill()


def run(cluster: Cluster, server: ServerProcess, folder: Path, *, times: int) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
    sys.stdout.write(f"SEED={seed}\n")
    scene = Scene(cluster, server, folder, seed)
    sinks = (scene.in_stream, scene.in_delta, scene.in_iceberg)
    with scene.streams, scene.pipeline:
        scene.kill_at_random(times)
        # Micro-batches come in order: after these rows, nothing of before is repeated any more.
        last = scene.feed()
        for sink in sinks:
            scene.wait_for(sink, last)
        scene.pipeline.stop(timeout_s=60)
        for sink in sinks:
            assert Counter(sink()) == Counter(scene.expected), sink.__name__


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        yield server


def test_every_record_is_in_every_sink_once(
    cluster: Cluster, own_server: ServerProcess, tmp_path: Path
) -> None:
    run(cluster, own_server, tmp_path, times=2)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_record_is_in_every_sink_once_over_many_kills(
    cluster: Cluster, own_server: ServerProcess, tmp_path: Path
) -> None:
    run(cluster, own_server, tmp_path, times=10)
