"""Where exactly a fork leaves its source: needs the source's records, so it is not in core."""

from __future__ import annotations

from headwater.core.commands import ForkClaim
from headwater.core.errors import InvalidOffset, InvalidRequest, OffsetTrimmed
from headwater.core.lifecycle import ForkPoint
from headwater.core.records import APPEND_START, COMMAND, CONTINUES
from headwater.core.stream import StreamState
from headwater.core.types import START, ByteOffset, Position, SeqNum
from headwater.engine.search import RunSource, extent_of, find_boundary


def find_fork_point(source_runs: RunSource, source: StreamState, claim: ForkClaim) -> ForkPoint:
    """Check the claimed position against the source. PROTOCOL §4.2."""
    at = source.tail if claim.at is None else claim.at
    if claim.at_byte is not None:
        at = (
            START
            if claim.at_byte == 0
            else find_boundary(source_runs, source, source.tail, claim.at_byte)
        )
    if at.seq > source.tail_seq or (at.seq == source.tail_seq and at != source.tail):
        raise InvalidOffset("the fork offset is past the source's tail", tail=source.tail)
    if at == START and not claim.sub_offset:
        return ForkPoint(START, 0)
    if at.seq < source.first_seq:
        raise OffsetTrimmed(source.first)
    if at == source.tail:
        if claim.sub_offset:
            raise InvalidRequest("Stream-Fork-Sub-Offset passes the end of the source")
        return ForkPoint(source.tail, source.tail_message)
    walk = _Walk(source_runs, source, at)
    if claim.sub_offset == 0:
        return walk.point()
    return walk.messages(claim.sub_offset) if source.json else walk.bytes(claim.sub_offset)


class _Walk:
    """Steps over the source's records from an anchor, inside one append."""

    def __init__(self, source_runs: RunSource, source: StreamState, at: Position) -> None:
        self._runs = source_runs
        self._source = source
        self._seq = at.seq
        self._open(at.seq)
        before = self._flags[at.seq - self._run.first - 1] if at.seq > self._run.first else 0
        if self._run.byte_at(at.seq) != at.byte or before & CONTINUES:
            raise InvalidOffset("the fork offset does not fit the source", tail=source.tail)

    def _open(self, seq: SeqNum) -> None:
        self._extent = extent_of(self._source, seq)
        self._run = self._runs.read_run(self._extent.owner, seq)
        self._flags = self._run.flags

    def _step(self, *, first: bool) -> tuple[int, int]:
        """Length and flags of the next record; refuses to leave the append."""
        if self._seq >= self._source.tail_seq:
            raise InvalidRequest("Stream-Fork-Sub-Offset passes the end of the source")
        if self._seq >= self._run.end or self._seq >= self._extent.end:
            self._open(self._seq)
        index = self._seq - self._run.first
        flags = self._flags[index]
        if not first and flags & APPEND_START:
            raise InvalidRequest("Stream-Fork-Sub-Offset passes the end of its append")
        length = 0 if flags & COMMAND else self._run.lengths[index]
        if self._extent.cut is not None and self._seq == self._extent.end - 1:
            length, flags = self._extent.cut, flags & ~CONTINUES
        self._seq = SeqNum(self._seq + 1)
        return length, flags

    def point(self, cut: int | None = None, hidden: int = 0, cut_messages: int = 0) -> ForkPoint:
        """The place after the records walked over, less `hidden` bytes of the last one.

        `cut_messages` is 1 when that record went on in the next, and now ends its message.
        """
        seq = self._seq
        if seq == self._source.tail_seq:
            end, messages = self._source.tail, self._source.tail_message
        else:
            if seq >= self._run.end or seq >= self._extent.end:
                self._open(seq)
            end = self._run.position(seq)
            messages = self._messages_before(seq)
        return ForkPoint(Position(seq, ByteOffset(end.byte - hidden)), messages + cut_messages, cut)

    def _messages_before(self, seq: SeqNum) -> int:
        before = self._flags[: seq - self._run.first]
        return self._run.messages_before + sum(1 for f in before if not f & (CONTINUES | COMMAND))

    def messages(self, count: int) -> ForkPoint:
        first = True
        while count:
            _, flags = self._step(first=first)
            first = False
            if not flags & (CONTINUES | COMMAND):
                count -= 1
        return self.point()

    def bytes(self, count: int) -> ForkPoint:
        first = True
        while True:
            length, flags = self._step(first=first)
            first = False
            if count <= length:
                break
            count -= length
        goes_on = bool(flags & CONTINUES)
        whole = count == length and not goes_on
        return self.point(None if whole else count, length - count, int(goes_on))
