"""The sink: exactly once, by the server's idempotent producers. ADR 0013.

    Producer-Id      query id / partition        of a batch write: an id made on the driver
    Producer-Epoch   number of the micro-batch   0
    Producer-Seq     number of the append to that stream, within the task

A task that runs again, speculated, retried or after a crash of anything, makes the same appends
under the same numbers, and the server adds each once. A task of an older micro-batch that still
runs somewhere has an older epoch, and is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headwater.client import Client, Producer, ProducerFenced, StreamNotFound
from headwater.spark import chunks, targets, workers
from headwater.spark.options import SinkOptions
from headwater.spark.targets import Target

log = logging.getLogger("headwater.spark")

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark gives to the tasks of a streaming query."""

ADAPTIVE = ("spark.sql.adaptive.enabled", "spark.sql.adaptive.streaming.stateless.enabled")
"""Settings of Spark, true unless they are set. When both are, rows that are shuffled may be in
other partitions when a micro-batch is repeated, by a cluster of another size for instance."""


class MissingIds(RuntimeError):
    """Spark did not say which micro-batch this is, so a repeat could not be told from new rows."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    targets: tuple[Target, ...]
    rows: int
    appends: int
    repeats: int
    """Appends that an earlier attempt had made."""
    adaptive: bool = False
    """Spark may cut the rows differently next time."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = _context()
        batch_id = context.getLocalProperty(BATCH_ID)
        query_id = self.options.producer_id or context.getLocalProperty(QUERY_ID)
        if not batch_id or not query_id:
            raise MissingIds(
                "Spark supplied no query id or no batch id to the task. Without them rows could be "
                f"written twice. {QUERY_ID}={query_id!r} {BATCH_ID}={batch_id!r}"
            )
        producer = Producer(f"{query_id}/{context.partitionId()}", int(batch_id), 0)
        written = write_rows(self.options, producer, iterator)
        return replace(written, adaptive=is_adaptive(context.getLocalProperty))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = [message for message in messages if isinstance(message, Written)]
        if batchId == 0 and any(message.adaptive for message in written):
            log.warning(
                "if this query shuffles rows before it writes them, set %s to false: otherwise "
                "rows may be lost or doubled when a micro-batch is repeated. See docs/spark.md",
                ADAPTIVE[1],
            )


class BatchWriter(DataSourceArrowWriter):
    """Writes a batch. `write_id` is made on the driver, so that all attempts share it."""

    def __init__(self, options: SinkOptions, write_id: str) -> None:
        self.options = options
        self.write_id = options.producer_id or write_id

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        producer_id = f"{self.write_id}/{_context().partitionId()}"
        epoch = self.options.producer_epoch or 0
        return write_rows(self.options, Producer(producer_id, epoch, 0), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self.options.close:
            return
        written = {
            target
            for message in messages
            if isinstance(message, Written)
            for target in message.targets
        }
        if self.options.stream is not None and not written:
            written.add(targets.named(self.options))
        with self.options.connection.open() as client:
            for target in sorted(written):
                _ensured(client, self.options, target, lambda at=target: client.close_stream(*at))


def write_rows(options: SinkOptions, first: Producer, batches: Iterator[Any]) -> Written:
    """All rows of a task. Returns when they are on disk."""
    workers.settle()
    with options.connection.open() as client:
        lanes: dict[Target, Lane] = {}
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            for target, part in targets.split(batch, options):
                lane = lanes.get(target)
                if lane is None:
                    lane = lanes[target] = Lane(client, options, target, first)
                lane.add(chunks.records(part, options.headers))
        for lane in lanes.values():
            lane.finish()
    appends = sum(lane.producer.seq for lane in lanes.values())
    repeats = sum(lane.repeats for lane in lanes.values())
    return Written(tuple(lanes), rows, appends, repeats)


class Lane:
    """What one task sends to one stream. Producers are the stream's own, so each lane counts by
    itself."""

    def __init__(
        self, client: Client, options: SinkOptions, target: Target, producer: Producer
    ) -> None:
        self.producer = producer
        self.repeats = 0
        self._client = client
        self._options = options
        self._target = target
        self._waiting: list[Any] = []
        self._bytes = 0

    def add(self, table: Any) -> None:
        self._waiting.append(table)
        self._bytes += table.nbytes
        if self._options.kept and self._bytes >= 2 * chunks.CHUNK_BYTES:
            *whole, rest = chunks.cut(self._table())
            for chunk in whole:
                self._send(chunk)
            self._waiting, self._bytes = [rest], rest.nbytes

    def finish(self) -> None:
        table = self._table()
        parts = list(chunks.cut(table))
        if len(parts) > 1 and not self._options.kept:
            parts = list(chunks.cut(chunks.arrange(table)))
        for chunk in parts:
            self._send(chunk)

    def _table(self) -> Any:
        return pa.concat_tables(self._waiting).combine_chunks()

    def _send(self, chunk: Any) -> None:
        body = chunks.encode(chunk)
        client, producer = self._client, self.producer
        try:
            answer = _ensured(
                client,
                self._options,
                self._target,
                lambda: client.append(*self._target, body, producer),
            )
        except ProducerFenced as error:
            raise RuntimeError(
                "a later micro-batch of this query has written to the stream, so this task is out "
                "of date. If the query was set back to an older checkpoint, give it a producerId "
                f"of its own. stream={self._target} producer={producer}"
            ) from error
        self.repeats += answer.repeat
        self.producer = producer._replace(seq=producer.seq + 1)


def _ensured(client: Client, options: SinkOptions, target: Target, act: Any) -> Any:
    """Do something with a stream, which is made if it is not there."""
    try:
        return act()
    except StreamNotFound:
        if not options.create:
            raise
        client.create(*target, options.content_type)
        return act()


def is_adaptive(setting: Callable[[str], str | None]) -> bool:
    """May the rows of a micro-batch be in other partitions when it is repeated?"""
    return all(setting(name) != "false" for name in ADAPTIVE)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise MissingIds("rows are written by Spark's tasks, and this is none")
    return context
