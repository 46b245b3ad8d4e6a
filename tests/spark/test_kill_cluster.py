"""Kill -9 of the driver, of executors and of the server, while one pipeline writes to a stream, a
Delta table and an Iceberg table: every record is in each exactly once.

Kills come at random moments, which seldom fall where a repeat is hardest to tell: when a sink has a
batch and Spark has not noted so yet. So others are aimed there. On a standalone cluster, with a
shuffle before the sinks, and with speculation on.
"""

from __future__ import annotations

import os
import random  # noqa: TID251
import re
import signal
import sqlite3
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Protocol

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
AIM_POLL_S = 0.001
AIMS_MAX = 5
"""Kills that are aimed at one moment. The first should hit."""
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


class Sink(Protocol):
    """Where one query of the pipeline writes to. To be asked once its first batch is done."""

    name: str

    def rows(self) -> list[bytes]:
        """All that is there."""

    def version(self) -> int:
        """Greater after every write, and quick to ask for."""


class StreamSink:
    name = "stream"

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def rows(self) -> list[bytes]:
        return self._streams.bodies("out")

    def version(self) -> int:
        """Can be asked before, too."""
        found = self._streams.client.stream(BUCKET, "out")
        return 0 if found is None else found.tail


class DeltaSink:
    name = "delta"

    def __init__(self, lake: Path) -> None:
        self._folder = lake / "delta"

    def rows(self) -> list[bytes]:
        found: list[bytes] = DeltaTable(self._folder).to_pyarrow_table()["value"].to_pylist()
        return found

    def version(self) -> int:
        return greatest(self._folder / "_delta_log")


class IcebergSink:
    name = "iceberg"

    def __init__(self, lake: Path) -> None:
        self._catalog = lake / "iceberg.db"

    def rows(self) -> list[bytes]:
        catalog = load_catalog("headwater", type="sql", uri=f"sqlite:///{self._catalog}")
        try:
            table = catalog.load_table("headwater.iceberg")
            found: list[bytes] = table.scan().to_arrow()["value"].to_pylist()
            return found
        finally:
            catalog.close()

    def version(self) -> int:
        """As the catalog has it: a file of metadata is there before it counts."""
        with closing(sqlite3.connect(self._catalog)) as catalog:
            [(location,)] = catalog.execute("select metadata_location from iceberg_tables")
        return int(Path(location).name.partition("-")[0])


def greatest(log: Path) -> int:
    """The last entry of a log that has a file for each: of Delta, or of a checkpoint of Spark."""
    if not log.exists():
        return -1
    found = (re.fullmatch(r"(\d+)(\.json)?", entry.name) for entry in os.scandir(log))
    return max((int(name[1]) for name in found if name), default=-1)


class Scene:
    """The pipeline at work, what it reads, and where it writes to."""

    def __init__(self, cluster: Cluster, server: ServerProcess, folder: Path, seed: int) -> None:
        self.server = server
        self.chance = random.Random(seed)
        self.streams = Streams(server.url, BUCKET, folder)
        self.stream = StreamSink(self.streams)
        lake = folder / "lake"
        self.sinks: list[Sink] = [self.stream, DeltaSink(lake), IcebergSink(lake)]
        self.expected: list[bytes] = []
        self._cluster = cluster
        self._state = folder / "state"
        self.pipeline = Program(self._command(), folder / "pipeline.log")
        for name in ("in/1", "in/2"):
            self.streams.make(name)

    def _command(self) -> list[str | Path]:
        folder = self.streams.folder
        file = folder / "kills.yaml"
        file.write_text(textwrap.dedent(PIPELINE).replace("FOLDER", str(folder)))
        command: list[str | Path] = [sys.executable, "-m", "headwater", "pipeline", "run", file]
        command += ["--restart", "--state", self._state]
        command += ["--url", self.server.url, "--master", self._cluster.url]
        for key, value in {**SETTINGS, **SPECULATION}.items():
            command += ["--conf", f"{key}={value}"]
        return command

    def feed(self) -> None:
        """One more round of rows, in both streams."""
        first = len(self.expected)
        rows = [b"row %06d" % number for number in range(first, first + ROUND_ROWS)]
        for at, name in enumerate(("in/1", "in/2")):
            self.streams.add(name, rows[at::2])
        self.expected += rows

    def settle(self, sink: Sink) -> int:
        """Wait until the last rows are in a sink, and noted. Returns which batch comes next."""
        last = set(self.expected[-ROUND_ROWS:])

        def settled() -> bool:
            return (
                self._noted(sink, "commits") >= 0
                and last <= set(sink.rows())
                and self._noted(sink, "commits") == self._noted(sink, "offsets")
            )

        self._until(settled, poll_s=1.0)
        return self._noted(sink, "commits") + 1

    def _noted(self, sink: Sink, log: str) -> int:
        """The last batch that Spark has begun (`offsets`), or that it knows is done (`commits`)."""
        return greatest(self._state / "kills" / sink.name / log)

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

    def at_random(self, kill: Callable[[], None]) -> None:
        wanted = len(self.expected) + self.chance.randrange(1, ROUND_ROWS)
        self.feed()
        self._until(lambda: self.stream.version() >= wanted)
        time.sleep(self.chance.random() * MOMENT_S)
        kill()

    def between_commits(self, sink: Sink) -> None:
        """Kill the driver when a sink has a batch that Spark has not noted as done."""
        hit = any(self._killed_between(sink) for _ in range(AIMS_MAX))
        assert hit, f"every kill came too late. sink={sink.name}"

    def _killed_between(self, sink: Sink) -> bool:
        batch = self.settle(sink)
        before = sink.version()
        self.feed()
        self._until(lambda: sink.version() > before, poll_s=AIM_POLL_S)
        self.pipeline.kill9()
        noted = self._noted(sink, "commits")
        self.pipeline.start()
        return noted < batch

    def kill(self, *, aimed: int, at_random: int) -> None:
        """So many times for each sink, and so many times at random, in any order."""
        ways = cycle((self.kill_executor, self.kill_server, self.kill_driver))
        kills = [partial(self.between_commits, sink) for sink in self.sinks] * aimed
        kills += [partial(self.at_random, way) for way in islice(ways, at_random)]
        self.chance.shuffle(kills)
        for kill in kills:
            kill()


def run(
    cluster: Cluster, server: ServerProcess, folder: Path, *, aimed: int, at_random: int
) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
    sys.stdout.write(f"SEED={seed}\n")
    scene = Scene(cluster, server, folder, seed)
    with scene.streams, scene.pipeline:
        scene.feed()
        scene.kill(aimed=aimed, at_random=at_random)
        # Micro-batches come in order: after these rows, nothing of before is repeated any more.
        scene.feed()
        for sink in scene.sinks:
            scene.settle(sink)
        scene.pipeline.stop(timeout_s=60)
        for sink in scene.sinks:
            assert Counter(sink.rows()) == Counter(scene.expected), sink.name


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        yield server


def test_every_record_is_in_every_sink_once(
    cluster: Cluster, own_server: ServerProcess, tmp_path: Path
) -> None:
    run(cluster, own_server, tmp_path, aimed=1, at_random=2)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_record_is_in_every_sink_once_over_many_kills(
    cluster: Cluster, own_server: ServerProcess, tmp_path: Path
) -> None:
    run(cluster, own_server, tmp_path, aimed=5, at_random=15)
