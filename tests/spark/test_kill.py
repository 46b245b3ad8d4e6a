"""Kill -9 of the driver, of Python workers and of the server, at random moments: every record is in
the sink exactly once. With a shuffle before the sink, and several appends a task."""

from __future__ import annotations

import os
import random  # noqa: TID251
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.spark.driving import Driver, driving
from tests.spark.support import Streams
from tests.support.server import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ROW_BYTES = 1000
BATCH_ROWS = 24_000
"""Two partitions of 12 MB: two appends each."""
POLL_S = 0.02


def fill(streams: Streams, batches: int, chance: random.Random) -> list[bytes]:
    """Rows in two streams, for so many micro-batches."""
    count = batches * BATCH_ROWS // 2
    everything = []
    for name in (b"in/1", b"in/2"):
        streams.make(name.decode())
        bodies = [b"%s %06d " % (name, at) + chance.randbytes(ROW_BYTES) for at in range(count)]
        for at in range(0, count, 12_000):
            streams.add(name.decode(), bodies[at : at + 12_000])
        everything += bodies
    return everything


def written(streams: Streams) -> int:
    found = streams.client.stream(streams.bucket, "out")
    return 0 if found is None else found.tail


def wait_for_rows(driver: Driver, at_least: int) -> None:
    while written(driver.streams) < at_least:
        assert driver.revive(), "the query ended, in order, before the last kill"
        time.sleep(POLL_S)


def kill_at_random(server: ServerProcess, folder: Path, *, batches: int, kills: int) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
    sys.stdout.write(f"SEED={seed}\n")
    chance = random.Random(seed)
    source = {"maxOffsetsPerTrigger": str(BATCH_ROWS)}
    with Streams(server.url, "kills", folder) as streams:
        expected = fill(streams, batches, chance)
        with driving(streams, source=source) as driver:

            def kill_driver() -> None:
                driver.kill9()
                driver.start()

            def kill_server() -> None:
                server.kill9()
                server.start()

            ways: list[Callable[[], None]] = [kill_driver, kill_server, driver.kill_workers]
            for number in range(kills):
                # Somewhere in the next micro-batch: before it, between its appends, or after.
                wait_for_rows(driver, written(streams) + chance.randrange(1, BATCH_ROWS))
                time.sleep(chance.random() * 0.2)
                ways[number % len(ways)]()
            if driver.wait(timeout_s=300) != 0:
                driver.start()  # the last kill of workers may have ended the query
            driver.finish(timeout_s=300)
        assert Counter(streams.bodies("out")) == Counter(expected)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        yield server


def test_every_record_arrives_once_whatever_is_killed(
    own_server: ServerProcess, tmp_path: Path
) -> None:
    kill_at_random(own_server, tmp_path, batches=8, kills=4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_record_arrives_once_over_many_kills(
    own_server: ServerProcess, tmp_path: Path
) -> None:
    kill_at_random(own_server, tmp_path, batches=28, kills=24)
