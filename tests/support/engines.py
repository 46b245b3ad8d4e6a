"""An engine on an event loop of its own, moved by the test one step at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import pytest

from headwater.core import limits
from headwater.core.append import Appended
from headwater.core.commands import Append, Command, Create, Delete
from headwater.core.lifecycle import Created
from headwater.core.limits import MIB
from headwater.core.pending import Pending
from headwater.core.types import Position
from headwater.engine import committer, reader, staging
from headwater.engine.engine import Engine
from headwater.engine.reader import Slice
from headwater.engine.streams import Stream
from headwater.storage import packing
from headwater.storage.memory import MemoryStore
from headwater.storage.store import Store
from tests.support.builders import BUCKET
from tests.support.clock import FakeClock

T = TypeVar("T")

WAIT_S = 10.0
ALL = 1 << 40
"""A slice size that no stream of a test reaches."""


class EngineRunner:
    """Runs one engine. Nothing happens between two calls of the test."""

    def __init__(
        self,
        store: Store | None = None,
        clock: FakeClock | None = None,
        *,
        packing_enabled: bool = True,
        sync_on_loop: bool = False,
        hot_streams_max: int = 100_000,
        queue_bytes_max: int = 256 * MIB,
        disk_reserve_bytes: int = 0,
        free_bytes: Callable[[], int] | None = None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.store: Store = MemoryStore() if store is None else store
        self.clock = FakeClock() if clock is None else clock
        self.loop = asyncio.new_event_loop()
        try:
            with pytest.MonkeyPatch.context() as patch:
                if sync_on_loop:
                    patch.setattr(committer, "_Syncer", LoopSyncer)
                self.engine = Engine(
                    self.store,
                    self.clock,
                    self.loop,
                    hot_streams_max=hot_streams_max,
                    queue_bytes_max=queue_bytes_max,
                    disk_reserve_bytes=disk_reserve_bytes,
                    free_bytes=free_bytes,
                    on_failed=on_failed,
                )
        except BaseException:
            self.loop.close()
            raise
        self.engine.packer.enabled = packing_enabled

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abandon()

    # -- the loop

    def turn(self, count: int = 1) -> None:
        """Let the loop run what is ready."""
        for _ in range(count):
            self.loop.run_until_complete(asyncio.sleep(0))

    def settle(self) -> None:
        """Run until there is nothing left to commit or to pack, or the store has failed."""
        deadline = self.loop.time() + WAIT_S
        commits, packer = self.engine.committer, self.engine.packer
        while commits.busy or (packer.enabled and packer.has_work and not commits.failed):
            assert self.loop.time() < deadline, "the engine does not come to rest"
            self.turn()
        self.turn(2)

    def outcome(self, pending: Pending[Any]) -> Any:
        """What a pending answer turns out to be: a value, or the exception."""
        found: asyncio.Future[Any] = self.loop.create_future()
        pending.deliver(found.set_result)
        return self.loop.run_until_complete(asyncio.wait_for(found, WAIT_S))

    @overload
    def result(self, answer: Pending[T]) -> T: ...

    @overload
    def result(self, answer: T | Pending[T]) -> T: ...

    def result(self, answer: Any) -> Any:
        """The value of an answer that is there or still to come. Raises its failure."""
        outcome = self.outcome(answer) if isinstance(answer, Pending) else answer
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    # -- commands

    def submit(self, command: Command) -> Pending[Any]:
        if isinstance(command, Create):
            return self.engine.create(command)
        if isinstance(command, Append):
            return self.engine.append(command)
        if isinstance(command, Delete):
            return self.engine.delete(command)
        return self.engine.submit(command)

    def together(self, *commands: Command) -> list[Any]:
        """Submit everything before the loop runs, so that it goes into one commit."""
        waiting = [self.submit(command) for command in commands]
        return [self.outcome(pending) for pending in waiting]

    def create(self, command: Create) -> Created:
        return self.result(self.engine.create(command))

    def append(self, command: Append) -> Appended:
        return self.result(self.engine.append(command))

    def delete(self, command: Delete) -> None:
        self.result(self.engine.delete(command))

    # -- reads

    def open(self, name: str) -> Stream:
        return self.result(
            self.engine.when_settled(BUCKET, name, lambda: self.engine.open(BUCKET, name))
        )

    def read(self, name: str, start: Position | None = None, size_max: int = ALL) -> Slice:
        """One slice, as a dialect reads it."""
        stream = self.open(name)
        return self.result(self.engine.read(stream, reader.resolve(stream, start), size_max))

    def content(self, name: str) -> bytes:
        """Everything in the stream, as one response body."""
        return body(self.read(name))

    def keys(self, prefix: bytes) -> list[bytes]:
        """The keys of the store that begin with one byte."""
        end = bytes([prefix[0] + 1])
        return [key for key, _ in self.store.scan(prefix, end)]

    # -- the end

    def close(self) -> None:
        """End well: finish what was accepted and close the store."""
        self.result(self.engine.close())
        self.loop.close()

    def abandon(self) -> None:
        """End badly: stop the threads, leave the store as it is."""
        if not self.loop.is_closed():
            self.engine.sweeper.stop()
            self.engine.committer.stop()
            self.turn(2)
            self.loop.close()


class LoopSyncer:
    """Syncs on the loop instead of in a thread, so that a run can be repeated exactly."""

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[BaseException | None, float], None],
    ) -> None:
        self._store = store
        self._loop = loop
        self._done = done

    def request(self) -> None:
        self._loop.call_soon(self._sync)

    def _sync(self) -> None:
        try:
            self._store.sync()
        except Exception as error:
            self._loop.call_soon(self._done, error, 0.0)
        else:
            self._loop.call_soon(self._done, None, 0.0)

    def stop(self) -> None:
        """There is no thread to stop."""


def body(found: Slice) -> bytes:
    return b"".join(bytes(part) for part in found.body())


@contextmanager
def small_sizes(
    *,
    record_bytes: int = 16,
    run_bytes: int = 96,
    chunk_bytes: int = 256,
    runs_min: int = 3,
    step_bytes: int = 64,
) -> Iterator[None]:
    """Shrink the sizes at which records, runs and chunks are cut, so that little data meets all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "RECORD_BODY_BYTES_MAX", record_bytes)
        patch.setattr(staging, "RECORD_BODY_BYTES_MAX", record_bytes)
        patch.setattr(staging, "RUN_BYTES_MAX", run_bytes)
        patch.setattr(packing, "CHUNK_BYTES", chunk_bytes)
        patch.setattr(packing, "RUNS_MIN", runs_min)
        patch.setattr(reader, "STEP_BYTES", step_bytes)
        yield
