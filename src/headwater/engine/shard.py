"""One shard: applies commands to streams, in order, and gathers what each commit must write.

Synchronous and deterministic: what it decides depends on the commands and the store alone, never
on time, threads or who waits. The committer drives it: `apply` each command, `seal` the batch,
and after the sync `settle`, which is when readers may see the effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

import msgspec

from headwater.core import append, jsonmode, lifecycle, records
from headwater.core.append import Appended
from headwater.core.buckets import BucketConfig
from headwater.core.commands import (
    Append,
    AppendRecords,
    Command,
    Create,
    Delete,
    DropBucket,
    Expire,
    PublishSnapshot,
    PutBucket,
    Retain,
    SaveDocument,
    SetAttributes,
    Touch,
    Trim,
    TrimToSnapshot,
)
from headwater.core.errors import Conflict, NotFound, StreamGone, StreamNotFound
from headwater.core.lifecycle import Created
from headwater.core.limits import KIB, RECORD_BODY_BYTES_MAX
from headwater.core.names import DURABLE_STREAMS_BUCKET
from headwater.core.snapshots import judge_snapshot, judge_trim
from headwater.core.stream import StreamState, WriterChanges, encode_state
from headwater.core.types import ByteOffset, Position, SeqNum, StreamId, TimestampMs
from headwater.engine.buckets import Buckets
from headwater.engine.forks import find_fork_point
from headwater.engine.streams import Stream, Streams
from headwater.storage import keys
from headwater.storage.packing import Pieces
from headwater.storage.runs import RecordHeaders, RunBuilder
from headwater.storage.store import Batch, Store

RUN_BYTES_MAX = 512 * KIB
"""A commit that adds more than this to one stream writes several runs, so that reads stay small."""
DROPPED_KEYS_MAX = 512
"""More runs than this are dropped as a range: cheaper to write, dearer for later reads."""
RUN_OVERHEAD_BYTES = 64
"""About what a small run costs besides its columns."""

Outcome = Created | Appended | bool | None


class Shard(Streams):
    """The streams, and the commands that change them."""

    def __init__(self, store: Store, *, number: int = 0, hot_streams_max: int = 100_000) -> None:
        super().__init__(store, hot_streams_max)
        self.unsettled: set[str] = set()
        """Names created or removed by the commit under way: readers of these wait for it."""
        self.appends_total = 0
        self.append_bytes_total = 0
        """Accepted since the start, repeats not counted."""
        self._number = number
        self._touched: list[Stream] = []
        self._effects: list[Callable[[Batch], None]] = []
        self._next_id = 1
        stored = store.get(keys.NEXT_ID)
        if stored is not None:
            self._next_id = keys.unpack_id(stored)
        self._next_id_stored = self._next_id
        self._apply: dict[type[Command], Callable[[Any], Outcome]] = {
            Append: self._append,
            Create: self._create,
            Delete: self._delete,
            Touch: self._touch,
            Expire: self._expire,
            SaveDocument: self._save_document,
            Retain: self._retain,
            Trim: self._trim,
            AppendRecords: self._append_records,
            SetAttributes: self._set_attributes,
            PublishSnapshot: self._publish_snapshot,
            TrimToSnapshot: self._trim_to_snapshot,
            PutBucket: self._put_bucket,
            DropBucket: self._drop_bucket,
        }
        self.buckets = Buckets(store, self._states_of)
        self.buckets.load()

    # -- applying commands

    def apply(self, command: Command) -> Outcome:
        """Decide one command and take over its effects. Raises the errors of core."""
        return self._apply[type(command)](command)

    def _append(self, command: Append) -> Appended:
        stream = self._live(command)
        state = stream.state
        if command.part_of is not None and command.part_of != state.id:
            raise StreamNotFound(command.name)
        messages = append.judge_append(state, command)
        if messages is None:
            return append.acknowledge(state, command.producer, repeat=True, added=False)
        if self.buckets.usage:
            self.buckets.check_room(state.bucket, size=sum(map(len, messages)))
        self._mark(stream)
        if messages:
            self.appends_total += 1
            self.append_bytes_total += len(command.body)
            self._stage(stream, messages, command.at_ms)
        else:
            stream.dirty = True
        state.touch(command.at_ms)
        if command.producer is not None or command.stream_seq is not None or command.close:
            changes = _changes_of(stream.builders[-1]) if messages else WriterChanges()
            append.note_writer(
                state,
                changes,
                command.at_ms,
                claim=command.producer,
                stream_seq=command.stream_seq,
                close=command.close,
            )
        count = len(messages)
        return append.acknowledge(
            state, command.producer, repeat=False, added=count > 0, count=count
        )

    def _append_records(self, command: AppendRecords) -> Appended:
        stream = self._live(command)
        state, claim = stream.state, command.producer
        bodies = append.judge_records(state, command)
        if bodies is None:
            return append.acknowledge(state, claim, repeat=True, added=False)
        self.buckets.check_room(state.bucket, size=sum(map(len, bodies)))
        self._mark(stream)
        first_seq = state.tail_seq
        self.appends_total += 1
        self.append_bytes_total += sum(map(len, bodies))
        self._stage(stream, bodies, command.at_ms, command.headers)
        state.touch(command.at_ms)
        if claim is not None:
            changes = _changes_of(stream.builders[-1])
            append.note_writer(
                state, changes, command.at_ms, claim=claim, stream_seq=None, close=False
            )
        return append.acknowledge(
            state, claim, repeat=False, added=True, first_seq=first_seq, count=len(bodies)
        )

    def _live(self, command: Command) -> Stream:
        stream = self.find(command.bucket, command.name)
        if stream is None:
            raise StreamNotFound(command.name)
        state = stream.state
        if state.deleted or (state.references and state.is_expired(command.at_ms)):
            raise StreamGone(command.name)
        if state.is_expired(command.at_ms):
            raise StreamNotFound(command.name)
        return stream

    def _mark(self, stream: Stream) -> None:
        if not stream.touched_in_commit:
            stream.touched_in_commit = True
            self._touched.append(stream)

    def _stage(
        self,
        stream: Stream,
        messages: list[bytes],
        at_ms: TimestampMs,
        headers: Iterable[RecordHeaders] | None = None,
    ) -> None:
        """Add messages to the run that the commit will write, each with its headers if any."""
        state = stream.state
        if self.buckets.usage:
            self.buckets.add(state.bucket, size=sum(map(len, messages)))
        time_ms = max(at_ms, state.last_time_ms)
        builder = stream.builders[-1] if stream.builders else self._open_run(stream)
        flags = records.APPEND_START
        for message, own in zip(messages, headers or repeat(())):  # noqa: B905 (no end)
            if builder.stored_bytes >= RUN_BYTES_MAX:
                builder = self._open_run(stream)
            if len(message) <= RECORD_BODY_BYTES_MAX:
                builder.add(message, flags, time_ms, own)
                state.tail_seq = SeqNum(state.tail_seq + 1)
            else:
                parts = records.split_message(message)
                for part in parts[:-1]:
                    builder.add(part, flags | records.CONTINUES, time_ms, own)
                    flags, own = 0, ()
                builder.add(parts[-1], 0, time_ms)
                state.tail_seq = SeqNum(state.tail_seq + len(parts))
            flags = 0
            state.tail_byte = ByteOffset(state.tail_byte + len(message))
            state.tail_message += 1
        state.last_time_ms = TimestampMs(time_ms)

    def _open_run(self, stream: Stream) -> RunBuilder:
        state = stream.state
        builder = RunBuilder(state.tail_seq, state.tail_byte, state.tail_message, json=state.json)
        stream.builders.append(builder)
        return builder

    def _create(self, command: Create) -> Created:
        existing = self.find(command.bucket, command.name)
        if existing is not None:
            state = existing.state
            if state.references or state.deleted or not state.is_expired(command.at_ms):
                return self._confirm(existing, command)
        stream = self._new_stream(command)
        if existing is not None:
            self._purge(existing)
        state = stream.state
        made = self.buckets.first_use(state.bucket, command.at_ms)
        if made is not None:
            self._effects.append(made)
        self._remember(stream)
        self._mark(stream)
        self.unsettled.add(state.key)
        stream.dirty = True
        self._effects.append(_put_name(state))
        for owner in sorted(state.owners()):
            source = self.load(owner)
            assert source is not None
            source.state.references += 1
            source.dirty = True
            self._mark(source)
        return _created(state, command, new=True)

    def _confirm(self, existing: Stream, command: Create) -> Created:
        if lifecycle.judge_existing(existing.state, command):
            existing.dirty = True
            self._mark(existing)
        return _created(existing.state, command, new=False)

    def _new_stream(self, command: Create) -> Stream:
        """Everything that may be refused comes first, so that a refusal changes nothing."""
        if command.fork is None:
            state = lifecycle.new_stream(command, StreamId(0))
        else:
            found = self.find(command.fork.bucket, command.fork.name)
            if found and found.state.is_expired(command.at_ms) and not found.state.references:
                found = None  # Not swept yet, but there is nothing that keeps it.
            source = lifecycle.judge_source(found.state if found else None, command)
            point = find_fork_point(self, source, command.fork)
            state = lifecycle.forked_stream(command, StreamId(0), source, point)
        messages = []
        if command.body:
            messages = jsonmode.flatten(command.body) if state.json else [command.body]
        inherited = state.tail_byte - state.first_byte
        self.buckets.check_room(state.bucket, streams=1, size=inherited + sum(map(len, messages)))

        state.id = StreamId(self._number << keys.SHARD_SHIFT | self._next_id)
        self._next_id += 1
        self.buckets.add(state.bucket, streams=1, size=inherited)
        stream = Stream(state)
        if messages:
            self._stage(stream, messages, command.at_ms)
        append.note_writer(
            state,
            WriterChanges(),
            command.at_ms,
            claim=command.producer,
            stream_seq=command.stream_seq,
            close=command.closed,
        )
        state.created_tail_seq = state.tail_seq
        return stream

    def _delete(self, command: Delete) -> None:
        self._remove(self._live(command))

    def _expire(self, command: Expire) -> None:
        stream = self.find(command.bucket, command.name)
        if stream is None or stream.state.deleted or not stream.state.is_expired(command.at_ms):
            return
        self._remove(stream)

    def _remove(self, stream: Stream) -> None:
        """Free the name, or keep the stream for its forks until the last of them is gone."""
        self.unsettled.add(stream.state.key)
        if stream.state.references:
            stream.state.deleted = True
            stream.dirty = True
            self._mark(stream)
        else:
            self._purge(stream)

    def _purge(self, stream: Stream) -> None:
        """Drop a stream that nothing reads, then the soft-deleted ones it was the last to need."""
        state = stream.state
        self.buckets.add(state.bucket, streams=-1, size=state.first_byte - state.tail_byte)
        stream.dirty = False
        stream.purged = True
        stream.builders.clear()
        self._hot.pop(state.key, None)
        self._by_id.pop(state.id, None)
        self._purged_ids.add(state.id)
        self._removed.append(stream)
        self.unsettled.add(state.key)
        self._effects.append(_drop_stream(state))
        for owner in sorted(state.owners()):
            source = self.load(owner)
            assert source is not None
            source.state.references -= 1
            source.dirty = True
            self._mark(source)
            if source.state.deleted and not source.state.references:
                self._purge(source)

    def _touch(self, command: Touch) -> None:
        stream = self.find(command.bucket, command.name)
        if stream is not None and not stream.state.deleted:
            stream.state.touch(command.at_ms)
            stream.dirty = True
            self._mark(stream)

    def _retain(self, command: Retain) -> None:
        stream = self._live(command)
        stream.state.retention = command.retention
        stream.dirty = True
        self._mark(stream)
        key = keys.deadline(command.at_ms, stream.state.id)
        self._effects.append(lambda batch: batch.put(key, b""))  # have it looked at soon

    def _trim(self, command: Trim) -> None:
        """Forget records. Those that forks read stay on disk, but no reader of this stream
        reaches them any more."""
        stream = self.find(command.bucket, command.name)
        if stream is None or stream.state.deleted:
            return
        state, to = stream.state, command.to
        if not state.first_seq < to.seq <= stream.tail.seq:
            return
        self.buckets.add(state.bucket, size=state.first_byte - to.byte)
        state.first_seq, state.first_byte = to
        stream.dirty = True
        self._mark(stream)
        if state.references or to.seq <= state.own_first_seq:
            return
        keep = self._run_start(stream, to.seq)
        state.partial_chunks = [piece for piece in state.partial_chunks if piece[0] >= keep]
        stream.runs = Pieces(piece for piece in stream.runs if piece[0] >= keep)
        self._effects.append(lambda batch: self._drop_runs(batch, stream, to.seq))

    def _run_start(self, stream: Stream, seq: SeqNum) -> SeqNum:
        """The first record of the run that holds `seq`; `seq` itself at the tail."""
        if seq >= stream.tail.seq:
            return seq
        return self.read_run(stream.state.id, seq).first

    def _drop_runs(self, batch: Batch, stream: Stream, seq: SeqNum) -> None:
        """Drop the runs before the one that holds `seq`.

        Which one that is, is asked only now: while the store was busy, packing may have joined it
        with those before it.
        """
        stream_id = stream.state.id
        start = keys.run(stream_id, SeqNum(0))
        stop = keys.run(stream_id, self._run_start(stream, seq))
        for count, (key, _) in enumerate(self.store.scan(start, stop)):
            batch.delete(key)
            if count >= DROPPED_KEYS_MAX:
                batch.delete_range(start, stop)
                return

    def _save_document(self, command: SaveDocument) -> None:
        key, value = keys.document(command.bucket, command.name), command.value
        if value is None:
            self._effects.append(lambda batch: batch.delete(key))
        else:
            self._effects.append(lambda batch: batch.put(key, value))

    def _set_attributes(self, command: SetAttributes) -> None:
        stream = self._live(command)
        stream.state.attributes = command.attributes
        stream.dirty = True
        self._mark(stream)

    def _publish_snapshot(self, command: PublishSnapshot) -> bool:
        """Returns whether it was taken over; if not, its bytes are of no use."""
        stream = self._live(command)
        state, offered = stream.state, command.snapshot
        if state.id != command.stream_id:
            raise StreamNotFound(command.name)
        if not judge_snapshot(state, offered, command.match):
            return False
        if state.snapshot is not None:
            self._effects.append(_drop_upload(state.snapshot.upload))
        state.snapshot = offered
        stream.dirty = True
        self._mark(stream)
        marker = keys.unpublished(offered.upload)
        self._effects.append(lambda batch: batch.delete(marker))
        return True

    def _trim_to_snapshot(self, command: TrimToSnapshot) -> None:
        state = self._live(command).state
        judge_trim(state, command.to)
        self._trim(Trim(state.bucket, state.name, command.at_ms, command.to))

    # -- buckets

    def _put_bucket(self, command: PutBucket) -> bool:
        """Returns whether it is new."""
        known = self.buckets.find(command.bucket)
        if known is None or command.config is not None:
            config = command.config or BucketConfig()
            config = msgspec.structs.replace(config, created_at_ms=command.at_ms)
            self._effects.append(self.buckets.put(command.bucket, config))
        return known is None

    def _drop_bucket(self, command: DropBucket) -> None:
        bucket = command.bucket
        if self.buckets.find(bucket) is None:
            raise NotFound(f"no such bucket. bucket={bucket}")
        if bucket == DURABLE_STREAMS_BUCKET:
            raise Conflict(f"this bucket is always there. bucket={bucket}")
        if next(self._states_of(bucket), None) is not None:
            raise Conflict(f"the bucket has streams; delete them first. bucket={bucket}")
        self._effects.append(self.buckets.drop(bucket))

    def _states_of(self, bucket: str) -> Iterator[StreamState]:
        """The streams of a bucket as of the last command, those kept for their forks included."""
        made = {stream.state.id for stream in self._touched if stream.state.bucket == bucket}
        for stream in self._touched:
            if stream.state.id in made and not stream.purged:
                yield stream.state
        prefix = keys.name(bucket, "")
        for _, value in self.store.scan(prefix, prefix + b"\xff"):
            stream_id = StreamId(keys.unpack_id(value))
            if stream_id in made or stream_id in self._purged_ids:
                continue
            found = self.peek(stream_id)
            if found is not None:
                yield found.state

    # -- one commit

    def seal(self) -> Batch | None:
        """What the commands since the last `settle` have to write; None for nothing."""
        if not self._touched and not self._effects and not self._removed:
            return None
        batch = self.store.batch()
        for effect in self._effects:
            effect(batch)
        if self._next_id != self._next_id_stored:
            batch.put(keys.NEXT_ID, keys.pack_id(self._next_id))
        for stream in self._touched:
            for builder in stream.builders:
                batch.put(keys.run(stream.state.id, builder.first), builder.encode())
            if stream.dirty:
                batch.put(keys.state(stream.state.id), encode_state(stream.state))
        return batch

    def written(self) -> None:
        """The sealed batch is in the store: no checkpoint that packing took earlier may follow."""
        for stream in self._touched:
            if stream.dirty:
                stream.checkpoint_number += 1

    def settle(self) -> list[Stream]:
        """The batch is durable: show its effects. Returns the streams that changed."""
        for stream in self._touched:
            state = stream.state
            for builder in stream.builders:
                # A checkpoint of the same commit covers the run: nothing to replay, but still
                # something to pack.
                size = builder.stored_bytes + RUN_OVERHEAD_BYTES
                stream.runs.add(builder.first, size)
            stream.builders = []
            if not stream.purged:  # what a purged stream got in this commit was never written
                stream.tail = state.tail
                stream.tail_closed = state.closed
                stream.snapshot = state.snapshot
            stream.deleted = state.deleted
            stream.dirty = False
            stream.touched_in_commit = False
        for stream in self._removed:
            stream.gone = True
        changed = self._touched + self._removed
        self._next_id_stored = self._next_id
        self._touched, self._removed, self._effects = [], [], []
        self._purged_ids.clear()
        self.unsettled.clear()
        self.buckets.settle()
        return changed

    def document(self, collection: str, name: str) -> bytes | None:
        return self.store.get(keys.document(collection, name))

    def documents(self, collection: str) -> Iterator[tuple[str, bytes]]:
        start = keys.document(collection, "")
        for key, value in self.store.scan(start, keys.prefix_end(start)):
            yield keys.split_document(key)[1], value


def _changes_of(builder: RunBuilder) -> WriterChanges:
    """What the run will say about its writers; most runs have nothing to say."""
    if builder.changes is None:
        builder.changes = WriterChanges()
    return builder.changes


def _created(state: StreamState, command: Create, *, new: bool) -> Created:
    mark = state.producers.get(command.producer.id) if command.producer else None
    return Created(
        new=new,
        id=state.id,
        content_type=state.content_type,
        tail=Position(*state.tail),
        closed=state.closed,
        ttl_s=state.ttl_s,
        expires_at_ms=state.expires_at_ms,
        producer=mark,
    )


def _put_name(state: StreamState) -> Callable[[Batch], None]:
    name_key, stream_id = keys.name(state.bucket, state.name), state.id
    look_at_ms = state.deadline_ms
    if state.retention is not None and state.retention.age_s is not None:
        oldest_goes_ms = TimestampMs(state.created_at_ms + state.retention.age_s * 1000)
        look_at_ms = oldest_goes_ms if look_at_ms is None else min(look_at_ms, oldest_goes_ms)

    def effect(batch: Batch) -> None:
        batch.put(name_key, keys.pack_id(stream_id))
        if look_at_ms is not None:
            batch.put(keys.deadline(look_at_ms, stream_id), b"")

    return effect


def _drop_stream(state: StreamState) -> Callable[[Batch], None]:
    name_key, stream_id = keys.name(state.bucket, state.name), state.id
    snapshot = state.snapshot

    def effect(batch: Batch) -> None:
        batch.delete(name_key)
        batch.delete(keys.state(stream_id))
        batch.put(keys.garbage(stream_id), b"")
        if snapshot is not None:
            _drop_upload(snapshot.upload)(batch)

    return effect


def _drop_upload(upload: int) -> Callable[[Batch], None]:
    return lambda batch: batch.delete_range(keys.piece(upload, 0), keys.pieces_end(upload))
