"""What a record is made of, and how a long message becomes several of them."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from headwater.core import limits

RecordHeaders = Sequence[tuple[bytes, bytes]]
Buffer = bytes | bytearray | memoryview

# Columns are stored and sent as they lie in memory.
assert sys.byteorder == "little"
assert array("H").itemsize == 2
assert array("I").itemsize == 4
assert array("Q").itemsize == 8

# Flags of one record. Frozen: they are stored.
APPEND_START = 1
"""First record of its append."""
CONTINUES = 2
"""The message goes on in the next record."""
COMMAND = 4
"""An S2 command record: takes a sequence number, shows no bytes to the other dialects."""
HAS_HEADERS = 8

SHOWN_FLAGS = APPEND_START | CONTINUES | COMMAND
"""What readers are told of a record beside its headers."""


def split_message(message: bytes) -> list[bytes]:
    """Cut a message into record bodies. An empty message is one empty record."""
    size = limits.RECORD_BODY_BYTES_MAX
    if len(message) <= size:
        return [message]
    return [message[at : at + size] for at in range(0, len(message), size)]


class HeaderColumns(NamedTuple):
    """The headers of the records that have any, column by column."""

    pairs: Buffer
    """u16 each: how many headers a record has."""
    lengths: Buffer
    """u32 each: of a name, of its value, of the next name …"""
    texts: Buffer
    """Names and values, back to back."""

    @classmethod
    def of(cls, records: Iterable[RecordHeaders]) -> Self:
        """Records without headers are left out."""
        pairs, lengths = array("H"), array("I")
        texts: list[bytes] = []
        for headers in records:
            if headers:
                pairs.append(len(headers))
                for header in headers:
                    lengths.extend(map(len, header))
                    texts += header
        return cls(pairs.tobytes(), lengths.tobytes(), b"".join(texts))

    @classmethod
    def joined(cls, parts: Sequence[HeaderColumns]) -> Self:
        """Those of records that follow one another."""
        return cls(*(b"".join(part[column] for part in parts) for column in range(3)))

    def records(self) -> list[RecordHeaders]:
        """Record by record."""
        pairs, lengths, texts = array("H"), array("I"), bytes(self.texts)
        pairs.frombytes(self.pairs)
        lengths.frombytes(self.lengths)
        parts = []
        at = 0
        for length in lengths:
            parts.append(texts[at : at + length])
            at += length
        every = list(zip(parts[::2], parts[1::2], strict=True))
        found: list[RecordHeaders] = []
        at = 0
        for count in pairs:
            found.append(every[at : at + count])
            at += count
        return found
