"""Group commit: gather commands, apply them in order, write, sync, answer.

Commands that arrive while a commit is syncing form the next one; there are no timers. An answer,
error or not, leaves only when everything it depends on is on disk. This is the one step that a
replicated log would replace: it takes commands in order and answers when they are applied.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Any

from headwater.core.append import Appended
from headwater.core.commands import Append, AppendRecords, AppendSeries, Command, Create
from headwater.core.errors import HeadwaterError, Overloaded, StorageFailed
from headwater.core.limits import MIB
from headwater.core.pending import Pending
from headwater.engine.clock import Clock
from headwater.engine.shard import Shard
from headwater.engine.streams import Stream
from headwater.storage.store import Store, StoreBusy

log = logging.getLogger("headwater.commit")

COMMIT_COMMANDS_MAX = 1024
COMMIT_BYTES_MAX = 4 * MIB
COMMIT_MESSAGES_MAX = 50_000
"""JSON messages, of which a few bytes can be one. The append that passes it is the last."""
COMMAND_BYTES = 256
"""What a command in the queue costs besides its body."""
RECORD_BYTES = 64
"""What each record of an append of records costs besides its body and headers."""
GATHER_TURNS_MAX = 8
"""A commit begins after this many turns of the loop even if each brought more commands."""
BUSY_RETRY_S = 0.005

Ticket = tuple[Command, "Pending[Any]", int]


COMMIT_SECONDS_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class CommitFigures:
    """Counted here, shown on the metrics page."""

    __slots__ = (
        "bytes",
        "commands",
        "commits",
        "durations",
        "seconds",
        "stalls",
        "sync_seconds",
        "syncs",
    )

    def __init__(self) -> None:
        self.commits = 0
        self.syncs = 0
        self.commands = 0
        self.bytes = 0
        self.seconds = 0.0
        self.durations = [0] * (len(COMMIT_SECONDS_BOUNDS) + 1)
        """Commits by how long they took: up to each bound, and longer."""
        self.sync_seconds = 0.0
        self.stalls = 0

    def took(self, seconds: float) -> None:
        """A commit is done."""
        self.commits += 1
        self.seconds += seconds
        self.durations[bisect_left(COMMIT_SECONDS_BOUNDS, seconds)] += 1


class Committer:
    """One commit at a time."""

    def __init__(
        self,
        shard: Shard,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        *,
        on_durable: Callable[[list[Stream]], None],
        on_settled: Callable[[list[Stream]], None],
        on_failed: Callable[[], None],
        while_syncing: Callable[[], None],
        queue_bytes_max: int = 256 * MIB,
    ) -> None:
        self.figures = CommitFigures()
        self.failed = False
        self._shard = shard
        self._loop = loop
        self._clock = clock
        self._on_durable = on_durable
        self._on_settled = on_settled
        self._on_failed = on_failed
        self._while_syncing = while_syncing
        self._queue_bytes_max = queue_bytes_max
        self._queue: deque[Ticket] = deque()
        self._queue_bytes = 0
        self._running: list[tuple[Pending[Any], Any]] | None = None
        self._scheduled = False
        self._gathered = self._turns = 0
        self._started_s = 0.0
        self._closing: Pending[None] | None = None
        self._after: list[Callable[[], None]] = []
        self._syncer = _Syncer(shard.store, loop, self._synced) if shard.store.durable else None

    @property
    def committing(self) -> bool:
        """Commands have been applied whose effects are not durable yet."""
        return self._running is not None

    @property
    def busy(self) -> bool:
        return self._running is not None or bool(self._queue)

    @property
    def queue_commands(self) -> int:
        """Commands that wait for their commit."""
        return len(self._queue)

    @property
    def queue_bytes(self) -> int:
        return self._queue_bytes

    def submit(self, command: Command) -> Pending[Any]:
        """Queue a command. The answer comes after the commit that holds it is durable."""
        answer: Pending[Any] = Pending()
        if self.failed:
            answer.fail(StorageFailed())
            return answer
        size = COMMAND_BYTES
        if isinstance(command, (Append, Create)):
            size += len(command.body) if command.sealed is None else command.sealed.size
        elif isinstance(command, AppendRecords):
            size += command.size + RECORD_BYTES * len(command.bodies)
        elif isinstance(command, AppendSeries):
            for part in command.parts:
                size += part.size + RECORD_BYTES * len(part.bodies)
        if self._closing is not None or self._queue_bytes + size > self._queue_bytes_max:
            answer.fail(Overloaded("the server cannot take more writes just now; retry shortly"))
            return answer
        self._queue.append((command, answer, size))
        self._queue_bytes += size
        if self._running is None and not self._scheduled:
            self._schedule()
        return answer

    def _schedule(self) -> None:
        self._scheduled = True
        self._gathered = len(self._queue)
        self._turns = 0
        self._loop.call_soon(self._gather)

    def _gather(self) -> None:
        """Begin once a turn of the loop brings no more commands.

        Writers that were answered together come back together; a commit begun with the first of
        them would leave the rest to another sync. There is no waiting: each turn had work to do.
        """
        count = len(self._queue)
        if count > self._gathered and self._turns < GATHER_TURNS_MAX:
            self._gathered = count
            self._turns += 1
            self._loop.call_soon(self._gather)
        else:
            self._begin()

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call when the commit under way is settled, or has failed."""
        self._after.append(call)

    def close(self) -> Pending[None]:
        """Take no more commands; done when those accepted are durable."""
        if self._closing is None:
            self._closing = Pending()
            self._maybe_closed()
        return self._closing

    def _begin(self) -> None:
        """Apply what is queued, up to the size of one commit, and write it."""
        self._scheduled = False
        if self._running is not None or self.failed:
            return
        self._started_s = self._clock.monotonic_s()
        outcomes: list[tuple[Pending[Any], Any]] = []
        self._running = outcomes
        room, messages = COMMIT_BYTES_MAX, 0
        commands = self._queue
        apply = self._shard.apply
        while commands and len(outcomes) < COMMIT_COMMANDS_MAX and room > 0:
            command, answer, size = commands.popleft()
            room -= size
            try:
                outcome: Any = apply(command)
                if isinstance(outcome, Appended) and outcome.message_start is not None:
                    messages += (outcome.message_next or 0) - outcome.message_start
            except HeadwaterError as error:
                # Its frames lead back to this commit, bodies included, and would live until the
                # collector runs.
                outcome = error.with_traceback(None)
                outcome.__context__ = None
            except Exception as error:
                # A bug in a rule must not take the others in its commit down with it.
                log.exception("a command failed unexpectedly")
                outcome = error
            outcomes.append((answer, outcome))
            if messages >= COMMIT_MESSAGES_MAX:
                break
        self.figures.bytes += COMMIT_BYTES_MAX - room - COMMAND_BYTES * len(outcomes)
        self._queue_bytes -= COMMIT_BYTES_MAX - room
        self._write()

    def _write(self) -> None:
        try:
            batch = self._shard.seal()
            if batch is not None:
                self._shard.store.write(batch)
                self._shard.written()
        except StoreBusy:
            self.figures.stalls += 1
            self._clock.call_later(BUSY_RETRY_S, self._write)
            return
        except Exception:
            log.exception("a write to the store failed")
            self._fail()
            return
        if batch is None or self._syncer is None:
            self._finish()
            return
        self._syncer.request()
        self._while_syncing()

    def _synced(self, error: BaseException | None, seconds: float) -> None:
        self.figures.syncs += 1
        self.figures.sync_seconds += seconds
        if error is not None:
            log.error("a sync failed; nothing can be promised any more", exc_info=error)
            self._fail()
        else:
            self._finish()

    def _finish(self) -> None:
        """Everything applied is durable: show it, answer, wake readers, go on."""
        outcomes = self._running
        assert outcomes is not None
        self._running = None
        changed = self._shard.settle()
        self.figures.commands += len(outcomes)
        self.figures.took(self._clock.monotonic_s() - self._started_s)
        self._on_durable(changed)
        for answer, outcome in outcomes:
            _answer(answer, outcome)
        if self._queue and not self._scheduled:
            self._schedule()
        self._call_after()
        self._on_settled(changed)
        self._maybe_closed()

    def _call_after(self) -> None:
        after, self._after = self._after, []
        for call in after:
            try:
                call()
            except Exception:
                log.exception("a reader could not be answered; the others go on")

    def _maybe_closed(self) -> None:
        if self._closing is not None and not self.busy and not self._scheduled:
            self._closing.resolve(None)

    def _fail(self) -> None:
        """Never retry a sync, never acknowledge on hope: the server stops."""
        self.failed = True
        running, self._running = self._running or [], None
        waiting, self._queue = list(self._queue), deque()
        for answer, _ in running:
            _answer(answer, StorageFailed())
        for _, answer, _ in waiting:
            _answer(answer, StorageFailed())
        self._call_after()
        self._on_failed()
        self._maybe_closed()

    def stop(self) -> None:
        if self._syncer is not None:
            self._syncer.stop()


def _answer(answer: Pending[Any], outcome: Any) -> None:
    """One broken connection must not disturb the other answers of its commit."""
    try:
        if isinstance(outcome, Exception):
            answer.fail(outcome)
        else:
            answer.resolve(outcome)
    except Exception:
        log.exception("an answer could not be delivered")


class _Syncer:
    """A thread that syncs on request: `flush_wal` lets the loop run meanwhile (ADR 0002)."""

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[BaseException | None, float], None],
    ) -> None:
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._store = store
        self._loop = loop
        self._done = done
        self._thread = threading.Thread(target=self._run, name="headwater-sync", daemon=True)
        self._thread.start()

    def request(self) -> None:
        self._requests.put(True)

    def stop(self) -> None:
        self._requests.put(False)
        self._thread.join()

    def _run(self) -> None:
        sync, now = self._store.sync, self._loop.time
        while self._requests.get():
            error: BaseException | None = None
            started = now()
            try:
                sync()
            except BaseException as caught:
                error = caught
            self._loop.call_soon_threadsafe(self._done, error, now() - started)
