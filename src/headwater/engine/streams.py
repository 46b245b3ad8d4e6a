"""The streams of one shard in memory: found by name or id, loaded from the store, forgotten again.

A stream is its last checkpoint plus the runs after it. The ones used lately stay in memory, up to
a bound; everything about the others is in the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from headwater.core.errors import Corruption
from headwater.core.limits import TTL_TOUCH_FRACTION
from headwater.core.stream import StreamState, decode_state
from headwater.core.types import ByteOffset, SeqNum, StreamId, TimestampMs
from headwater.storage import keys
from headwater.storage.packing import Pieces
from headwater.storage.runs import Run, RunBuilder
from headwater.storage.store import Store


class Stream:
    """A stream in memory: its state as of the last command, and what readers may see of it."""

    __slots__ = (
        "accessed_at_ms",
        "builders",
        "checkpoint_bytes",
        "checkpoint_number",
        "deleted",
        "dirty",
        "followers",
        "gone",
        "packing_jobs",
        "purged",
        "runs",
        "snapshot",
        "state",
        "tail",
        "tail_closed",
        "tail_time_ms",
        "touched_in_commit",
    )

    def __init__(self, state: StreamState) -> None:
        self.state = state
        self.tail = state.tail
        """The durable tail: readers never see past it."""
        self.tail_time_ms = state.last_time_ms
        """The time of the last record before it."""
        self.tail_closed = state.closed
        self.snapshot = state.snapshot
        """The durable one."""
        self.deleted = state.deleted
        """Deleted or expired, durably, and kept only for its forks."""
        self.gone = False
        """Deleted for good, durably."""
        self.purged = False
        """Deleted for good by a command, durable or not: nothing may be written for it."""
        self.accessed_at_ms = state.touched_at_ms
        self.builders: list[RunBuilder] = []
        self.dirty = False
        self.touched_in_commit = False
        self.runs = Pieces()
        """First record and stored bytes of the runs since the last packing."""
        self.checkpoint_bytes = 0
        self.checkpoint_number = 0
        self.packing_jobs = 0
        """Jobs that hold this object: it must stay the only one for its stream."""
        self.followers: dict[Callable[[Stream, dict[Any, Any]], None], bool] | None = None
        """Live readers, each with whether it renews a sliding TTL."""

    @property
    def idle(self) -> bool:
        return not self.touched_in_commit and not self.followers and not self.packing_jobs


class Streams:
    """Names to streams."""

    def __init__(self, store: Store, hot_streams_max: int) -> None:
        self.store = store
        self.hot_streams_max = hot_streams_max
        self._hot: OrderedDict[str, Stream] = OrderedDict()
        self._by_id: dict[StreamId, Stream] = {}
        self._purged_ids: set[StreamId] = set()
        """Dropped by the commit under way: the store may still have them."""
        self._removed: list[Stream] = []
        """The same, as they are until that commit is durable."""

    def find(self, bucket: str, name: str) -> Stream | None:
        """The stream of that name, soft-deleted and expired ones included."""
        key = f"{bucket}/{name}"
        stream = self._hot.get(key)
        if stream is not None:
            self._hot.move_to_end(key)
            return stream
        stored = self.store.get(keys.name(bucket, name))
        if stored is None:
            return None
        return self.load(StreamId(keys.unpack_id(stored)))

    def load(self, stream_id: StreamId) -> Stream | None:
        """The stream with that id, from memory or from its checkpoint and the runs after it."""
        stream = self._by_id.get(stream_id)
        if stream is None:
            stream = self._restore(stream_id)
            if stream is not None:
                self._remember(stream)
        return stream

    def peek(self, stream_id: StreamId) -> Stream | None:
        """The same for a look at many streams: those that are not in memory stay out of it.

        What it returns must not be kept: it learns nothing of later commands. A stream that the
        commit under way removes is still there.
        """
        if stream_id in self._purged_ids:
            return next((s for s in self._removed if s.state.id == stream_id), None)
        return self._by_id.get(stream_id) or self._restore(stream_id, glance=True)

    def _restore(self, stream_id: StreamId, *, glance: bool = False) -> Stream | None:
        """A glance takes it that no run follows the checkpoint when none does so directly."""
        stored = self.store.get(keys.state(stream_id))
        if stored is None or stream_id in self._purged_ids:
            return None
        state = decode_state(stored)
        runs = []
        start, end = keys.run(stream_id, state.tail_seq), keys.run_end(stream_id)
        no_run = glance and self.store.get(start) is None  # a filter answers faster than a scan
        for key, value in () if no_run else self.store.scan(start, end):
            run = Run(keys.split_run(key)[1], value)
            if run.first != state.tail_seq or run.bytes_before != state.tail_byte:
                raise Corruption(f"records are missing before a run. first_seq={run.first}")
            _replay(state, run)
            runs.append((run.first, run.stored_bytes))
        stream = Stream(state)
        stream.runs = Pieces(runs)
        stream.checkpoint_bytes = len(stored)
        stream.accessed_at_ms = _credited_access_ms(state)
        return stream

    def _remember(self, stream: Stream) -> None:
        self._by_id[stream.state.id] = stream
        self._hot[stream.state.key] = stream
        while len(self._hot) > self.hot_streams_max:
            if not self._evict_one(newest=stream):
                break

    def _evict_one(self, newest: Stream) -> bool:
        """Forget the stream unused for longest. Everything about it is in the store.

        Never the newest: whoever asked for it is about to change it.
        """
        for _ in range(min(len(self._hot), 64)):
            key, stream = self._hot.popitem(last=False)
            if stream is not newest and stream.idle and not _touch_is_owed(stream):
                del self._by_id[stream.state.id]
                return True
            self._hot[key] = stream
        return False

    def hot_streams(self) -> int:
        return len(self._hot)

    def names(self, bucket: str, prefix: str = "", after: str = "") -> Iterator[str]:
        """Stream names of a bucket in order, those kept only for their forks included."""
        start = keys.name(bucket, prefix)
        end = keys.name(bucket, prefix) + b"\xff" * 8
        if after:
            start = max(start, keys.name(bucket, after) + b"\0")
        for key, _ in self.store.scan(start, end):
            yield keys.split_name(key)[1]

    def read_run(self, owner: StreamId, seq: SeqNum) -> Run:
        """The run that holds record `seq` of the stream that wrote it, applied or durable."""
        stream = self._by_id.get(owner)
        if stream is not None:
            for builder in stream.builders:
                if builder.first <= seq < builder.first + builder.count:
                    return Run(builder.first, builder.encode())
        found = self.store.last_before(keys.run(owner, seq), keys.run(owner, SeqNum(0)))
        if found is None:
            raise Corruption(f"a record is missing. stream_id={owner} seq={seq}")
        run = Run(keys.split_run(found[0])[1], found[1])
        if seq >= run.end:
            raise Corruption(f"a record is missing. stream_id={owner} seq={seq}")
        return run

    def read_runs(self, owner: StreamId, seq: SeqNum, end: SeqNum, size_max: int) -> list[Run]:
        """The durable runs with the records from `seq` on: up to `end`, or about `size_max` bytes.

        One walk over the store instead of a search for each run.
        """
        found: list[Run] = []
        size = 0
        for key, value in self.store.scan(keys.run(owner, seq), keys.run(owner, end)):
            first = keys.split_run(key)[1]
            if first != (found[-1].end if found else seq):
                break
            found.append(Run(first, value))
            size += len(value)
            if size >= size_max:
                break
        # Not the first record of a run, or not any more: packing joins runs.
        return found or [self.read_run(owner, seq)]


def _replay(state: StreamState, run: Run) -> None:
    """Bring a checkpoint forward over one run."""
    state.tail_seq = run.end
    state.tail_byte = ByteOffset(run.bytes_before + run.shown_bytes())
    state.tail_message = run.messages_before + run.message_count()
    state.last_time_ms = TimestampMs(run.last_time_ms)
    changes = run.changes()
    if changes is not None:
        state.replay(changes)
    if changes is not None and changes.written is not None:
        state.note_written(run.first, changes.written)
    else:
        state.touch(state.last_time_ms)


def _touch_is_owed(stream: Stream) -> bool:
    """Was it read later than a stream loaded anew would be given credit for?"""
    return stream.accessed_at_ms > _credited_access_ms(stream.state)


def _credited_access_ms(state: StreamState) -> TimestampMs:
    """Reads renew the TTL on disk only now and then; nothing may expire early for that."""
    grace_ms = (state.ttl_s or 0) * 1000 // TTL_TOUCH_FRACTION
    return TimestampMs(state.touched_at_ms + grace_ms)
