"""One run: what a commit added to one stream. A packed chunk has the same layout.

    format         u8       2 with bit HEADERS, else 1
    bits           u8       what the run holds, see below
    reserved       u16      0
    count          u32      records in the run, at least 1
    bytes_before   u64      body bytes of the stream before the first record
    messages_before u64     messages of the stream before the first record
    body_bytes     u32      length of the bodies column
    changes_bytes  u32      length of the writer changes
    times          u64[count]   milliseconds
    lengths        u32[count]   of each body
    flags          u8[count]    see core/records.py
    headers        only with bit HEADERS, of the records whose flags say so:
                   u16 each     how many a record has
                   u32 each     length of a name, of its value, of the next name …
                                names and values, back to back
    bodies         back to back; with bit JSON a comma follows the last record of each message
    changes        MessagePack of WriterChanges, only with bit CHANGES
    crc32c         u32      of everything above

Integers are little-endian. Lengths, not ends: packing is then joining columns, no arithmetic per
record. The comma is stored because a JSON read is then one slice (ADR 0003). A packed chunk has no
`changes` when the checkpoint written with it holds them.

Runs of format 1 with bit HEADERS have, for each such record, a u16 and then for each name and value
a u32 and its bytes. They are read, and not written any more (ADR 0014).

Frozen: a new layout gets a new format number, and the reader keeps both.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate

import crc32c

from headwater.core.errors import Corruption
from headwater.core.records import (
    COMMAND,
    CONTINUES,
    HAS_HEADERS,
    Buffer,
    HeaderColumns,
    RecordHeaders,
)
from headwater.core.stream import WriterChanges, decode_changes, encode_changes
from headwater.core.types import ByteOffset, Position, SeqNum

FORMAT = 1
FORMAT_HEADERS = 2
JSON = 1
PARTS = 2
"""Some records continue a message, so the end of a record is not always the end of a message."""
COMMANDS = 4
HEADERS = 8
CHANGES = 16

RECORD_BYTES = 13
"""Of the columns, for each record: its time, its length and its flags."""

_HEAD = struct.Struct("<BBHIQQII")
_ONE = struct.Struct("<BBHIQQIIQIB")
_CRC = struct.Struct("<I")
_PAIRS = struct.Struct("<H")
_LENGTH = struct.Struct("<I")
_checksum = crc32c.crc32c

_HAVE_HEADERS = bytes(bool(flags & HAS_HEADERS) for flags in range(256))


class RunBuilder:
    """Gathers what one commit adds to one stream."""

    __slots__ = (
        "_bits",
        "_bodies",
        "_flags",
        "_headers",
        "_lengths",
        "_times",
        "body_bytes",
        "bytes_before",
        "changes",
        "first",
        "messages_before",
        "stored_bytes",
    )

    def __init__(
        self, first: SeqNum, bytes_before: ByteOffset, messages_before: int, *, json: bool
    ) -> None:
        self.first = first
        self.bytes_before: int = bytes_before
        self.messages_before: int = messages_before
        self.changes: WriterChanges | None = None
        self.body_bytes = 0
        self.stored_bytes = 0
        """How long the columns are so far."""
        self._bits = JSON if json else 0
        self._times: list[int] = []
        self._lengths: list[int] = []
        self._flags = bytearray()
        self._headers: list[RecordHeaders] = []
        self._bodies: list[bytes] = []

    @property
    def count(self) -> int:
        return len(self._lengths)

    def add(
        self, body: bytes, flags: int, time_ms: int, headers: RecordHeaders | None = None
    ) -> None:
        """Add one record."""
        if headers:
            flags |= HAS_HEADERS
            self._add_headers(headers)
        self._times.append(time_ms)
        self._lengths.append(len(body))
        self._flags.append(flags)
        self._bodies.append(body)
        self.body_bytes += len(body)
        self.stored_bytes += len(body) + RECORD_BYTES
        if flags & (CONTINUES | COMMAND):
            self._bits |= PARTS if flags & CONTINUES else COMMANDS
        elif self._bits & JSON:
            self._bodies.append(b",")
            self.body_bytes += 1
            self.stored_bytes += 1

    def extend(
        self,
        bodies: Sequence[bytes],
        flags: bytearray,
        times: Sequence[int],
        headers: Sequence[RecordHeaders] | None = None,
    ) -> None:
        """Add several records, column by column."""
        for index, own in enumerate(headers or ()):
            if own:
                flags[index] |= HAS_HEADERS
                self._add_headers(own)
        for flag in set(flags):
            if flag & (CONTINUES | COMMAND):
                self._bits |= PARTS if flag & CONTINUES else COMMANDS
        size = sum(map(len, bodies))
        self._times.extend(times)
        self._lengths.extend(map(len, bodies))
        self._flags += flags
        if self._bits & JSON and not self._bits & (PARTS | COMMANDS):
            self._bodies += (b",".join(bodies), b",")
            size += len(bodies)
        elif self._bits & JSON:
            for body, flag in zip(bodies, flags, strict=True):
                self._bodies.append(body)
                if not flag & (CONTINUES | COMMAND):
                    self._bodies.append(b",")
                    size += 1
        else:
            self._bodies.extend(bodies)
        self.body_bytes += size
        self.stored_bytes += size + RECORD_BYTES * len(bodies)

    def _add_headers(self, headers: RecordHeaders) -> None:
        self._bits |= HEADERS
        self._headers.append(headers)
        self.stored_bytes += _PAIRS.size
        for name, value in headers:
            self.stored_bytes += 2 * _LENGTH.size + len(name) + len(value)

    def encode(self) -> bytes:
        count = len(self._lengths)
        assert count > 0
        bits, tail = self._bits, b""
        if self.changes is not None:
            bits |= CHANGES
            tail = encode_changes(self.changes)
        if count == 1 and not bits & HEADERS:
            head = _ONE.pack(
                FORMAT,
                bits,
                0,
                1,
                self.bytes_before,
                self.messages_before,
                self.body_bytes,
                len(tail),
                self._times[0],
                self._lengths[0],
                self._flags[0],
            )
            data = b"".join((head, *self._bodies, tail))
            return data + _CRC.pack(_checksum(data))
        return _assemble(
            bits,
            count,
            self.bytes_before,
            self.messages_before,
            times=array("Q", self._times).tobytes(),
            lengths=array("I", self._lengths).tobytes(),
            flags=bytes(self._flags),
            headers=HeaderColumns.of(self._headers),
            bodies=self._bodies,
            body_bytes=self.body_bytes,
            changes=tail,
        )


def _assemble(
    bits: int,
    count: int,
    bytes_before: int,
    messages_before: int,
    *,
    times: bytes,
    lengths: bytes,
    flags: bytes,
    headers: HeaderColumns,
    bodies: Sequence[bytes | memoryview],
    body_bytes: int,
    changes: bytes,
) -> bytes:
    run_format = FORMAT_HEADERS if bits & HEADERS else FORMAT
    head = _HEAD.pack(
        run_format, bits, 0, count, bytes_before, messages_before, body_bytes, len(changes)
    )
    data = b"".join((head, times, lengths, flags, *headers, *bodies, changes))
    return data + _CRC.pack(_checksum(data))


class Run:
    """A stored run, opened for reading. Columns are slices of the stored bytes."""

    __slots__ = (
        "_data",
        "_ends",
        "_lengths",
        "bits",
        "bodies_at",
        "body_bytes",
        "bytes_before",
        "changes_bytes",
        "count",
        "first",
        "messages_before",
    )

    def __init__(self, first: SeqNum, data: bytes) -> None:
        """Open stored bytes. Raises Corruption when they are not what was written."""
        if len(data) < _HEAD.size + _CRC.size or data[0] not in (FORMAT, FORMAT_HEADERS):
            raise Corruption(f"a run has an unknown format. first_seq={first}")
        (stored,) = _CRC.unpack_from(data, len(data) - _CRC.size)
        view = memoryview(data)
        if _checksum(view[: -_CRC.size]) != stored:
            raise Corruption(f"a run fails its checksum. first_seq={first}")
        _, bits, _, count, bytes_before, messages_before, body_bytes, changes_bytes = (
            _HEAD.unpack_from(data)
        )
        self.first = first
        self.bits: int = bits
        self.count: int = count
        self.bytes_before: int = bytes_before
        self.messages_before: int = messages_before
        self.body_bytes: int = body_bytes
        self.changes_bytes: int = changes_bytes
        self.bodies_at = len(data) - _CRC.size - changes_bytes - body_bytes
        if self.bodies_at < _HEAD.size + RECORD_BYTES * count:
            raise Corruption(f"a run's columns do not fit its length. first_seq={first}")
        self._data = data
        self._lengths: array[int] | None = None
        self._ends: list[int] | None = None

    @property
    def end(self) -> SeqNum:
        """One past the last record."""
        return SeqNum(self.first + self.count)

    @property
    def data(self) -> bytes:
        """As it is stored."""
        return self._data

    @property
    def stored_bytes(self) -> int:
        return len(self._data)

    @property
    def plain(self) -> bool:
        """Every record is one whole message that all dialects show."""
        return not self.bits & (PARTS | COMMANDS)

    @property
    def in_clear(self) -> bool:
        """The columns are what a reader sees."""
        return True

    @property
    def times(self) -> memoryview:
        return memoryview(self._data)[_HEAD.size : _HEAD.size + 8 * self.count]

    @property
    def flags(self) -> bytes:
        at = _HEAD.size + 12 * self.count
        return self._data[at : at + self.count]

    @property
    def lengths(self) -> array[int]:
        if self._lengths is None:
            at = _HEAD.size + 8 * self.count
            self._lengths = array("I")
            self._lengths.frombytes(self._data[at : at + 4 * self.count])
        return self._lengths

    @property
    def last_time_ms(self) -> int:
        return int.from_bytes(self.times[-8:], "little")

    def changes(self) -> WriterChanges | None:
        if not self.bits & CHANGES:
            return None
        at = len(self._data) - _CRC.size - self.changes_bytes
        return decode_changes(self._data[at : at + self.changes_bytes])

    def shown_lengths(self) -> Sequence[int]:
        """Body bytes that each record shows; commands show none."""
        if not self.bits & COMMANDS:
            return self.lengths
        pairs = zip(self.flags, self.lengths, strict=True)
        return [0 if flag & COMMAND else length for flag, length in pairs]

    def shown_ends(self) -> list[int]:
        """Body bytes shown up to and including each record."""
        if self._ends is None:
            self._ends = list(accumulate(self.shown_lengths()))
        return self._ends

    def shown_bytes(self) -> int:
        """Body bytes that this run adds to the stream's byte offset."""
        if self.plain:
            return self.body_bytes - (self.count if self.bits & JSON else 0)
        ends = self.shown_ends()
        return ends[-1]

    def message_count(self) -> int:
        """Messages that end in this run."""
        if self.plain:
            return self.count
        return sum(1 for flag in self.flags if not flag & (CONTINUES | COMMAND))

    def byte_at(self, seq: SeqNum) -> ByteOffset:
        """Body bytes of the stream before record `seq`, which is in the run or right after it."""
        index = seq - self.first
        return ByteOffset(self.bytes_before + (self.shown_ends()[index - 1] if index else 0))

    def position(self, seq: SeqNum) -> Position:
        return Position(seq, self.byte_at(seq))

    def bodies(self, start: int, stop: int) -> Buffer:
        """The stored bodies of records `start` to `stop` (indexes), commas included.

        Only for plain runs; the others go record by record through `body`.
        """
        ends = self.shown_ends()
        low = ends[start - 1] if start else 0
        high = ends[stop - 1] if stop else 0
        if self.bits & JSON:
            low, high = low + start, high + stop
        return memoryview(self._data)[self.bodies_at + low : self.bodies_at + high]

    def all_bodies(self) -> Buffer:
        return memoryview(self._data)[self.bodies_at : self.bodies_at + self.body_bytes]

    def record_bodies(self) -> Sequence[Buffer]:
        """The body of every record, without commas."""
        view = memoryview(self._data)
        at = self.bodies_at
        comma = 1 if self.bits & JSON else 0
        found = []
        for flag, length in zip(self.flags, self.lengths, strict=True):
            found.append(view[at : at + length])
            at += length + (0 if flag & (CONTINUES | COMMAND) else comma)
        return found

    def record_headers(self) -> Sequence[RecordHeaders]:
        """The headers of every record, empty where it has none."""
        if not self.bits & HEADERS:
            return [()] * self.count
        held = iter(self.header_columns().records())
        return [next(held) if flag & HAS_HEADERS else () for flag in self.flags]

    def header_columns(self) -> HeaderColumns:
        """Of the records that have headers."""
        column = self._data[_HEAD.size + RECORD_BYTES * self.count : self.bodies_at]
        return _split_headers(self._data[0], self.flags, column)


