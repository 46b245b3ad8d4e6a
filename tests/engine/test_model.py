"""Random histories on real engines, compared with a model that is a list of messages per stream.

The sizes at which records, runs and chunks are cut are made small, so that a few bytes meet all of
the machinery: long messages, several runs per commit, packing, forks of forks, eviction, reopening.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from headwater.core.commands import Command
from headwater.core.errors import (
    InvalidOffset,
    OffsetTrimmed,
    StreamGone,
    StreamNotFound,
)
from headwater.core.limits import MIB
from headwater.core.types import Position
from headwater.storage.memory import MemoryStore
from headwater.storage.rocks import RocksStore
from headwater.storage.store import Store
from tests.support.builders import (
    JSON,
    TEXT,
    append,
    append_records,
    claim,
    create,
    delete,
    fork_of,
    position,
    trim,
)
from tests.support.engines import ALL, EngineRunner, body, small_sizes
from tests.support.histories import TOKENS, draw_rows
from tests.support.model import (
    RECORD_BYTES,
    Expected,
    Model,
    ModelStream,
    body_of,
    check_outcome,
    messages_of,
    s2_command,
)

NAMES = ["a", "b", "c", "d"]


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
        messages = messages_of(bodies, json=json)
        command = create(
            name,
            content_type=JSON if json else TEXT,
            body=body_of(messages, json=json),
            closed=closed,
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

    @rule(
        name=st.sampled_from(NAMES),
        texts_given=st.lists(texts | st.just(b""), min_size=1, max_size=5),
        seq=st.none() | st.integers(0, 3),
    )
    def append_records(self, name: str, texts_given: list[bytes], seq: int | None) -> None:
        stream = self.model.streams.get(name)
        json = stream is not None and stream.json
        bodies = [b'"%b"' % text if json else text for text in texts_given]
        batch = None if seq is None else ("r", seq)
        command = append_records(
            name,
            bodies,
            headers=[[(b"n", b"v")] * (number % 2) for number in range(len(bodies))],
            producer=None if batch is None else claim(batch[0], seq=batch[1]),
        )
        self.will(command, self.model.append_records(name, bodies, batch=batch))

    @rule(
        name=st.sampled_from(NAMES),
        texts_given=st.lists(texts | st.just(b""), min_size=1, max_size=5),
        token=st.none() | st.sampled_from(TOKENS),
        behind=st.none() | st.sampled_from([0, 0, 0, 1, -1]),
        data=st.data(),
    )
    def append_s2(
        self,
        name: str,
        texts_given: list[bytes],
        token: str | None,
        behind: int | None,
        data: st.DataObject,
    ) -> None:
        stream = self.model.streams.get(name)
        rows = draw_rows(data, texts_given, json=stream is not None and stream.json)
        seq = None if stream is None or behind is None else max(0, stream.tail.seq - behind)
        command = s2_command(name, rows, token=token, seq=seq)
        self.will(command, self.model.append_s2(name, rows, token=token, seq=seq))

    @rule(name=st.sampled_from(NAMES), bodies=st.just([]) | message_lists)
    def close(self, name: str, bodies: list[bytes]) -> None:
        self._append(name, bodies, close=True, batch=None)

    def _append(
        self, name: str, bodies: list[bytes], *, close: bool, batch: tuple[str, int] | None
    ) -> None:
        stream = self.model.streams.get(name)
        json = stream is not None and stream.json
        messages = messages_of(bodies, json=json)
        command = append(
            name,
            body_of(messages, json=json),
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
        messages = messages_of(bodies, json=json)
        command = create(
            name,
            content_type=None,
            fork=fork_of(source, at, sub_offset),
            body=body_of(messages, json=json),
        )
        self.will(command, self.model.fork(name, source, at, sub_offset, messages))

    @rule(name=st.sampled_from(NAMES), where=st.integers(0, 20))
    def trim(self, name: str, where: int) -> None:
        self.commit()  # only what is durable can be trimmed
        stream = self.model.streams.get(name)
        if stream is not None:
            to = stream.position(where % (len(stream.messages) + 1))
            self.will(trim(name, to), self.model.trim(name, to))

    # -- looking

    @rule()
    def commit(self) -> None:
        waiting, self.waiting = self.waiting, []
        for runner in self.runners:
            outcomes = runner.together(*[command for command, _ in waiting])
            for (command, expected), outcome in zip(waiting, outcomes, strict=True):
                check_outcome(command, expected, outcome)
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
            if index < stream.first:
                self.read_what_was_trimmed(runner, name, stream, index)
                index = stream.first
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

    def read_what_was_trimmed(
        self, runner: EngineRunner, name: str, stream: ModelStream, index: int
    ) -> None:
        first = stream.position(stream.first)
        with pytest.raises(OffsetTrimmed) as caught:
            runner.read(name, stream.position(index))
        assert caught.value.first == first
        assert runner.read(name).start == first

    @rule(name=st.sampled_from(NAMES), seq=st.integers(0, 30), byte=st.integers(0, 200))
    def read_from_nowhere(self, name: str, seq: int, byte: int) -> None:
        """A position that was never handed out is refused; so is forking there."""
        self.commit()
        stream = self.model.streams.get(name)
        if stream is None or stream.deleted:
            return
        starts = set(stream.starts)
        wrong = position(seq, byte)
        inside = position(seq, sum(len(m.body) for m in stream.messages[: seq // 2]))
        first = stream.position(stream.first)
        nowheres = {wrong, inside, *_inside_messages(stream)} - starts
        for nowhere in (wrong for wrong in nowheres if wrong.seq >= first.seq):
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
