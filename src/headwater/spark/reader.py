"""Reading: the batch source, and the ranges that executors read for either source."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headwater.client import Client, OffsetTrimmed, PastTail, StreamNotFound, StreamSummary
from headwater.client.records import read_batches
from headwater.lake.archive import ArchiveReader
from headwater.spark import plan, streams, workers
from headwater.spark.options import OptionError, SourceOptions
from headwater.spark.plan import Range
from headwater.spark.pushdown import Narrowed
from headwater.spark.schema import archived, to_spark
from headwater.spark.streams import Finder, SeqAt

log = logging.getLogger("headwater.spark")

BATCH_ROWS = 10_000
BATCH_BYTES = 2 * 1024 * 1024
"""Smaller batches of several streams are put together: each costs the JVM something."""


class DataLoss(RuntimeError):
    """Records are gone that the query has not read."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem}. These records cannot be read any more; to go on with what there is, "
            "set failOnDataLoss to false"
        )


class NotArchived(Exception):
    """Nor does an archive have them. One that cannot be read is another matter: it may be later."""


def lose(options: SourceOptions, problem: str, *, deleted: bool = False) -> None:
    """Raises DataLoss unless the query is to go on without these records. `deleted` says that the
    whole stream has gone."""
    if options.fail_on_data_loss and (options.fail_on_deletion or not deleted):
        raise DataLoss(problem)
    log.warning("%s; the query goes on without these records", problem)


class BatchReader(DataSourceReader):
    """Everything between two bounds, as it is when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.narrowed = Narrowed()

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        with options.connection.open() as client:
            finder = Finder(client, options, self.narrowed.first_ms, self.narrowed.end_ms)
            found = finder.find()
            self._check_names(found)
            ranges = [
                part
                for stream in found.values()
                if self.narrowed.admits(stream.bucket, stream.name)
                for part in self._range(stream, finder.seq_at)
            ]
        cut = plan.choose_cut(found.values(), options)
        return [InputPartition(part) for part in plan.split(ranges, cut)]

    def _check_names(self, found: streams.Found) -> None:
        for problem in streams.missing(self.options.selection, found):
            if self.options.fail_on_data_loss:
                raise OptionError(f"{problem}; set failOnDataLoss to false to read the others")
            log.warning("%s", problem)

    def _range(self, stream: StreamSummary, seq_at: SeqAt) -> Iterator[Range]:
        """None if it is empty."""
        options = self.options
        first = streams.resolve(options.start, stream, seq_at)
        end = streams.resolve(options.end, stream, seq_at)
        low, high = self.narrowed.bounds(stream, seq_at)
        check_bounds(options, stream, first, end)
        first, end = max(first, stream.first, low), min(end, stream.tail, high)
        if first < end:
            yield Range(stream.bucket, stream.name, stream.id, first, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_ranges(self.options, partition.value or ())


class PushdownReader(BatchReader):
    """The same, narrowed by filters. Its own class: Spark refuses to use a reader that takes
    filters unless `spark.sql.python.filterPushdown.enabled` is set."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        """All of them are handed back: Spark filters the rows that are left."""
        self.narrowed = Narrowed.of(filters)
        return filters


def check_bounds(options: SourceOptions, stream: StreamSummary, first: int, end: int) -> None:
    """Raises DataLoss if a range is not there as a whole, unless that is allowed."""
    name = f"{stream.bucket}/{stream.name}"
    if first < stream.first:
        lose(options, f"{name} begins at {stream.first}, and was to be read from {first}")
    if max(first, end) > stream.tail:
        lose(options, f"{name} ends at {stream.tail}, and was to be read to {max(first, end)}")


def read_ranges(options: SourceOptions, ranges: Sequence[Range]) -> Iterator[Any]:
    """Spark's batches, in the order of the ranges. Runs on executors."""
    workers.settle()
    with options.connection.open() as client:
        yield from _coalesced(batch for part in ranges for batch in _read(client, options, part))


def _read(client: Client, options: SourceOptions, part: Range) -> Iterator[Any]:
    first = part.first
    while first < part.end:
        try:
            for batch in _from_server(client, options, part, first):
                yield batch
                first = batch.column("offset")[-1].as_py() + 1
            return
        except (OffsetTrimmed, PastTail, StreamNotFound) as error:
            gone = error.first_seq if isinstance(error, OffsetTrimmed) else part.end
            missing = part._replace(first=first, end=min(part.end, max(first + 1, gone)))
            try:
                yield from _from_archive(options, missing)
            except NotArchived as reason:
                where = f"{part.bucket}/{part.name} from {first} to {missing.end}"
                # A stream that is not to be read with this token looks as if it were deleted.
                deleted = isinstance(error, StreamNotFound) and not _is_there(client, part)
                lose(options, f"{where} went away under the query: {reason}", deleted=deleted)
            first = missing.end


def _is_there(client: Client, part: Range) -> bool:
    found = client.stream(part.bucket, part.name)
    return found is not None and found.id == part.id


def _from_server(client: Client, options: SourceOptions, part: Range, first: int) -> Iterator[Any]:
    batches = read_batches(
        client,
        part.bucket,
        part.name,
        first=first,
        end=part.end,
        stream_id=part.id,
        view="records" if options.commands else "messages",
        retry_timeout_s=options.connection.retry_timeout_s,
    )
    stream_id = part.id if options.stream_ids else None
    for batch in batches:
        yield to_spark(batch, part.bucket, part.name, headers=options.headers, stream_id=stream_id)


def _from_archive(options: SourceOptions, part: Range) -> Iterator[Any]:
    """Records that the server no longer has. Raises NotArchived unless all are there."""
    if options.archive is None:
        raise NotArchived("the server has trimmed or deleted them, and there is no archive")
    archive = ArchiveReader(options.archive)
    if not archive.covers(part.id, part.first, part.end):
        raise NotArchived(f"the archive {options.archive.location} has not all of them")
    for rows in archive.read(*part):
        yield from archived(rows, part.id, headers=options.headers, stream_ids=options.stream_ids)


def _coalesced(batches: Iterator[Any]) -> Iterator[Any]:
    waiting: list[Any] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _together(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _together(waiting)


def _together(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
