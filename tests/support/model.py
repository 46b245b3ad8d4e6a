"""Streams as plain lists of messages, and what each command must do to them.

Engines are compared with this: it has no runs, no packing, no checkpoints and no extents.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from headwater.core.append import Appended
from headwater.core.commands import AppendRecords, Command
from headwater.core.errors import (
    FencingTokenMismatch,
    ForkRefused,
    HeadwaterError,
    InvalidOffset,
    InvalidRequest,
    OffsetTrimmed,
    PreconditionFailed,
    ProducerGap,
    StreamClosed,
    StreamExists,
    StreamGone,
    StreamNotFound,
)
from headwater.core.lifecycle import Created
from headwater.core.types import Position
from tests.support.builders import BUCKET, position, s2_append
from tests.support.clock import START_MS
from tests.support.engines import ALL, EngineRunner, body

RECORD_BYTES = 16
"""The size of a record while `small_sizes` holds; a longer message takes several."""


@dataclass
class Message:
    body: bytes
    starts_append: bool
    whole: bool = False
    """One record, however long."""
    command: bool = False
    """A command record, which shows no bytes and is no message to most readers."""

    @property
    def records(self) -> int:
        return 1 if self.whole else max(1, -(-len(self.body) // RECORD_BYTES))


class Row(NamedTuple):
    """A record that comes through S2: with a body, a new fencing token, or a trim point."""

    body: bytes
    time_ms: int
    fence: str | None = None
    trim: int | None = None

    @property
    def is_command(self) -> bool:
        return self.fence is not None or self.trim is not None


@dataclass
class ModelStream:
    """What a stream is, in the plainest words."""

    json: bool
    source: ModelStream | None = None
    origin: tuple[str, Position, int] | None = None
    messages: list[Message] = field(default_factory=list)
    first: int = 0
    """The first message that is retained."""
    closed: bool = False
    deleted: bool = False
    forks: int = 0
    next_batch: dict[str, int] = field(default_factory=dict)
    closed_by: tuple[str, int] | None = None
    settled_records: int = 0
    """Records that are surely durable: only these can be trimmed."""
    fencing_token: str = ""
    trim_to: int | None = None
    """The record that a command record wants to be the first, and that is not yet."""
    last_time_ms: int = 0

    @property
    def starts(self) -> list[Position]:
        """Where each message begins, and the tail: the positions that reads hand out."""
        return [self.position(index) for index in range(len(self.messages) + 1)]

    def position(self, index: int) -> Position:
        """Where message `index` begins."""
        before = self.messages[:index]
        return position(
            sum(message.records for message in before), sum(len(m.body) for m in before)
        )

    @property
    def tail(self) -> Position:
        return self.position(len(self.messages))

    def add(self, bodies: list[bytes]) -> None:
        for number, message in enumerate(bodies):
            self.messages.append(Message(message, starts_append=number == 0))
            self.last_time_ms = max(self.last_time_ms, START_MS)

    def add_s2(self, rows: list[Row]) -> None:
        for number, row in enumerate(rows):
            if row.fence is not None:
                self.fencing_token = row.fence
            if row.trim is not None:
                known = self.position(self.first).seq if self.trim_to is None else self.trim_to
                to = min(row.trim, self.tail.seq + 1)
                self.trim_to = to if to > known else self.trim_to
            body = b"" if row.is_command else row.body
            message = Message(body, number == 0, whole=True, command=row.is_command)
            self.messages.append(message)
            self.last_time_ms = max(self.last_time_ms, row.time_ms)

    @property
    def content(self) -> bytes:
        """Everything retained, as one response body."""
        return self.slice(self.first, 1 << 40)[0]

    def slice(self, index: int, size_max: int) -> tuple[bytes, int]:
        """The bytes of a slice, and the message it ends before."""
        size, taken = 0, []
        for message in self.messages[index:]:
            if size >= size_max or (size and size + len(message.body) > size_max):
                break
            size += len(message.body)
            taken.append(message)
        bodies = [message.body for message in taken if not message.command]
        joined = b"[" + b",".join(bodies) + b"]" if self.json else b"".join(bodies)
        return joined, index + len(taken)


Expected = type[HeadwaterError] | tuple[Position, bool, bool] | None
"""An error, or (tail, closed, new), or nothing."""


class View(NamedTuple):
    """One stream, compared between a model and an engine."""

    content: bytes
    tail: Position
    closed: bool
    closed_by: tuple[str, int] | None
    deleted: bool
    next_batch: dict[str, int]
    fencing_token: str
    trim_to: int | None
    last_time_ms: int


class Model:
    """All streams by name, and what each command must answer."""

    def __init__(self) -> None:
        self.streams: dict[str, ModelStream] = {}

    def settle(self) -> None:
        """Everything so far is durable."""
        for stream in self.streams.values():
            stream.settled_records = stream.tail.seq

    def view(self) -> dict[str, View]:
        """What can be known of every stream from outside."""
        return {
            name: View(
                stream.content,
                stream.tail,
                stream.closed,
                stream.closed_by,
                stream.deleted,
                dict(stream.next_batch),
                stream.fencing_token,
                stream.trim_to,
                stream.last_time_ms,
            )
            for name, stream in self.streams.items()
        }

    def append(
        self, name: str, bodies: list[bytes], *, close: bool, batch: tuple[str, int] | None
    ) -> Expected:
        stream = self.streams.get(name)
        if stream is None:
            return StreamNotFound
        if stream.deleted:
            return StreamGone
        if stream.closed:
            repeats = stream.closed_by == batch if batch else close and not bodies
            return (stream.tail, True, False) if repeats else StreamClosed
        if batch is not None:
            expected = stream.next_batch.get(batch[0], 0)
            if batch[1] > expected:
                return ProducerGap
            if batch[1] < expected:
                return (stream.tail, False, False)
            stream.next_batch[batch[0]] = expected + 1
        stream.add(bodies)
        if close:
            stream.closed, stream.closed_by = True, batch
        return (stream.tail, stream.closed, True)

    def append_records(
        self, name: str, bodies: list[bytes], *, batch: tuple[str, int] | None
    ) -> Expected:
        """The same, but no repeat is welcome once the stream is closed."""
        stream = self.streams.get(name)
        if stream is not None and stream.closed and not stream.deleted:
            return StreamClosed
        return self.append(name, bodies, close=False, batch=batch)

    def append_s2(
        self, name: str, rows: list[Row], *, token: str | None, seq: int | None
    ) -> Expected:
        stream = self.streams.get(name)
        if stream is None:
            return StreamNotFound
        if stream.deleted:
            return StreamGone
        if stream.closed:
            return StreamClosed
        if token is not None and token != stream.fencing_token:
            return FencingTokenMismatch
        if seq is not None and seq != stream.tail.seq:
            return PreconditionFailed
        stream.add_s2(rows)
        return (stream.tail, False, True)

    def create(self, name: str, *, json: bool, bodies: list[bytes], closed: bool) -> Expected:
        existing = self.streams.get(name)
        if existing is not None:
            same = (existing.json, existing.closed, existing.origin) == (json, closed, None)
            if existing.deleted or not same:
                return StreamExists
            return (existing.tail, closed, False)
        stream = self.streams[name] = ModelStream(json, closed=closed)
        stream.add(bodies)
        return (stream.tail, closed, True)

    def fork(
        self, name: str, source_name: str, at: Position | None, sub_offset: int, bodies: list[bytes]
    ) -> Expected:
        existing = self.streams.get(name)
        if existing is not None:
            return self._fork_again(existing, source_name, at, sub_offset)
        source = self.streams.get(source_name)
        if source is None:
            return StreamNotFound
        if source.deleted:
            return ForkRefused
        at = source.tail if at is None else at
        inherited = _inherited(source, at, sub_offset)
        if not isinstance(inherited, list):
            return inherited
        origin, first = (source_name, at, sub_offset), min(source.first, len(inherited))
        fork = self.streams[name] = ModelStream(source.json, source, origin, inherited, first)
        fork.last_time_ms = source.last_time_ms
        source.forks += 1
        fork.add(bodies)
        return (fork.tail, False, True)

    def _fork_again(
        self, existing: ModelStream, source_name: str, at: Position | None, sub_offset: int
    ) -> Expected:
        if existing.deleted or existing.closed or existing.origin is None:
            return StreamExists
        name, existing_at, existing_sub_offset = existing.origin
        same = at is None or (at, sub_offset) == (existing_at, existing_sub_offset)
        if name != source_name or not same:
            return StreamExists
        return (existing.tail, False, False)

    def delete(self, name: str) -> Expected:
        stream = self.streams.get(name)
        if stream is None:
            return StreamNotFound
        if stream.deleted:
            return StreamGone
        if stream.forks:
            stream.deleted = True
        else:
            self._purge(stream)
        return None

    def trim(self, name: str, to: Position) -> Expected:
        """Forget the messages before a position, which the stream has."""
        stream = self.streams.get(name)
        if stream is not None and not stream.deleted and to in stream.starts:
            stream.first = max(stream.first, stream.starts.index(to))
            if stream.trim_to is not None and stream.trim_to <= stream.position(stream.first).seq:
                stream.trim_to = None
        return None

    def _purge(self, stream: ModelStream) -> None:
        self.streams = {name: kept for name, kept in self.streams.items() if kept is not stream}
        source = stream.source
        if source is not None:
            source.forks -= 1
            if source.deleted and not source.forks:
                self._purge(source)


def _inherited(
    source: ModelStream, at: Position, sub_offset: int
) -> list[Message] | type[HeadwaterError]:
    """The messages of a fork, or why it cannot be."""
    if at not in source.starts:
        return InvalidOffset
    index = source.starts.index(at)
    if index == sub_offset == 0:
        return []
    if index < source.first:
        return OffsetTrimmed
    if sub_offset == 0:
        return source.messages[:index]
    rest = source.messages[index:]
    if source.json:
        return _some_messages(source, index, sub_offset)
    for number, message in enumerate(rest):
        if number and message.starts_append:
            break
        if sub_offset <= len(message.body):
            cut = replace(message, body=message.body[:sub_offset])
            return [*source.messages[: index + number], cut]
        sub_offset -= len(message.body)
    return InvalidRequest


def _some_messages(
    source: ModelStream, index: int, count: int
) -> list[Message] | type[HeadwaterError]:
    """So many messages from an index on, of one append, and all before them."""
    for number, message in enumerate(source.messages[index:]):
        if number and message.starts_append:
            break
        count -= not message.command
        if count == 0:
            return source.messages[: index + number + 1]
    return InvalidRequest


def messages_of(bodies: list[bytes], *, json: bool) -> list[bytes]:
    """What one append of these texts adds: an element each, or all in one."""
    if json:
        return [b'"%b"' % text for text in bodies]
    return [b"".join(bodies)] if bodies else []


def body_of(messages: list[bytes], *, json: bool) -> bytes:
    """The request body that adds these messages."""
    if json and messages:
        return b"[" + b", ".join(messages) + b"]"
    return b"".join(messages)


def s2_command(name: str, rows: list[Row], *, token: str | None, seq: int | None) -> AppendRecords:
    """The command that adds these records."""
    bodies: list[bytes] = []
    headers: list[list[tuple[bytes, bytes]]] = []
    for number, row in enumerate(rows):
        if row.fence is not None:
            bodies.append(row.fence.encode())
            headers.append([(b"", b"fence")])
        elif row.trim is not None:
            bodies.append(row.trim.to_bytes(8, "big"))
            headers.append([(b"", b"trim")])
        else:
            bodies.append(row.body)
            headers.append([(b"n", b"%d" % number)] * (number % 2))
    return s2_append(
        name,
        *bodies,
        headers=headers if any(headers) else None,
        times=[row.time_ms for row in rows],
        match_seq_num=seq,
        fencing_token=token,
    )


def check_outcome(command: Command, expected: Expected, outcome: Any) -> None:
    """The engine answered what the model did."""
    if isinstance(expected, type):
        assert type(outcome) is expected, (command, outcome)
    elif expected is None:
        assert outcome is None, (command, outcome)
    elif isinstance(outcome, Created):
        assert (outcome.tail, outcome.closed, outcome.new) == expected, (command, outcome)
    else:
        assert isinstance(outcome, Appended), (command, outcome)
        assert (outcome.tail, outcome.closed, not outcome.repeat) == expected, (command, outcome)


def view_of(runner: EngineRunner, names: list[str]) -> dict[str, View]:
    """The streams of an engine as the model would show them."""
    found = {}
    for name in names:
        stream = runner.engine.shard.find(BUCKET, name)
        if stream is not None:
            state = stream.state
            whole = runner.result(runner.engine.read(stream, state.first, ALL))
            closed_by = state.closed_by
            found[name] = View(
                body(whole),
                state.tail,
                state.closed,
                None if closed_by is None else (closed_by.id, closed_by.seq),
                state.deleted,
                {producer: mark.seq + 1 for producer, mark in state.producers.items()},
                state.fencing_token,
                state.trims[-1][0] if state.trims else None,
                state.last_time_ms,
            )
    return found
