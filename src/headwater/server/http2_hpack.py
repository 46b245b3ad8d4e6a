"""Header compression, the reading half: blocks to fields, with the dynamic table. RFC 7541.

    1xxxxxxx   indexed field
    01xxxxxx   literal, added to the dynamic table
    001xxxxx   new size of the dynamic table, before any field
    000xxxxx   literal, not added; the fourth bit forbids proxies to

The `hpack` package has the tables and the Huffman code; its own decoder takes five times as long,
and the tests compare with it.
"""

from __future__ import annotations

from collections import deque

from hpack import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from headwater.server.http2_frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, ConnectionFailed

TABLE_BYTES_MAX = 4096  # the default, which we do not change
ENTRY_OVERHEAD_BYTES = 32
STATIC = tuple((bytes(name), bytes(value)) for name, value in HeaderTable.STATIC_TABLE)

# Decoded Huffman strings are remembered: header names, and values that come again.
CACHED_STRINGS_MAX = 1024
CACHED_STRING_BYTES_MAX = 64

INTEGER_BITS_MAX = 28


class BlockDecoder:
    """Created per connection, whose blocks it must see all and in order."""

    __slots__ = (
        "_entries",
        "_fields_bytes_max",
        "_strings",
        "_table_bytes",
        "_table_max",
        "changes",
    )

    def __init__(self, fields_bytes_max: int) -> None:
        self._fields_bytes_max = fields_bytes_max
        self._entries: deque[tuple[bytes, bytes]] = deque()
        self._table_bytes = 0
        self._table_max = TABLE_BYTES_MAX
        self._strings: dict[bytes, bytes] = {}
        self.changes = 0
        """Grows whenever the dynamic table changes: equal blocks mean the same in between."""

    def decode(self, block: bytes) -> list[tuple[bytes, bytes]]:
        """ConnectionFailed if the block is not valid: the table would no longer be the peer's."""
        try:
            return self._decode(block)
        except (IndexError, HPACKError):
            raise ConnectionFailed(COMPRESSION_ERROR, "header block is not valid") from None

    def _decode(self, block: bytes) -> list[tuple[bytes, bytes]]:
        fields: list[tuple[bytes, bytes]] = []
        position, end, size = 0, len(block), 0
        while position < end:
            byte = block[position]
            if byte & 0x80:
                index, position = _decode_integer(block, position, 0x7F)
                field = self._find(index)
            elif byte & 0xE0 == 0x20:
                if fields:
                    raise IndexError
                position = self._resize(block, position)
                continue
            else:
                index, position = _decode_integer(block, position, 0x3F if byte & 0x40 else 0x0F)
                if index:
                    name = self._find(index)[0]
                else:
                    name, position = self._decode_string(block, position)
                value, position = self._decode_string(block, position)
                field = (name, value)
                if byte & 0x40:
                    self._add(field)
            fields.append(field)
            size += len(field[0]) + len(field[1]) + ENTRY_OVERHEAD_BYTES
            if size > self._fields_bytes_max:
                raise ConnectionFailed(ENHANCE_YOUR_CALM, "header list is too large")
        return fields

    def _find(self, index: int) -> tuple[bytes, bytes]:
        if index == 0:
            raise IndexError
        if index <= len(STATIC):
            return STATIC[index - 1]
        return self._entries[index - len(STATIC) - 1]

    def _decode_string(self, block: bytes, position: int) -> tuple[bytes, int]:
        compressed = block[position] & 0x80
        size, position = _decode_integer(block, position, 0x7F)
        end = position + size
        if end > len(block):
            raise IndexError
        text = block[position:end]
        if not compressed:
            return text, end
        plain = self._strings.get(text)
        if plain is None:
            plain = decode_huffman(text)
            if size <= CACHED_STRING_BYTES_MAX:
                if len(self._strings) >= CACHED_STRINGS_MAX:
                    self._strings.clear()
                self._strings[text] = plain
        return plain, end

    def _add(self, field: tuple[bytes, bytes]) -> None:
        """RFC 7541 §4.4: an entry larger than the table empties it."""
        self.changes += 1
        self._table_bytes += len(field[0]) + len(field[1]) + ENTRY_OVERHEAD_BYTES
        self._entries.appendleft(field)
        self._evict()

    def _resize(self, block: bytes, position: int) -> int:
        size, position = _decode_integer(block, position, 0x1F)
        if size > TABLE_BYTES_MAX:
            raise IndexError
        self.changes += 1
        self._table_max = size
        self._evict()
        return position

    def _evict(self) -> None:
        while self._table_bytes > self._table_max:
            name, value = self._entries.pop()
            self._table_bytes -= len(name) + len(value) + ENTRY_OVERHEAD_BYTES


def _decode_integer(block: bytes, position: int, prefix_max: int) -> tuple[int, int]:
    """The integer and where it ends. RFC 7541 §5.1."""
    value = block[position] & prefix_max
    position += 1
    if value < prefix_max:
        return value, position
    shift = 0
    while shift <= INTEGER_BITS_MAX:
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise IndexError
