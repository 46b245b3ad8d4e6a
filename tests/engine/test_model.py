"""Random histories on real engines, compared with a model that is a list of messages per stream.

The sizes at which records, runs and chunks are cut are made small, so that a few bytes meet all of
the machinery: long messages, several runs per commit, packing, forks of forks, eviction, reopening.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from headwater.core.append import Appended
from headwater.core.commands import Command
from headwater.core.errors import (
    ForkRefused,
    HeadwaterError,
    InvalidOffset,
    InvalidRequest,
    ProducerGap,
    StreamClosed,
    StreamExists,
    StreamGone,
    StreamNotFound,
)
from headwater.core.lifecycle import Created
from headwater.core.limits import MIB
from headwater.core.types import Position
from headwater.storage.memory import MemoryStore
from headwater.storage.rocks import RocksStore
from headwater.storage.store import Store
from tests.support.builders import (
    JSON,
    TEXT,
    append,
    claim,
    create,
    delete,
    fork_of,
    position,
)
from tests.support.engines import ALL, EngineRunner, body, small_sizes

RECORD_BYTES = 16
NAMES = ["a", "b", "c", "d"]


@dataclass
class Message:
    body: bytes
    starts_append: bool

    @property
    def records(self) -> int:
        return max(1, -(-len(self.body) // RECORD_BYTES))


@dataclass
class ModelStream:
    """What a stream is, in the plainest words."""

    json: bool
    source: ModelStream | None = None
    origin: tuple[str, Position, int] | None = None
    messages: list[Message] = field(default_factory=list)
    closed: bool = False
    deleted: bool = False
    forks: int = 0
    next_batch: dict[str, int] = field(default_factory=dict)
    closed_by: tuple[str, int] | None = None

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

    def slice(self, index: int, size_max: int) -> tuple[bytes, int]:
        """The bytes of a slice, and the message it ends before."""
        size, taken = 0, []
        for message in self.messages[index:]:
            if size >= size_max or (size and size + len(message.body) > size_max):
                break
            size += len(message.body)
            taken.append(message.body)
        joined = b"[" + b",".join(taken) + b"]" if self.json else b"".join(taken)
        return joined, index + len(taken)


Expected = type[HeadwaterError] | tuple[Position, bool, bool] | None
"""An error, or (tail, closed, new), or nothing."""


class Model:
    """All streams by name, and what each command must answer."""

    def __init__(self) -> None:
        self.streams: dict[str, ModelStream] = {}

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
        fork = self.streams[name] = ModelStream(
            source.json, source, (source_name, at, sub_offset), inherited
        )
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
    starts = [source.position(index) for index in range(len(source.messages) + 1)]
    if at not in starts:
        return InvalidOffset
    index = starts.index(at)
    if sub_offset == 0:
        return source.messages[:index]
    rest = source.messages[index:]
    if source.json:
        walked = rest[:sub_offset]
        inside = len(walked) == sub_offset and not any(m.starts_append for m in walked[1:])
        return source.messages[: index + sub_offset] if inside else InvalidRequest
    if not rest or sub_offset > len(rest[0].body):
        return InvalidRequest
    cut = Message(rest[0].body[:sub_offset], starts_append=True)
    return [*source.messages[:index], cut]


texts = st.integers(1, 40).flatmap(
    lambda size: st.sampled_from("abcdefgh").map(lambda letter: letter.encode() * size)
)
message_lists = st.lists(texts, min_size=1, max_size=5)


class Histories(RuleBasedStateMachine):
    """One model, several engines. Commands wait until the next `commit`, then go in together."""

    def open_stores(self) -> list[Store]:
        return [MemoryStore(), MemoryStore(), MemoryStore()]

    @initialize()
    def begin(self) -> None:
        self.cleanup = ExitStack()
        self.cleanup.enter_context(small_sizes(record_bytes=RECORD_BYTES))
        self.model = Model()
        self.waiting: list[tuple[Command, Expected]] = []
        self.runners = [
            self.open_runner(store, number) for number, store in enumerate(self.open_stores())
        ]

    def open_runner(self, store: Store, number: int) -> EngineRunner:
        """The engines differ in what must not matter: packing, and how much is kept in memory."""
        return EngineRunner(
            store, packing_enabled=number != 0, hot_streams_max=2 if number == 2 else 100
        )

    def will(self, command: Command, expected: Expected) -> None:
        self.waiting.append((command, expected))

    # -- commands

    @rule(
        name=st.sampled_from(NAMES),
        json=st.booleans(),
        bodies=st.just([]) | message_lists,
        closed=st.sampled_from([False, False, False, True]),
    )
    def create(self, name: str, json: bool, bodies: list[bytes], closed: bool) -> None:
        messages = _messages(bodies, json=json)
        command = create(
            name, content_type=JSON if json else TEXT, body=_body(messages, json), closed=closed
        )
        self.will(command, self.model.create(name, json=json, bodies=messages, closed=closed))

    @rule(name=st.sampled_from(NAMES), bodies=message_lists)
    def append(self, name: str, bodies: list[bytes]) -> None:
        self._append(name, bodies, close=False, batch=None)

    @rule(
        name=st.sampled_from(NAMES),
        bodies=message_lists,
        producer=st.sampled_from(["p", "q"]),
        behind=st.sampled_from([0, 0, 0, 0, 1, 2, -1]),
        close=st.sampled_from([False] * 7 + [True]),
    )
    def append_as_producer(
        self, name: str, bodies: list[bytes], producer: str, behind: int, close: bool
    ) -> None:
        stream = self.model.streams.get(name)
        expected = stream.next_batch.get(producer, 0) if stream else 0
        seq = max(0, expected - behind)
        self._append(name, bodies, close=close, batch=(producer, seq))

    @rule(name=st.sampled_from(NAMES), bodies=st.just([]) | message_lists)
    def close(self, name: str, bodies: list[bytes]) -> None:
        self._append(name, bodies, close=True, batch=None)

    def _append(
        self, name: str, bodies: list[bytes], *, close: bool, batch: tuple[str, int] | None
    ) -> None:
        stream = self.model.streams.get(name)
        json = stream is not None and stream.json
        messages = _messages(bodies, json=json)
        command = append(
            name,
            _body(messages, json),
            close=close,
            producer=None if batch is None else claim(batch[0], seq=batch[1]),
        )
        self.will(command, self.model.append(name, messages, close=close, batch=batch))

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.will(delete(name), self.model.delete(name))

    @rule(
        name=st.sampled_from(NAMES),
        source=st.sampled_from(NAMES),
        where=st.none() | st.integers(0, 20),
        sub_offset=st.sampled_from([0, 0, 0, 1, 2, 15, 16, 17, 32]),
        bodies=st.just([]) | message_lists,
    )
    def fork(
        self, name: str, source: str, where: int | None, sub_offset: int, bodies: list[bytes]
    ) -> None:
        stream = self.model.streams.get(source)
        at = None
        if where is not None and stream is not None:
            at = stream.position(where % (len(stream.messages) + 1))
        if at is None:
            sub_offset = 0  # the dialects refuse a sub-offset without an offset
        json = stream is not None and stream.json
        messages = _messages(bodies, json=json)
        command = create(
            name,
            content_type=None,
            fork=fork_of(source, at, sub_offset),
            body=_body(messages, json),
        )
        self.will(command, self.model.fork(name, source, at, sub_offset, messages))

    # -- looking

    @rule()
    def commit(self) -> None:
        waiting, self.waiting = self.waiting, []
        for runner in self.runners:
            outcomes = runner.together(*[command for command, _ in waiting])
            for (command, expected), outcome in zip(waiting, outcomes, strict=True):
                _check(command, expected, outcome)
            runner.settle()

    @rule(
        name=st.sampled_from(NAMES),
        where=st.integers(0, 20),
        size_max=st.sampled_from([1, 10, 16, 40, 64, 100, 250, ALL]),
    )
    def read_to_the_end(self, name: str, where: int, size_max: int) -> None:
        """From a position that was handed out, slice by slice: the same everywhere."""
        self.commit()
        stream = self.model.streams.get(name)
        if stream is None or stream.deleted:
            gone = StreamNotFound if stream is None else StreamGone
            for runner in self.runners:
                with pytest.raises(gone):
                    runner.open(name)
            return
        for runner in self.runners:
            index = where % (len(stream.messages) + 1)
            while True:
                start = stream.position(index)
                expected, index = stream.slice(index, size_max)
                found = runner.read(name, start, size_max)
                assert body(found) == expected
                assert (found.start, found.end) == (start, stream.position(index))
                assert found.at_tail == (index == len(stream.messages))
                assert found.closed == (found.at_tail and stream.closed)
                if found.at_tail:
                    break

    @rule(name=st.sampled_from(NAMES), seq=st.integers(0, 30), byte=st.integers(0, 200))
    def read_from_nowhere(self, name: str, seq: int, byte: int) -> None:
        """A position that was never handed out is refused; so is forking there."""
        self.commit()
        stream = self.model.streams.get(name)
        if stream is None or stream.deleted:
            return
        starts = {stream.position(index) for index in range(len(stream.messages) + 1)}
        wrong = position(seq, byte)
        inside = position(seq, sum(len(m.body) for m in stream.messages[: seq // 2]))
        for nowhere in {wrong, inside, *_inside_messages(stream)} - starts:
            for runner in self.runners:
                with pytest.raises(InvalidOffset):
                    runner.read(name, nowhere)
                if "new" not in self.model.streams:
                    command = create("new", content_type=None, fork=fork_of(name, nowhere))
                    assert isinstance(runner.outcome(runner.submit(command)), InvalidOffset)

    @rule()
    def reopen(self) -> None:
        self.commit()
        stores = [self.close_runner(runner) for runner in self.runners]
        self.runners = [self.open_runner(store, number) for number, store in enumerate(stores)]

    def close_runner(self, runner: EngineRunner) -> Store:
        runner.abandon()
        return runner.store

    def teardown(self) -> None:
        if not hasattr(self, "cleanup"):
            return
        with self.cleanup:
            for name in NAMES:
                self.read_to_the_end(name, 0, 50)
            self.remove_everything()
            for runner in self.runners:
                runner.abandon()

    def remove_everything(self) -> None:
        """When every stream is deleted, nothing of them is left on disk."""
        for name in NAMES:
            stream = self.model.streams.get(name)
            if stream is not None and not stream.deleted:
                self.delete(name)
        self.commit()
        assert self.model.streams == {}
        for runner in self.runners:
            for _ in range(3):
                runner.engine.sweeper.sweep()
            for prefix in (b"n", b"s", b"r", b"g"):
                assert runner.keys(prefix) == []


def _messages(bodies: list[bytes], *, json: bool) -> list[bytes]:
    if json:
        return [b'"%b"' % text for text in bodies]
    return [b"".join(bodies)] if bodies else []


def _body(messages: list[bytes], json: bool) -> bytes:
    if json and messages:
        return b"[" + b", ".join(messages) + b"]"
    return b"".join(messages)


def _inside_messages(stream: ModelStream) -> list[Position]:
    """Where a record begins that continues a message: real, but never handed out."""
    found = []
    for index, message in enumerate(stream.messages):
        start = stream.position(index)
        found += [
            position(start.seq + part, start.byte + part * RECORD_BYTES)
            for part in range(1, message.records)
        ]
    return found


def _check(command: Command, expected: Expected, outcome: Any) -> None:
    if isinstance(expected, type):
        assert type(outcome) is expected, (command, outcome)
    elif expected is None:
        assert outcome is None, (command, outcome)
    elif isinstance(outcome, Created):
        assert (outcome.tail, outcome.closed, outcome.new) == expected, (command, outcome)
    else:
        assert isinstance(outcome, Appended), (command, outcome)
        assert (outcome.tail, outcome.closed, not outcome.repeat) == expected, (command, outcome)


class HistoriesOnRocksDB(Histories):
    """The same, with RocksDB among the stores and a real close in between."""

    def open_stores(self) -> list[Store]:
        folder = self.cleanup.enter_context(tempfile.TemporaryDirectory())
        self.folders = [Path(folder) / "1", Path(folder) / "2"]
        return [RocksStore(path, cache_bytes=MIB) for path in self.folders]

    def open_runner(self, store: Store, number: int) -> EngineRunner:
        return EngineRunner(store, packing_enabled=True, hot_streams_max=2 if number else 100)

    def close_runner(self, runner: EngineRunner) -> Store:
        runner.close()
        return RocksStore(self.folders[self.runners.index(runner)], cache_bytes=MIB)

    def teardown(self) -> None:
        if not hasattr(self, "cleanup"):
            return
        with self.cleanup.pop_all() as cleanup:
            self.cleanup = ExitStack()
            super().teardown()
            for runner in self.runners:
                runner.store.close()
            assert cleanup


TestHistoriesInMemory = Histories.TestCase
TestHistoriesInMemory.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestHistoriesOnRocksDB = HistoriesOnRocksDB.TestCase
TestHistoriesOnRocksDB.settings = settings(
    max_examples=15,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
