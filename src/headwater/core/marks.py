"""When the records of a stream were written, for streams whose times say something else.

A client of S2 may choose the times of its records, and retention still counts from the write. So
such a stream keeps a few marks: everything before `seq` was written by `at_ms`. Trims that wait
are kept the same way: everything before `seq` may go, asked for at `at_ms`.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core.types import SeqNum, TimestampMs

Mark = tuple[SeqNum, TimestampMs]

MARKS_MAX = 128
SPACING_MS_MIN = 1000
MARKS_PER_SPAN = 64
"""Thinned marks are one to three such parts of the time they span apart: so exact is what they
tell of old records."""


def add_mark(marks: list[Mark], mark: Mark) -> None:
    """Add the latest mark. One that is close to the mark before it gives way: to take it that
    records were written later than they were is safe."""
    if len(marks) > 1 and marks[-1][1] - marks[-2][1] < SPACING_MS_MIN:
        marks[-1] = mark
    else:
        marks.append(mark)
    if len(marks) > MARKS_MAX:
        marks[:] = _thinned(marks)


def _thinned(marks: Sequence[Mark]) -> list[Mark]:
    """The first and the last mark, and some between them."""
    spacing = (marks[-1][1] - marks[0][1]) // MARKS_PER_SPAN
    kept = [marks[0]]
    for mark in marks[1:-1]:
        if mark[1] - kept[-1][1] >= spacing:
            kept.append(mark)
    kept.append(marks[-1])
    return kept


def reached(marks: Sequence[Mark], by_ms: int) -> SeqNum:
    """Everything before this record is marked with a time no later than `by_ms`."""
    found = SeqNum(0)
    for seq, at_ms in marks:
        if at_ms > by_ms:
            break
        found = seq
    return found


def clip(marks: Sequence[Mark], end: SeqNum) -> list[Mark]:
    """What the marks say of the records before `end`, which they cover."""
    kept = [mark for mark in marks if mark[0] < end]
    covering = marks[len(kept)] if len(kept) < len(marks) else marks[-1]
    return [*kept, (end, covering[1])]


def next_ms(marks: Sequence[Mark], after: SeqNum) -> TimestampMs | None:
    """The time of the first mark that covers more than the records before `after`."""
    return next((at_ms for seq, at_ms in marks if seq > after), None)
