"""Damage in RocksDB's files that its reader does not come back from.

A log, and a MANIFEST, is blocks of 32 KiB with records that never cross into the next block:

    crc      u32
    length   u16     little-endian, of the data
    type     u8      1 to 4: whole, or the first, a middle or the last part
    data

The reader knows five more types, of logs whose files are used again. Ours are not, so these can
only come from damage: one bit makes 5 of 1. It then goes round in circles for ever instead of
refusing the log. So we look before it does; this takes no longer than reading the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwater.core.errors import Corruption
from headwater.core.limits import KIB

BLOCK_BYTES = 32 * KIB
HEADER_BYTES = 7
LENGTH_AT = 4
TYPE_AT = 6
REUSED_TYPES = frozenset({5, 6, 7, 8, 11})
DAMAGED_TYPE = b"\x7f"
"""One that RocksDB takes for the damage that it is."""


def refuse_endless(folder: Path) -> None:
    """Raises Corruption for files that could not be opened, nor refused, in any time."""
    for path in (*folder.glob("*.log"), *folder.glob("MANIFEST-*")):
        at = next(find_reused(path), None)
        if at is not None:
            raise Corruption(f"a record of a log is damaged. file={path.name} byte={at}")


def spell_out(folder: Path) -> None:
    """Make what `find_reused` finds in logs damage of a kind that RocksDB can recover from."""
    for path in folder.glob("*.log"):
        for at in list(find_reused(path)):
            with path.open("r+b") as file:
                file.seek(at)
                file.write(DAMAGED_TYPE)


def find_reused(path: Path) -> Iterator[int]:
    """Where the types of such records are, in the order in which the reader comes to them."""
    start = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            at = 0
            while at + HEADER_BYTES <= len(block):
                kind = block[at + TYPE_AT]
                length = int.from_bytes(block[at + LENGTH_AT : at + TYPE_AT], "little")
                if kind in REUSED_TYPES:
                    yield start + at + TYPE_AT
                if not kind and not length:
                    break  # nothing was written behind this
                at += HEADER_BYTES + length  # past the block where the length is damaged, too
            start += len(block)
