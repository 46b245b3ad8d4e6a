"""Engine: the operations that dialects call. Owns time, the committer, followers and sweeping.

Writes return a Pending that the commit completes. Reads see only durable data: a name that the
commit under way creates or removes is looked at again when that commit is settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from headwater.core.append import Appended, SeriesAppended
from headwater.core.buckets import BucketConfig
from headwater.core.commands import (
    Append,
    AppendRecords,
    AppendSeries,
    Command,
    Create,
    Delete,
    DeleteBucket,
    DropBucket,
    Expire,
    Provision,
    ProvisionBucket,
    ProvisionMode,
    PutBucket,
    Reconfigure,
    ReconfigureBucket,
    Retain,
    SaveDocument,
    SetAttributes,
    Touch,
    TrimToSnapshot,
)
from headwater.core.errors import DiskFull, KeyRequired, StorageFailed, StreamGone, StreamNotFound
from headwater.core.lifecycle import Created
from headwater.core.limits import MIB, TTL_TOUCH_FRACTION
from headwater.core.pending import Pending
from headwater.core.provisioning import BucketProvisioned, Provisioned
from headwater.core.stream_config import StreamConfig
from headwater.core.types import Position, TimestampMs
from headwater.engine import reader, seek
from headwater.engine.basins import BucketRemover
from headwater.engine.clock import Clock
from headwater.engine.committer import Committer
from headwater.engine.opening import Opener
from headwater.engine.packer import Packer
from headwater.engine.reader import Slice
from headwater.engine.retention import Retainer
from headwater.engine.sealing import seal_append, seal_create, seal_series
from headwater.engine.shard import Shard
from headwater.engine.snapshots import remove_leftovers
from headwater.engine.steps import run
from headwater.engine.streams import Stream
from headwater.engine.sweeper import Sweeper
from headwater.engine.wakes import Wakes
from headwater.storage import keys
from headwater.storage.store import Store
from headwater.wire import offsets

log = logging.getLogger("headwater.engine")

T = TypeVar("T")
Follower = Callable[[Stream, dict[Any, Any]], None]
Observer = Callable[[list[Stream]], None]

STORE_TAG_BYTES = 4


class Engine:
    """One server's streams."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        hot_streams_max: int = 100_000,
        queue_bytes_max: int = 256 * MIB,
        disk_reserve_bytes: int = 0,
        free_bytes: Callable[[], int] | None = None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.clock = clock
        self.loop = loop
        self.store = store
        self.store_tag = _open_format(store, clock)
        remove_leftovers(store)
        self.shard = Shard(store, hot_streams_max=hot_streams_max)
        self.tally = self.shard.tally
        self.packer = Packer(self.shard)
        self.observers: list[Observer] = []
        self.farewells: list[Callable[[str], None]] = []
        """Called with a deleted bucket right before it goes: what else belongs to it goes too."""
        self.followers = 0
        self._touching: set[str] = set()
        self._count_step: asyncio.Handle | None = None
        self._looks: list[Callable[[], None]] = []
        self._wakes = Wakes(loop)
        self.committer = Committer(
            self.shard,
            loop,
            clock,
            on_durable=self._durable,
            on_settled=self._settled,
            on_failed=on_failed,
            while_syncing=self._while_syncing,
            queue_bytes_max=queue_bytes_max,
        )
        self.retainer = Retainer(self.shard, self.submit)
        self.sweeper = Sweeper(
            self.shard,
            clock,
            deadline_of=self.deadline_of,
            expire=self.submit,
            retainer=self.retainer,
            remover=BucketRemover(self.shard, self.submit, self.farewells),
            free_bytes=free_bytes,
            disk_reserve_bytes=disk_reserve_bytes,
        )

    def start(self) -> None:
        self.sweeper.start()
        self._count_buckets()

    @property
    def ready(self) -> bool:
        return not self.committer.failed

    # -- writes

    def create(self, command: Create, key: bytes | None = None) -> Pending[Created]:
        """Durable when it resolves. Raises nothing; errors come through the Pending.

        `key`, here and below, is what the request says to encrypt or decrypt with, as it came.
        """
        if self.sweeper.disk_low:
            return _failed(DiskFull())
        self._keep_alive(command.bucket, command.name, command.at_ms)
        source = None
        if command.fork is not None:
            source = self._keep_alive(command.fork.bucket, command.fork.name, command.at_ms)
        bucket = self.bucket(command.bucket)
        cipher = None if bucket is None else bucket.stream_cipher
        state, chance = None if source is None else source.state, self.clock.random_bytes
        return self._submit_sealed(lambda: seal_create(command, state, cipher, key, chance))

    def provision(self, command: Provision) -> Pending[Provisioned]:
        """Durable when it resolves. What is submitted after it finds the stream."""
        if self.sweeper.disk_low:
            return _failed(DiskFull())
        self._keep_alive(command.bucket, command.name, command.at_ms)
        return self.committer.submit(command)

    def append(
        self, command: Append | AppendRecords, key: bytes | None = None
    ) -> Pending[Appended]:
        """Durable when it resolves."""
        if self.sweeper.disk_low:
            return _failed(DiskFull())
        stream = self._keep_alive(command.bucket, command.name, command.at_ms)
        if stream is not None and stream.state.cipher is not None:
            state, chance = stream.state, self.clock.random_bytes
            return self._submit_sealed(lambda: seal_append(state, command, key, chance))
        if stream is None and key is not None:
            return self._append_unseen(command, key)
        return self.committer.submit(command)

    def _append_unseen(self, command: Append | AppendRecords, key: bytes) -> Pending[Appended]:
        """There is no such stream; but one that waits to be made may turn out to be encrypted."""
        answer: Pending[Appended] = Pending()

        def settled(outcome: Appended | Exception) -> None:
            if isinstance(outcome, KeyRequired):
                self.append(command, key).deliver(answer.complete)
            else:
                answer.complete(outcome)

        self.committer.submit(command).deliver(settled)
        return answer

    def append_series(
        self, command: AppendSeries, key: bytes | None = None
    ) -> Pending[SeriesAppended]:
        """Durable when it resolves, and so is what its refusal rests on."""
        if self.sweeper.disk_low:
            return _failed(DiskFull())
        stream = self._keep_alive(command.bucket, command.name, command.at_ms)
        if stream is not None and stream.state.cipher is not None:
            state, chance = stream.state, self.clock.random_bytes
            return self._submit_sealed(lambda: seal_series(state, command, key, chance))
        return self.committer.submit(command)

    def _submit_sealed(self, seal: Callable[[], Command]) -> Pending[Any]:
        try:
            return self.committer.submit(seal())
        except KeyRequired as error:
            return _failed(error)

    def delete(self, command: Delete) -> Pending[None]:
        """Durable when it resolves; the name is free then."""
        self._keep_alive(command.bucket, command.name, command.at_ms)
        return self.committer.submit(command)

    def change(self, command: Retain | SetAttributes | TrimToSnapshot) -> Pending[None]:
        """What is set about a stream. Durable when it resolves; records that pass a new
        retention go soon after."""
        self._keep_alive(command.bucket, command.name, command.at_ms)
        return self.committer.submit(command)

    def reconfigure(self, command: Reconfigure) -> Pending[StreamConfig]:
        """Change a stream's configuration: all of it, as it is then."""
        self._keep_alive(command.bucket, command.name, command.at_ms)
        return self.committer.submit(command)

    def submit(self, command: Command) -> Pending[Any]:
        """Any other command: expiry, touches, documents."""
        return self.committer.submit(command)

    def save_document(self, collection: str, name: str, value: bytes | None) -> Pending[None]:
        """Store a document of the server's own. Durable when it resolves."""
        return self.submit(SaveDocument(collection, name, self.clock.now_ms(), value))

    # -- buckets

    def bucket(self, bucket: str) -> BucketConfig | None:
        """The bucket as of the last command; None when there is none."""
        return self.shard.buckets.find(bucket)

    def put_bucket(self, bucket: str, config: BucketConfig | None) -> Pending[bool]:
        """Make a bucket, or change it if `config` is given: True when it is new."""
        return self.submit(PutBucket(bucket, "", self.clock.now_ms(), config))

    def provision_bucket(
        self, bucket: str, mode: ProvisionMode, config: BucketConfig
    ) -> Pending[BucketProvisioned]:
        """Make a bucket with this configuration, or deal with the one that is there."""
        if self.sweeper.disk_low:
            return _failed(DiskFull())
        return self.submit(ProvisionBucket(bucket, "", self.clock.now_ms(), mode, config))

    def reconfigure_bucket(self, command: ReconfigureBucket) -> Pending[BucketConfig]:
        """Change a bucket; fails with BucketNotFound and BucketDeleting."""
        return self.submit(command)

    def delete_bucket(self, bucket: str) -> Pending[None]:
        """Remove a bucket with its streams, which go after it resolves; BucketNotFound."""
        return self.submit(DeleteBucket(bucket, "", self.clock.now_ms()))

    def drop_bucket(self, bucket: str) -> Pending[None]:
        """Remove an empty bucket; fails with NotFound and Conflict."""
        return self.submit(DropBucket(bucket, "", self.clock.now_ms()))

    # -- lifetimes

    def deadline_of(self, stream: Stream) -> TimestampMs | None:
        """When a stream ends, reads that are not on disk yet included.

        A sliding window that has run out under a live reader starts anew here.
        """
        state = stream.state
        deadline = state.deadline_ms
        if state.ttl_s is None or not state.ttl_from_access or deadline is None:
            return deadline
        window_ms = state.ttl_s * 1000
        has_run_out = max(deadline, stream.accessed_at_ms + window_ms) <= self.clock.now_ms()
        if has_run_out and stream.followers and any(stream.followers.values()):
            self.touch(stream)
        return TimestampMs(max(deadline, stream.accessed_at_ms + window_ms))

    def _keep_alive(self, bucket: str, name: str, at_ms: TimestampMs) -> Stream | None:
        """Before a write is judged: put on disk the reads that keep its stream alive."""
        stream = self.shard.find(bucket, name)
        if stream is not None and stream.state.ttl_s is not None:
            self._is_alive(stream, at_ms)
        return stream

    def _is_alive(self, stream: Stream, now: TimestampMs) -> bool:
        """Not expired. What core does not know yet is submitted first."""
        state = stream.state
        if not state.is_expired(now):
            return True
        deadline = self.deadline_of(stream)
        if deadline is not None and deadline > now:
            self.submit(Touch(state.bucket, state.name, TimestampMs(stream.accessed_at_ms)))
            return True
        return False

    def touch(self, stream: Stream) -> None:
        """Somebody reads the stream: a sliding TTL starts anew. PROTOCOL §5.1."""
        state = stream.state
        if state.ttl_s is None or not state.ttl_from_access or state.deleted or stream.purged:
            return
        now = self.clock.now_ms()
        stream.accessed_at_ms = max(stream.accessed_at_ms, now)
        unsaved_ms = now - state.touched_at_ms
        key = state.key
        if unsaved_ms * TTL_TOUCH_FRACTION >= state.ttl_s * 1000 and key not in self._touching:
            self._touching.add(key)
            self.submit(Touch(state.bucket, state.name, now)).deliver(
                lambda _: self._touching.discard(key)
            )

    # -- reads

    def when_settled(self, bucket: str, name: str, look: Callable[[], T]) -> T | Pending[T]:
        """Call `look` now, or after the commit that is creating or removing the stream.

        Raises StorageFailed when that commit can no longer become durable.
        """
        if self.committer.failed:
            raise StorageFailed()
        if not self.shard.unsettled or f"{bucket}/{name}" not in self.shard.unsettled:
            return look()
        answer: Pending[T] = Pending()
        wanted = True

        def abandon() -> None:
            nonlocal wanted
            wanted = False

        def again() -> None:
            if not wanted:
                return
            try:
                outcome = self.when_settled(bucket, name, look)
            except Exception as error:
                answer.fail(error)
                return
            if isinstance(outcome, Pending):
                answer.on_cancel(outcome.cancel)
                answer.on_hurry(outcome.hurry)
                outcome.deliver(answer.complete)
            else:
                answer.resolve(outcome)

        answer.on_cancel(abandon)
        self.committer.after_commit(again)
        return answer

    def at_rest(self, look: Callable[[], T]) -> T | Pending[T]:
        """Call `look` at a moment when all that was applied is durable, so that nothing else shows.

        That is now, or as the commit under way ends and before the next begins: it must be short.
        Raises StorageFailed when that commit can no longer become durable.
        """
        if self.committer.failed:
            raise StorageFailed()
        if not self.committer.committing:
            return look()
        answer: Pending[T] = Pending()
        outcome: Any = StorageFailed()

        def attempt() -> None:
            nonlocal outcome
            try:
                outcome = look()
            except Exception as error:
                outcome = error

        # Looked at before the next commit begins, answered after: what follows takes longer.
        self._looks.append(attempt)
        self.committer.after_commit(lambda: answer.complete(outcome))
        return answer

    def open(self, bucket: str, name: str) -> Stream:
        """The stream for reading. Raises StreamNotFound or StreamGone."""
        if self.committer.failed:
            raise StorageFailed()
        stream = self.shard.find(bucket, name)
        if stream is None:
            raise StreamNotFound(name)
        if stream.state.deleted:
            raise StreamGone(name)
        now = self.clock.now_ms()
        if not self._is_alive(stream, now):
            self.submit(Expire(bucket, name, now))
            if stream.state.references:
                raise StreamGone(name)
            raise StreamNotFound(name)
        return stream

    def find_start(self, stream: Stream, start: offsets.Start | None) -> Position:
        """Where a reader begins. Raises InvalidOffset and OffsetTrimmed."""
        if isinstance(start, offsets.Since):
            return seek.find_time(self.shard, stream, start.at_ms)
        if isinstance(start, offsets.FromTail):
            return seek.from_tail(self.shard, stream, start.messages)
        if isinstance(start, offsets.AtByte):
            return seek.find_boundary(self.shard, stream, start.byte)
        if isinstance(start, offsets.AtRecord):
            return seek.find_record(self.shard, stream, start)
        if start is offsets.Sentinel.NOW:
            return stream.tail
        return reader.resolve(stream, start if isinstance(start, Position) else None)

    def measure(self, stream: Stream, start: Position, messages: int) -> int:
        """Body bytes of so many messages from a position on, or of all that are there."""
        if start.seq >= stream.tail.seq:
            return 0
        number = seek.message_number(self.shard, stream, start.seq)
        return seek.find_message(self.shard, stream, number + messages).byte - start.byte

    def opener(self, stream: Stream, key: bytes | None) -> Opener | None:
        """What a reader needs beside an encrypted stream; None for a plain one, which ignores
        keys. Raises KeyRequired."""
        return None if stream.state.cipher is None else Opener(self.shard, stream, key)

    def read(
        self, stream: Stream, start: Position, size_max: int, opener: Opener | None = None
    ) -> Slice | Pending[Slice]:
        """Read from a resolved position, giving way to others between steps when it is long."""
        steps = reader.read(self.shard, stream, start, size_max, opener)
        return run(self.loop, steps)

    def read_now(
        self, stream: Stream, start: Position, size_max: int, opener: Opener | None = None
    ) -> Slice:
        """Read in one go: for small slices at the tail."""
        return reader.read_now(self.shard, stream, start, size_max, opener)

    # -- live

    def follow(self, stream: Stream, follower: Follower, *, renews: bool = True) -> None:
        """Call `follower` whenever the durable tail moves, or the stream ends.

        The dict it gets is shared by all followers of this wake-up, so that what one of them
        rendered can serve the others. With `renews` a sliding TTL does not run out meanwhile.
        """
        if stream.followers is None:
            stream.followers = {}
        if follower not in stream.followers:
            stream.followers[follower] = renews
            self.followers += 1

    def unfollow(self, stream: Stream, follower: Follower) -> None:
        if stream.followers and follower in stream.followers:
            self.deadline_of(stream)  # its window may have run out since anybody looked
            del stream.followers[follower]
            self.followers -= 1

    def _durable(self, changed: list[Stream]) -> None:
        consider = self.packer.consider
        for stream in changed:
            if len(stream.runs) > 1:
                consider(stream)
            if stream.state.retention is not None:
                self.retainer.note(stream)
        self._count_buckets()
        if self._looks:
            looks, self._looks = self._looks, []
            for attempt in looks:
                attempt()

    def _count_buckets(self) -> None:
        """Count on what buckets with a quota hold, a step a turn, between commits."""
        buckets = self.shard.buckets
        if buckets.counting and not self.committer.committing and buckets.count_some():
            if self._count_step is not None:
                self._count_step.cancel()
            self._count_step = self.loop.call_soon(self._count_buckets)

    def _settled(self, changed: list[Stream]) -> None:
        for stream in changed:
            if stream.followers:
                self._wakes.add(stream)
        for observer in self.observers if changed else ():
            try:
                observer(changed)
            except Exception:
                log.exception("an observer failed; the others go on")
        if self.packer.has_work and not self.committer.busy:
            self.loop.call_soon(self._pack_idle)

    def _while_syncing(self) -> None:
        if self.packer.has_work and self.packer.enabled:
            self.loop.call_soon(self.packer.step)

    def _pack_idle(self) -> None:
        """Nothing to commit: pack on, one step a turn, until there is."""
        if self.packer.has_work and self.packer.enabled and not self.committer.busy:
            self.packer.step()
            self.loop.call_soon(self._pack_idle)

    def close(self) -> Pending[None]:
        """Finish what was accepted, then close the store."""
        self.sweeper.stop()
        self.packer.enabled = False
        return self.committer.close().then(self._closed)

    def _closed(self, _: None) -> None:
        self.committer.stop()
        self.store.close()


def _failed(error: Exception) -> Pending[Any]:
    answer: Pending[Any] = Pending()
    answer.fail(error)
    return answer


def _open_format(store: Store, clock: Clock) -> str:
    """Check the format of the store, or mark a new one. Returns the tag that tells stores apart.

    The tag is part of every ETag, so that a cache never mistakes a stream of this store for one
    of the store that was here before.
    """
    found = store.get(keys.FORMAT)
    if found is None:
        batch = store.batch()
        batch.put(keys.FORMAT, keys.STORE_FORMAT)
        batch.put(keys.STORE_TAG, clock.random_bytes(STORE_TAG_BYTES))
        store.write(batch)
        store.sync()
    elif found != keys.STORE_FORMAT:
        raise RuntimeError(
            f"the data folder has format {found.decode()!r}, this version reads "
            f"{keys.STORE_FORMAT.decode()!r}; use the version of headwater that wrote it"
        )
    return (store.get(keys.STORE_TAG) or b"").hex()
