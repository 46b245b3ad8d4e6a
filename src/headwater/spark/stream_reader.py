"""The streaming source: plans on the driver in one long-lived process, reads on executors."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headwater.client import Client, StreamSummary
from headwater.spark import offsets, plan, streams
from headwater.spark.offsets import Json, Mark, Offset
from headwater.spark.options import SourceOptions
from headwater.spark.plan import Backlog
from headwater.spark.reader import check_bounds, lose, read_ranges
from headwater.spark.streams import Finder, Found

log = logging.getLogger("headwater.spark")

LOOK_SHARE = 0.2
"""Of the time, at most so much is spent asking for the state of the streams. Spark asks for new
data a hundred times a second when it has nothing to do; with very many streams an answer takes
longer than that."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets name every stream; see `offsets`."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._watch: Watch | None = None

    def initialOffset(self) -> Json:
        """Before everything. Where each stream begins is settled with the first micro-batch, and
        kept in its offset: asked again after a crash, `latest` would be another place."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.rows_max is not None:
            return ReadMaxRows(self.options.rows_max)
        if self.options.bytes_max is not None:
            return ReadMaxBytes(self.options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._watching().freeze()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        watch = self._watching()
        found = watch.look(timed=start == self.initialOffset())
        if watch.nothing_new == (found, start):
            return start
        before = offsets.decode(start)
        if before.cut is None:
            for problem in streams.missing(self.options.selection, found):
                log.warning("%s; it is waited for", problem)
        begins = self._begins(watch, before, found)
        marks = self._unselected(before, found)
        rows_max = bytes_max = None
        if not isinstance(limit, ReadAllAvailable):
            rows_max, bytes_max = self.options.rows_max, self.options.bytes_max
        shares = plan.admit(
            [_backlog(key, found[key], mark.seq) for key, mark in begins.items()],
            rows_max=rows_max,
            bytes_max=bytes_max,
            turn=sum(mark.seq for mark in begins.values()),
        )
        for key, mark in begins.items():
            marks[key] = _advanced(mark, shares.get(key, 0), found[key])
        if before.cut is not None and not _moved(before, marks):
            # Unchanged to the letter, which is how Spark sees that there is nothing new.
            watch.nothing_new = (found, start)
            return start
        return offsets.encode(Offset(marks, plan.choose_cut(found.values(), self.options)))

    def _begins(self, watch: Watch, before: Offset, found: Found) -> dict[str, Mark]:
        """Where each stream is to be read from. Raises DataLoss unless that is allowed."""
        for key, mark in before.marks.items():
            known = found.get(key)
            if (known is None or known.id != mark.id) and not mark.ended and self._selects(key):
                again = " and made again" if known else ""
                lose(self.options, f"{key} was deleted{again}", deleted=True)
        return {key: self._begin(watch, before, key, stream) for key, stream in found.items()}

    def _unselected(self, before: Offset, found: Found) -> dict[str, Mark]:
        """Streams that an earlier start of the query read. They stay in its offsets as they are:
        should it read them again one day, it goes on there."""
        gone = before.marks.keys() - found.keys()
        return {key: before.marks[key] for key in gone if not self._selects(key)}

    def _selects(self, key: str) -> bool:
        return streams.selects(self.options.selection, *offsets.split_key(key))

    def _begin(self, watch: Watch, before: Offset, key: str, stream: StreamSummary) -> Mark:
        mark = before.marks.get(key)
        if mark is not None and mark.id == stream.id:
            if stream.first <= mark.seq <= stream.tail:
                return Mark(mark.id, mark.seq)
            first = mark.seq
        elif before.cut is not None:
            first = stream.first
        else:
            first = streams.resolve(self.options.start, stream, watch.finder.seq_at)
        check_bounds(self.options, stream, first, first)
        first = min(max(first, stream.first), stream.tail)
        return Mark(stream.id, first, first)

    def reportLatestOffset(self) -> Json | None:
        """The tails, as they were last seen: what a query's lag is measured against."""
        found = self._watching().seen
        if found is None:
            return None
        marks = {key: Mark(s.id, s.tail, s.first or None) for key, s in found.items()}
        return offsets.encode(Offset(marks, plan.choose_cut(found.values(), self.options)))

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        until = offsets.decode(end)
        assert until.cut is not None, "a micro-batch ends at an offset of ours"
        ranges = plan.ranges(offsets.decode(start), until)
        return [InputPartition(part) for part in plan.split(ranges, until.cut)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_ranges(self.options, partition.value or ())

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.client.close()
            self._watch = None

    def _watching(self) -> Watch:
        """Made when it is first needed: the reader itself travels to executors."""
        if self._watch is None:
            self._watch = Watch(self.options)
        return self._watch


class Watch:
    """What the planner knows about the streams, and the connection it learns it from."""

    def __init__(self, options: SourceOptions) -> None:
        self.client: Client = options.connection.open()
        self.seen: Found | None = None
        self._timed = False
        """What was seen tells which records the query's times are at. Only its beginning needs
        that."""
        self.finder = Finder(self.client, options)
        self.nothing_new: tuple[Found, Json] | None = None
        """What was seen, and how far was read, when there was nothing to read. With very many
        streams it takes a while to see that again."""
        self._frozen = False
        self._look_again_s = 0.0

    def look(self, *, timed: bool) -> Found:
        """The streams as they are, or were when the query was told to stop there, or a moment
        ago."""
        started = time.monotonic()
        fresh = self._frozen or started < self._look_again_s
        if self.seen is not None and fresh and timed <= self._timed:
            return self.seen
        self.seen, self._timed = self.finder.find(timed=timed), timed
        now = time.monotonic()
        self._look_again_s = now + (now - started) * (1 / LOOK_SHARE - 1)
        return self.seen

    def freeze(self) -> None:
        """What there is now is all there will be."""
        self._frozen = False
        self._look_again_s = 0.0
        self.look(timed=True)
        self._frozen = True


def _backlog(key: str, stream: StreamSummary, first: int) -> Backlog:
    retained = max(1, stream.tail - stream.first)
    return Backlog(key, stream.tail - first, stream.bytes / retained)


def _advanced(mark: Mark, rows: int, stream: StreamSummary) -> Mark:
    seq = mark.seq + rows
    return mark._replace(seq=seq, ended=stream.closed and seq == stream.tail)


def _moved(before: Offset, marks: dict[str, Mark]) -> bool:
    """Is there anything to read, or a place or an end to keep? A stream that has merely gone is
    not worth a micro-batch."""
    for key, mark in marks.items():
        known = before.marks.get(key)
        if known is None or (known.id, known.seq) != (mark.id, mark.seq):
            return True
        if mark.ended and not known.ended:  # a driver that starts anew has only the offsets
            return True
    return False
