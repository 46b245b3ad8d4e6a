"""Opening: the records of an encrypted stream as a reader with its key sees them.

A run stays as it is stored, and each record is opened when it is asked for: so a reader needs the
keys of what it is shown and of nothing else. What was opened is kept by nobody but that reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload

from headwater.core.errors import DecryptionFailed
from headwater.core.records import COMMAND, Buffer, RecordHeaders
from headwater.core.types import StreamId
from headwater.engine.sealing import TAG_BYTES, Cipher, take_key
from headwater.engine.streams import Stream, Streams
from headwater.storage.runs import JSON, Run, decode_headers

T = TypeVar("T")
Opened = tuple[RecordHeaders, Buffer]


def open_record(cipher: Cipher, seal_id: bytes, headers: RecordHeaders, body: Buffer) -> Opened:
    """Headers and body of a sealed record. Raises DecryptionFailed."""
    seal = headers[0][1] if len(headers) == 1 and headers[0][0] == cipher.format else b""
    start, end = cipher.nonce_bytes, len(seal) - TAG_BYTES
    if end < start:
        raise DecryptionFailed(cipher.name)
    known = end - start
    data = b"".join((seal[start:end], body, seal[end:]))
    envelope = cipher.decrypt(seal[:start], data, seal_id)
    if envelope is None:
        raise DecryptionFailed(cipher.name)
    found, at = decode_headers(envelope, 0)
    if at != known:  # moved between the two columns of the run
        raise DecryptionFailed(cipher.name)
    return found, memoryview(envelope)[at:]


class Opener:
    """Opens what one request is shown of one stream."""

    def __init__(self, streams: Streams, stream: Stream, key: bytes | None) -> None:
        """`key` is the header as it came. Raises KeyRequired."""
        assert stream.state.cipher is not None
        self.cipher = stream.state.cipher
        self._streams = streams
        self._cipher = take_key(stream.state.cipher, key)
        self._seal_ids: dict[StreamId, bytes | None] = {stream.state.id: stream.state.seal_id}

    def open(self, owner: StreamId, run: Run) -> Run:
        """A run that `owner` wrote, in clear. A fork may have plain records before its own."""
        if owner not in self._seal_ids:
            writer = self._streams.load(owner)
            self._seal_ids[owner] = None if writer is None else writer.state.seal_id
        seal_id, cipher = self._seal_ids[owner], self._cipher
        if seal_id is None:
            return run
        known = seal_id
        return OpenedRun(run, lambda headers, body: open_record(cipher, known, headers, body))

    def open_some(self, owner: StreamId, run: Run, start: int, stop: int) -> tuple[Run, int]:
        """The same, and how far its records from `start` to `stop` open."""
        opened = self.open(owner, run)
        if isinstance(opened, OpenedRun):
            stop = opened.openable(start, stop)
        return opened, stop


class OpenedRun(Run):
    """A run of sealed records, read as if they were in clear."""

    __slots__ = ("_bodies", "_flags", "_headers", "_open", "_opened")

    def __init__(self, run: Run, open_one: Callable[[RecordHeaders, Buffer], Opened]) -> None:
        super().__init__(run.first, run.data)
        self._flags = run.flags
        self._headers = run.record_headers()
        self._bodies = run.record_bodies()
        self._open = open_one
        self._opened: dict[int, Opened] = {}

    @property
    def in_clear(self) -> bool:
        return False

    def record(self, index: int) -> Opened:
        """Headers and body of one record. Raises DecryptionFailed."""
        if self._flags[index] & COMMAND:
            return self._headers[index], self._bodies[index]
        found = self._opened.get(index)
        if found is None:
            found = self._open(self._headers[index], self._bodies[index])
            self._opened[index] = found
        return found

    def openable(self, start: int, stop: int) -> int:
        """The first record from `start` on that does not open, or `stop`."""
        for index in range(start, stop):
            try:
                self.record(index)
            except DecryptionFailed:
                return index
        return stop

    def record_bodies(self) -> Sequence[Buffer]:
        return _Column(self.count, lambda index: self.record(index)[1])

    def record_headers(self) -> Sequence[RecordHeaders]:
        return _Column(self.count, lambda index: self.record(index)[0])

    def bodies(self, start: int, stop: int) -> Buffer:
        comma = b"," if self.bits & JSON else b""
        return b"".join(
            part for index in range(start, stop) for part in (self.record(index)[1], comma)
        )

    def all_bodies(self) -> Buffer:
        return self.bodies(0, self.count)


class _Column(Sequence[T], Generic[T]):
    """One thing about each record of a run, looked at when it is asked for."""

    def __init__(self, count: int, look: Callable[[int], T]) -> None:
        self._count = count
        self._look = look

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._look(at) for at in range(*index.indices(self._count))]
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._look(index)