def _split_headers(run_format: int, flags: bytes, column: bytes) -> HeaderColumns:
    records = flags.translate(_HAVE_HEADERS).count(1)
    if run_format == FORMAT:
        return HeaderColumns.of(_walk_headers(column, records))
    pairs_end = 2 * records
    pairs = array("H")
    pairs.frombytes(column[:pairs_end])
    lengths_end = pairs_end + 8 * sum(pairs)
    return HeaderColumns(column[:pairs_end], column[pairs_end:lengths_end], column[lengths_end:])


def _walk_headers(column: bytes, records: int) -> Iterator[RecordHeaders]:
    """As runs of format 1 have them."""
    at = 0
    for _ in range(records):
        headers, at = decode_headers(column, at)
        yield headers


def merge(stored: Sequence[tuple[SeqNum, bytes]], *, keep_changes: bool) -> bytes:
    """Join stored runs that follow one another into one chunk.

    Writer changes are left out when a checkpoint is written beside the chunk. Works on the stored
    bytes, without opening each run: packing a busy stream is mostly this.
    """
    times, lengths, flags, bodies = [], [], [], []
    headers: list[HeaderColumns] = []
    changes = WriterChanges()
    bits = total = body_total = 0
    expected = stored[0][0]
    for first, data in stored:
        stored_format, run_bits, _, count, _, _, body_bytes, changes_bytes = _HEAD.unpack_from(data)
        end = len(data) - _CRC.size
        if (
            stored_format not in (FORMAT, FORMAT_HEADERS)
            or first != expected
            or _checksum(memoryview(data)[:end]) != _CRC.unpack_from(data, end)[0]
        ):
            raise Corruption(f"a run cannot be packed. first_seq={first}")
        lengths_at = _HEAD.size + 8 * count
        flags_at = lengths_at + 4 * count
        headers_at = flags_at + count
        bodies_end = end - changes_bytes
        bodies_at = bodies_end - body_bytes
        times.append(data[_HEAD.size : lengths_at])
        lengths.append(data[lengths_at:flags_at])
        flags.append(data[flags_at:headers_at])
        if run_bits & HEADERS:
            columns = _split_headers(stored_format, flags[-1], data[headers_at:bodies_at])
            headers.append(columns)
        bodies.append(data[bodies_at:bodies_end])
        if keep_changes and changes_bytes:
            changes.add(decode_changes(data[bodies_end:end]))
        bits |= run_bits
        total += count
        body_total += body_bytes
        expected = SeqNum(first + count)
    _, _, _, _, bytes_before, messages_before, _, _ = _HEAD.unpack_from(stored[0][1])
    return _assemble(
        bits if keep_changes else bits & ~CHANGES,
        total,
        bytes_before,
        messages_before,
        times=b"".join(times),
        lengths=b"".join(lengths),
        flags=b"".join(flags),
        headers=HeaderColumns.joined(headers),
        bodies=bodies,
        body_bytes=body_total,
        changes=encode_changes(changes) if keep_changes and bits & CHANGES else b"",
    )


def encode_headers(headers: RecordHeaders) -> bytes:
    """The headers of one record by itself, as a sealed record has them."""
    parts = [_PAIRS.pack(len(headers))]
    for header_name, value in headers:
        parts += (_LENGTH.pack(len(header_name)), header_name, _LENGTH.pack(len(value)), value)
    return b"".join(parts)


def decode_headers(data: bytes, at: int) -> tuple[RecordHeaders, int]:
    (pairs,) = _PAIRS.unpack_from(data, at)
    at += _PAIRS.size
    found = []
    for _ in range(pairs):
        parts = []
        for _ in range(2):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            parts.append(data[at : at + length])
            at += length
        found.append((parts[0], parts[1]))
    return found, at
