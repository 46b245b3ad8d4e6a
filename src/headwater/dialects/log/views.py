"""What of a span of records a reader sees: records as they are, or messages put together.

A message belongs to the range in which its first record lies, so that ranges side by side give
each message once, wherever they were cut.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headwater.core.records import (
    COMMAND,
    CONTINUES,
    HAS_HEADERS,
    SHOWN_FLAGS,
    HeaderColumns,
    RecordHeaders,
)
from headwater.engine.records import Span
from headwater.storage.runs import HEADERS, JSON, Run
from headwater.wire.http import Buffer

if TYPE_CHECKING:  # it is large, and brought in when it is first needed
    from headwater.wire.arrow import Columns


class Row(NamedTuple):
    """One record, or one message with the number, time and headers of its first record."""

    seq: int
    time_ms: int
    body: Buffer
    headers: RecordHeaders
    flags: int
    whole: bool
    """It is a message by itself: neither a part of one, nor a command."""


class _Records(NamedTuple):
    """The columns of a run, record by record, as the stream shows them."""

    bodies: Sequence[Buffer]
    flags: Sequence[int]
    headers: Sequence[RecordHeaders]
    times: Sequence[int]


def rows(span: Span, *, joined: bool) -> Iterator[Row]:
    """Record by record: for text, and for runs whose columns do not fit as they are."""
    return _messages(span) if joined else _records(span)


def _open(span: Span) -> _Records:
    run = span.run
    times = array("Q")
    times.frombytes(run.times)
    flags = bytearray(run.flags)
    if span.cut is not None:
        flags[span.end - 1] &= ~CONTINUES
    return _Records(run.record_bodies(), flags, run.record_headers(), times)


def _records(span: Span) -> Iterator[Row]:
    bodies, flags, headers, times = _open(span)
    first = span.run.first
    inside = span.start > 0 and flags[span.start - 1] & CONTINUES
    for index in range(span.start, span.stop):
        flag = flags[index]
        whole = not inside and not flag & (CONTINUES | COMMAND)
        body = span.shown(bodies, index)
        yield Row(first + index, times[index], body, headers[index], flag & SHOWN_FLAGS, whole)
        inside = flag & CONTINUES


def _messages(span: Span) -> Iterator[Row]:
    bodies, flags, headers, times = _open(span)
    start = 0
    parts: list[Buffer] = []
    # Of a message that began before, the rest is not ours.
    skip = span.start > 0 and bool(flags[span.start - 1] & CONTINUES)
    for index in range(span.start, span.end):
        if index >= span.stop and not parts:
            return
        flag = flags[index]
        if flag & COMMAND:
            continue
        if skip:
            skip = bool(flag & CONTINUES)
            continue
        if not parts:
            start = index
        parts.append(span.shown(bodies, index))
        if flag & CONTINUES:
            continue
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        shown = flags[start] & SHOWN_FLAGS & ~CONTINUES
        yield Row(span.run.first + start, times[start], body, headers[start], shown, True)
        parts = []


def columns(span: Span, *, joined: bool) -> Columns:
    """The columns of the run as they lie, where that is what the reader sees."""
    from headwater.wire.arrow import Columns

    run = span.run
    if not _fits(run, joined=joined):
        return _gather(list(rows(span, joined=joined)))
    lengths, flags = run.lengths, run.flags
    if span.cut is not None and span.stop == span.end:
        last = span.end - 1
        lengths = lengths[: span.end]
        lengths[last] = span.cut
        flags = flags[:last] + bytes([flags[last] & ~CONTINUES])
    return Columns(
        run.first + span.start,
        run.times,
        lengths,
        flags,
        run.all_bodies(),
        separated=bool(run.bits & JSON),
        headers=run.header_columns() if run.bits & HEADERS else None,
        start=span.start,
        stop=span.stop,
    )


def _fits(run: Run, *, joined: bool) -> bool:
    if not run.in_clear:
        return False
    # Parts and commands have no comma after them, and are not messages.
    return run.plain or not (joined or run.bits & JSON)


def _gather(found: list[Row]) -> Columns:
    """Columns of rows that were looked at one by one."""
    from headwater.wire.arrow import Columns

    return Columns(
        [row.seq for row in found],
        memoryview(array("Q", [row.time_ms for row in found])).cast("B"),
        array("I", [len(row.body) for row in found]),
        bytes(row.flags | (HAS_HEADERS if row.headers else 0) for row in found),
        b"".join(row.body for row in found),
        headers=HeaderColumns.of(row.headers for row in found),
    )
