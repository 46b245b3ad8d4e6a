"""The numbers of the domain, each its own type so that they cannot be mixed up."""

from __future__ import annotations

from typing import NamedTuple, NewType

SeqNum = NewType("SeqNum", int)
"""Position of a record in its stream: 0, 1, 2 …"""
ByteOffset = NewType("ByteOffset", int)
"""Body bytes of a stream before some record."""
StreamId = NewType("StreamId", int)
"""Internal id, never reused: shard in the upper 16 bits, counter in the lower 48."""
Epoch = NewType("Epoch", int)
BatchSeq = NewType("BatchSeq", int)
TimestampMs = NewType("TimestampMs", int)


class Position(NamedTuple):
    """A place between two records: the next record's number, and the body bytes before it."""

    seq: SeqNum
    byte: ByteOffset


START = Position(SeqNum(0), ByteOffset(0))
