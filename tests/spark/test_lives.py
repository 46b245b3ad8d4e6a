"""A streaming query without Spark, while its streams live at random: they are appended to, trimmed,
closed, deleted and made again, and the query is restarted. What is retained is read once."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random  # noqa: TID251 (seeded)
from typing import Any

import pytest

from headwater.spark import stream_reader
from headwater.spark.offsets import Json, lag
from headwater.spark.options import parse_source
from headwater.spark.reader import read_ranges
from headwater.spark.stream_reader import StreamReader
from tests.spark.support import Streams, numbers
from tests.support.inprocess import serving

NAMES = [f"in/{number}" for number in range(5)]
LONG = b"x" * 2_000_000
"""Makes three records of a message."""

LIMITS = [
    {},
    {"maxOffsetsPerTrigger": "3"},
    {"maxOffsetsPerTrigger": "20", "minPartitions": "4"},
    {"maxBytesPerTrigger": "50", "maxRecordsPerPartition": "7"},
]


class World:
    """Streams, in each of which every message has a number of its own, larger than those before."""

    def __init__(self, streams: Streams, choice: Random) -> None:
        self.streams = streams
        self._choice = choice
        self._open: dict[str, bool] = {}
        self._next = 0

    def change(self) -> None:
        name = self._choice.choice(NAMES)
        if name not in self._open:
            self.streams.make(name)
            self._open[name] = True
            return
        act = self._choice.choice([self._add, self._add, self._trim, self._close, self._remove])
        act(name)

    def _add(self, name: str) -> None:
        if self._open[name]:
            bodies = numbers(self._choice.randint(1, 30), first=self._next)
            self._next += len(bodies)
            bodies[-1] += b" " + LONG if self._choice.random() < 0.1 else b""
            self.streams.add(name, bodies)

    def _trim(self, name: str) -> None:
        at = self.streams.at(name)
        self.streams.trim(name, self._choice.randint(at.first, at.tail))

    def _close(self, name: str) -> None:
        self.streams.client.close_stream(self.streams.bucket, name)
        self._open[name] = False

    def _remove(self, name: str) -> None:
        self.streams.remove(name)
        del self._open[name]

    def retained(self) -> set[int]:
        return {number_of(body) for name in self._open for body in self.streams.bodies(name)}


class Query:
    """Reads micro-batch after micro-batch, as Spark would."""

    def __init__(self, given: dict[str, str]) -> None:
        self._given = given
        self._reader = self._start()
        self._at: Json = self._reader.initialOffset()
        self.read: list[tuple[str, int]] = []
        """Stream and number of each message."""

    def _start(self) -> StreamReader:
        return StreamReader(parse_source(self._given, streaming=True))

    def restart(self) -> None:
        self._reader.stop()
        self._reader = self._start()

    def plan(self) -> tuple[Json, list[Any]]:
        """The end of the next micro-batch, as a checkpoint keeps it, and its partitions."""
        found = self._reader.latestOffset(self._at, self._reader.getDefaultReadLimit())
        end = json.loads(json.dumps(found))
        return end, self.partitions(end)

    def partitions(self, end: Json) -> list[Any]:
        return [part.value for part in self._reader.partitions(self._at, end)]

    def finish(self, end: Json, parts: list[Any]) -> None:
        for part in parts:
            for batch in read_ranges(self._reader.options, part):
                values = batch.column("value").to_pylist()
                names = batch.column("stream").to_pylist()
                self.read += zip(names, map(number_of, values), strict=True)
        self._at = end

    def drain(self) -> None:
        """Read on until there is nothing new."""
        while True:
            end, parts = self.plan()
            if end == self._at:
                return
            self.finish(end, parts)

    def behind(self) -> int:
        latest = self._reader.reportLatestOffset()
        return sum(lag({"sources": [{"endOffset": self._at, "latestOffset": latest}]}).values())

    def stop(self) -> None:
        self._reader.stop()


def number_of(body: bytes) -> int:
    return int(body.split(b" ")[0])


@pytest.fixture(autouse=True)
def _look_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "LOOK_SHARE", 1.0)


@pytest.mark.parametrize("limits", LIMITS, ids=lambda limits: " ".join(limits) or "no limit")
def test_what_is_retained_is_read_once_and_in_order(tmp_path: Path, limits: dict[str, str]) -> None:
    with serving() as server:
        for seed in range(4):
            with Streams(server.url, f"bucket-{seed}", tmp_path) as streams:
                live(streams, Random(seed), limits)


def live(streams: Streams, choice: Random, limits: dict[str, str]) -> None:
    given = {"endpoint": streams.url, "bucket": streams.bucket, "subscribePattern": "in/*"}
    given |= {"startingOffsets": "earliest", "failOnDataLoss": "false", **limits}
    world, query = World(streams, choice), Query(given)
    for _ in range(20):
        for _ in range(choice.randint(0, 4)):
            world.change()
        end, parts = query.plan()
        if choice.random() < 0.3:  # the driver dies, and the world goes on
            world.change()
            query.restart()
            assert query.partitions(end) == parts
        query.finish(end, parts)
    query.drain()
    assert len(query.read) == len(set(query.read))
    assert world.retained() <= {number for _, number in query.read}
    for name in NAMES:
        own = [number for stream, number in query.read if stream == name]
        assert own == sorted(own)
    assert query.behind() == 0
    query.stop()
