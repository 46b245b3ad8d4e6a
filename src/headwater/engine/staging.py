"""Adding records to the runs that a commit will write: long messages are cut, long runs ended.

Whole columns at a time: an append of many small records costs little more than one of few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import accumulate, repeat

from headwater.core import records
from headwater.core.limits import KIB, RECORD_BODY_BYTES_MAX
from headwater.core.records import APPEND_START, COMMAND, CONTINUES, RecordHeaders
from headwater.core.types import ByteOffset, SeqNum, TimestampMs
from headwater.engine.streams import Stream
from headwater.storage.runs import RECORD_BYTES, RunBuilder

RUN_BYTES_MAX = 512 * KIB
"""A commit that adds more than this to one stream writes several runs, so that reads stay small."""

Times = TimestampMs | Sequence[TimestampMs]
"""Of each record, or one for all of them."""


def stage(
    stream: Stream,
    bodies: list[bytes],
    times: Times,
    headers: Sequence[RecordHeaders] | None = None,
    commands: Collection[int] = (),
    *,
    whole: bool = False,
) -> None:
    """Add messages, each with its headers if any; those whose indexes are in `commands` are
    command records. A `whole` body is one record however long it is. On an encrypted stream the
    headers are seals, one for each record that a message becomes."""
    one = len(bodies) == 1 and headers is None
    if one and isinstance(times, int) and (whole or len(bodies[0]) <= RECORD_BODY_BYTES_MAX):
        _stage_one(stream, bodies[0], times)
        return
    flags = bytearray(len(bodies))
    flags[0] = APPEND_START
    for index in commands:
        flags[index] |= COMMAND
    columns = _Columns(bodies, flags, times, headers)
    if not whole and max(map(len, bodies)) > RECORD_BODY_BYTES_MAX:
        columns = columns.cut(sealed=stream.state.cipher is not None)
    columns.add_to(stream)


def _stage_one(stream: Stream, message: bytes, time_ms: TimestampMs) -> None:
    """By far the most frequent case."""
    state = stream.state
    _open_run(stream).add(message, APPEND_START, time_ms)
    state.tail_seq = SeqNum(state.tail_seq + 1)
    state.tail_byte = ByteOffset(state.tail_byte + len(message))
    state.tail_message += 1
    state.last_time_ms = time_ms


class _Columns:
    """Records that are added together, by what they are made of."""

    __slots__ = ("_bodies", "_flags", "_headers", "_plain", "_times")

    def __init__(
        self,
        bodies: list[bytes],
        flags: bytearray,
        times: Times,
        headers: Sequence[RecordHeaders] | None,
    ) -> None:
        self._bodies = bodies
        self._flags = flags
        self._times = times
        self._headers = headers
        self._plain = max(flags) <= APPEND_START

    def cut(self, *, sealed: bool) -> _Columns:
        """The same with long messages in several records; headers go with the first, but each
        record has its own seal."""
        bodies: list[bytes] = []
        flags = bytearray()
        times: list[TimestampMs] = []
        headers: list[RecordHeaders] = []
        given = repeat(self._times) if isinstance(self._times, int) else self._times
        rows = zip(self._bodies, self._flags, given, self._headers or repeat(()))  # noqa: B905
        for body, flag, time_ms, own in rows:
            parts = records.split_message(body)
            more = len(parts) - 1
            assert not sealed or len(own) == len(parts)
            bodies += parts
            flags += bytes([flag | CONTINUES, *[CONTINUES] * (more - 1), 0] if more else [flag])
            times += [time_ms] * len(parts)
            headers += [(seal,) for seal in own] if sealed else [own, *[()] * more]
        return _Columns(bodies, flags, times, headers)

    def add_to(self, stream: Stream) -> None:
        state = stream.state
        start, count, ends = 0, len(self._bodies), self._ends()
        while start < count:
            builder = _open_run(stream)
            stop = self._fitting(ends, start, RUN_BYTES_MAX - builder.stored_bytes)
            bodies, flags = self._bodies[start:stop], self._flags[start:stop]
            times = self._times
            builder.extend(
                bodies,
                flags,
                [times] * len(bodies) if isinstance(times, int) else times[start:stop],
                None if self._headers is None else self._headers[start:stop],
            )
            state.tail_seq = SeqNum(state.tail_seq + len(bodies))
            shown, messages = self._shown(bodies, flags)
            state.tail_byte = ByteOffset(state.tail_byte + shown)
            state.tail_message += messages
            start = stop
        state.last_time_ms = self._times if isinstance(self._times, int) else self._times[-1]

    def _ends(self) -> list[int]:
        """How much the records take up to and including each."""
        sizes = [RECORD_BYTES + len(body) for body in self._bodies]
        for index, own in enumerate(self._headers or ()):
            sizes[index] += sum(len(name) + len(value) for name, value in own)
        return list(accumulate(sizes))

    def _fitting(self, ends: list[int], start: int, room: int) -> int:
        """Where to stop: when there is no more room, at the end of a message."""
        before = ends[start - 1] if start else 0
        if ends[-1] - before <= room:
            return len(ends)
        stop = min(bisect_left(ends, before + room, start) + 1, len(ends))
        while self._flags[stop - 1] & CONTINUES:
            stop += 1
        return stop

    def _shown(self, bodies: list[bytes], flags: bytearray) -> tuple[int, int]:
        """The bytes and messages that these records add to the stream."""
        if self._plain:
            return sum(map(len, bodies)), len(bodies)
        pairs = list(zip(bodies, flags, strict=True))
        shown = sum(len(body) for body, flag in pairs if not flag & COMMAND)
        return shown, sum(1 for flag in flags if not flag & (CONTINUES | COMMAND))


def _open_run(stream: Stream) -> RunBuilder:
    """The run of this commit that takes more, or a new one."""
    builders = stream.builders
    if builders and builders[-1].stored_bytes < RUN_BYTES_MAX:
        return builders[-1]
    state = stream.state
    builder = RunBuilder(state.tail_seq, state.tail_byte, state.tail_message, json=state.json)
    builders.append(builder)
    return builder
