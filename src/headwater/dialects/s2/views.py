"""What of a span of records an S2 reader sees.

Records as they are stored, with one thing added: the parts of a long message, which other
dialects see as one, carry the header `headwater-part: i/n`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from headwater.core.records import CONTINUES, RecordHeaders
from headwater.core.types import SeqNum
from headwater.engine.records import RecordCursor, Span
from headwater.engine.shard import Shard
from headwater.engine.streams import Stream
from headwater.storage.runs import HEADERS, PARTS
from headwater.wire.http import Buffer
from headwater.wire.s2.records import RECORD_METERED_BYTES, Records

PART_HEADER = b"headwater-part"


def show(span: Span) -> Records:
    """The records of a span, as columns."""
    run, start, stop = span.run, span.start, span.stop
    times = array("Q")
    times.frombytes(run.times[8 * start : 8 * stop])
    bodies: list[Buffer] = list(run.record_bodies()[start:stop])
    if span.cut is not None and stop == span.end:
        bodies[-1] = bodies[-1][: span.cut]
    headers: list[RecordHeaders] | None = None
    if run.bits & (HEADERS | PARTS):
        headers = list(run.record_headers()[start:stop])
        if run.bits & PARTS:
            _number_parts(run.flags[: span.end], headers, start)
    return Records(run.first + start, times, bodies, headers)


def _number_parts(flags: Sequence[int], headers: list[RecordHeaders], start: int) -> None:
    """Say of each part which it is, in the headers of the records from `start` on. A message
    never spans two runs."""
    first = 0
    for index, flag in enumerate(flags):
        if flag & CONTINUES and index + 1 < len(flags):
            continue
        count = index - first + 1
        if count > 1:
            for at in range(max(first, start), min(index + 1, start + len(headers))):
                part = (PART_HEADER, b"%d/%d" % (at - first + 1, count))
                headers[at - start] = [*headers[at - start], part]
        first = index + 1


def weigh(shard: Shard, stream: Stream, seq: SeqNum) -> tuple[int, int]:
    """What is known of a record without its key: its time, and the metered bytes that it has at
    least, since its headers are sealed."""
    (span,) = RecordCursor(shard, stream, seq, SeqNum(seq + 1)).step()
    record = show(span)
    return record.times[0], RECORD_METERED_BYTES + len(record.bodies[0])
