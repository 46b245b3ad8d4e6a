"""Looks over an Arrow IPC stream from a client before any of it is unpacked.

pyarrow checks that a stream is well-formed, but allocates what it is told to: a few bytes may
claim to decompress to terabytes, or to hold as many rows of nothing. So this walks the messages
and adds up what they claim. It reads just enough of their metadata, FlatBuffers as drawn in
Arrow's Message.fbs:

    message          u32 ffffffff, u32 length of the metadata, metadata, body; length 0 is the end
    Message          version, header type, header, body length
    RecordBatch      length, nodes, buffers (i64 offset, i64 length each), compression
    buffer           compressed: i64 length once decompressed, or -1; then the bytes
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from headwater.core.errors import InvalidRequest

_SCHEMA = 1
_RECORD_BATCH = 3
_CONTINUATION = 0xFFFFFFFF

BATCHES_MAX = 10_000
BUFFERS_MAX = 64
"""In one batch: the columns that are taken have twelve. Both bound the time that a look takes."""


class TooLarge(Exception):
    """The stream claims to hold more than one append may."""


def check_stream(body: bytes, *, bytes_max: int, rows_max: int) -> None:
    """Raises InvalidRequest when a message cannot be read, and TooLarge past a limit."""
    rows = size = 0
    try:
        for number, (kind, header, content) in enumerate(_messages(body)):
            if (kind == _SCHEMA) != (number == 0):
                raise InvalidRequest("an Arrow stream is one schema, then record batches")
            if kind == _SCHEMA:
                continue
            if kind != _RECORD_BATCH:
                raise InvalidRequest("dictionary-encoded columns are not taken; send plain ones")
            rows += header.i64(0)
            size += _claimed_bytes(header, content)
            if rows > rows_max:
                raise TooLarge(f"an append has at most {rows_max} records. received={rows}")
            if number > BATCHES_MAX:
                raise TooLarge(f"an append has at most {BATCHES_MAX} batches; make them larger")
            if size > bytes_max:
                raise TooLarge(f"the records are over {bytes_max} bytes once decompressed")
    except (struct.error, IndexError) as error:
        raise InvalidRequest("the body is not a valid Arrow IPC stream: it is cut off") from error


class _Table:
    """A FlatBuffers table. Every read is checked against the end of the data."""

    __slots__ = ("_at", "_data", "_fields", "_slots")

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - _unpack("<i", data, at)
        self._slots = (_unpack("<H", data, self._fields) - 4) // 2

    def _find(self, field: int) -> int | None:
        """Where a field is; None when it has its default."""
        if field >= self._slots:
            return None
        offset = _unpack("<H", self._data, self._fields + 4 + 2 * field)
        return self._at + offset if offset else None

    def u8(self, field: int) -> int:
        at = self._find(field)
        return 0 if at is None else _unpack("<B", self._data, at)

    def i64(self, field: int) -> int:
        """A count or a length, which must not be negative."""
        at = self._find(field)
        found = 0 if at is None else _unpack("<q", self._data, at)
        if found < 0:
            raise InvalidRequest("the body is not a valid Arrow IPC stream: a negative length")
        return found

    def table(self, field: int) -> _Table | None:
        at = self._find(field)
        return None if at is None else _Table(self._data, at + _unpack("<I", self._data, at))

    def ranges(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of pairs of i64."""
        at = self._find(field)
        if at is None:
            return
        at += _unpack("<I", self._data, at)
        count = _unpack("<I", self._data, at)
        if count > BUFFERS_MAX:
            raise InvalidRequest("the Arrow stream has other columns than body and headers")
        for number in range(count):
            pair = at + 4 + 16 * number
            yield _unpack("<q", self._data, pair), _unpack("<q", self._data, pair + 8)


def _unpack(kind: str, data: memoryview, at: int) -> int:
    if at < 0:
        raise IndexError("before the beginning")
    found: int = struct.unpack_from(kind, data, at)[0]
    return found


def _messages(body: bytes) -> Iterator[tuple[int, _Table, memoryview]]:
    """Kind, header and content of each message, up to the end mark or the end of the body."""
    view = memoryview(body)
    at = 0
    while at < len(view):
        if _unpack("<I", view, at) != _CONTINUATION:
            raise InvalidRequest("the body is not an Arrow IPC stream: a message begins otherwise")
        size = _unpack("<I", view, at + 4)
        at += 8
        if size == 0:
            if at < len(view):
                raise InvalidRequest("there is more after the end of the Arrow stream; send one")
            break
        metadata = view[at : at + size]
        if len(metadata) < size:
            raise IndexError("cut off in the metadata")
        message = _Table(metadata, _unpack("<I", metadata, 0))
        kind, header, length = message.u8(1), message.table(2), message.i64(3)
        at += size
        if header is None or length > len(view) - at:
            raise IndexError("cut off in the body")
        yield kind, header, view[at : at + length]
        at += length
    if at == 0:
        raise InvalidRequest("the body is empty; send an Arrow IPC stream")


def _claimed_bytes(header: _Table, content: memoryview) -> int:
    """What the buffers of a record batch take once they are decompressed."""
    size = 0
    is_compressed = header.table(3) is not None
    for offset, length in header.ranges(2):
        if offset < 0 or length < 0 or offset + length > len(content):
            raise IndexError("a buffer reaches past its message")
        claimed = length
        if is_compressed and length:
            found = _unpack("<q", content[offset : offset + length], 0)
            claimed = length if found == -1 else found
        if claimed < 0:
            raise InvalidRequest("the body is not a valid Arrow IPC stream: a negative length")
        size += claimed
    return size
