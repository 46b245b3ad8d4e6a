"""Which runs to merge into chunks. Pure: the engine reads, merges and writes.

Small runs are merged once there are enough of them, together with the regions before them that are
at most twice as large as what is merged already. So every byte is rewritten a logarithmic number of
times, and a stream has few small pieces at its end however slowly it grows.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headwater.core.limits import KIB
from headwater.core.types import SeqNum

CHUNK_BYTES = 256 * KIB
RUNS_MIN = 64
"""Fewer runs than this are not worth a chunk, unless they fill one."""

Piece = tuple[SeqNum, int]
"""First record and stored bytes of a run, or of a region that is not a full chunk yet."""


class Pieces:
    """Runs in order, kept compactly: a busy server has many streams with dozens each."""

    __slots__ = ("_firsts", "_sizes", "bytes")

    def __init__(self, pieces: Iterable[Piece] = ()) -> None:
        self._firsts = array("Q")
        self._sizes = array("Q")
        self.bytes = 0
        for first, size in pieces:
            self.add(first, size)

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[Piece]:
        return zip(map(SeqNum, self._firsts), self._sizes, strict=True)

    def add(self, first: SeqNum, size: int) -> None:
        self._firsts.append(first)
        self._sizes.append(size)
        self.bytes += size


class Plan(NamedTuple):
    """How to pack the end of a stream."""

    chunks: list[tuple[SeqNum, SeqNum]]
    """Merge the runs of each range (first, end) into one. A full run alone is a chunk already."""
    partial: list[Piece]
    """The regions that are not full chunks afterwards: side by side, at the end of the stream."""
    bytes: int


def worth_packing(runs: int, stored_bytes: int, checkpoint_bytes: int) -> bool:
    """Are there enough runs since the last packing? A large checkpoint wants more of them."""
    if runs < 2:
        return False
    if stored_bytes >= CHUNK_BYTES:
        return True
    if runs < RUNS_MIN:
        return False
    return stored_bytes >= checkpoint_bytes // 2 or runs >= 16 * RUNS_MIN


def plan(runs: list[Piece], partial: list[Piece], end: SeqNum) -> Plan:
    """Decide how far back to merge, and where to cut."""
    merged = sum(size for _, size in runs)
    kept, pieces = list(partial), list(runs)
    while kept and kept[-1][1] <= 2 * merged:
        piece = kept.pop()
        pieces.insert(0, piece)
        merged += piece[1]
    chunks: list[tuple[SeqNum, SeqNum]] = []
    first, size, count = pieces[0][0], 0, 0
    for start, piece_bytes in pieces:
        if size >= CHUNK_BYTES:
            if count > 1:
                chunks.append((first, start))
            first, size, count = start, 0, 0
        size += piece_bytes
        count += 1
    if count > 1 and (not chunks or size >= CHUNK_BYTES // 2):
        chunks.append((first, end))
    if size < CHUNK_BYTES:
        kept.append((first, size))
    return Plan(chunks, kept, merged)
