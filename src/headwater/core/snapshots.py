"""May this snapshot become the stream's, and what may be dropped because of it. Ursula: snapshots.

A snapshot is what a reader would know after reading up to an offset. Only the latest is kept, and
only what a snapshot stands for can be dropped by hand.
"""

from __future__ import annotations

from blake3 import blake3

from headwater.core.errors import Conflict, OffsetTrimmed
from headwater.core.stream import Snapshot, StreamState
from headwater.core.types import Position

NO_SNAPSHOT = "none"
"""In `Stream-Snapshot-Match`: there must not be one yet."""


def begin_digest(content_type: str) -> blake3:
    """The digest of a snapshot: BLAKE3 of the type's length (u64, little-endian), the type, and
    the bytes, with which it is to be updated."""
    return blake3(len(content_type).to_bytes(8, "little") + content_type.encode("latin-1"))


def judge_snapshot(state: StreamState, offered: Snapshot, match: str | None) -> bool:
    """True to take it over, False when it is there already. Raises Conflict and OffsetTrimmed."""
    current = state.snapshot
    if current is not None and offered.at == current.at and offered.digest == current.digest:
        return False
    if match is not None and match != (NO_SNAPSHOT if current is None else current.digest):
        raise Conflict("the current snapshot is not the one in Stream-Snapshot-Match")
    if offered.at.seq < state.first_seq:
        raise OffsetTrimmed(state.first)
    if current is not None and offered.at.seq < current.at.seq:
        raise Conflict("the current snapshot is of a later offset")
    if current is not None and offered.at == current.at:
        raise Conflict("there is another snapshot of this offset")
    return True


def judge_trim(state: StreamState, to: Position) -> None:
    """May everything before `to` be dropped? Raises Conflict."""
    if state.snapshot is None or state.snapshot.at.seq < to.seq:
        raise Conflict("there is no snapshot at or after this offset to stand for what goes")
    if to.seq < state.first_seq:
        raise Conflict("more than that is dropped already")
