"""One shard: applies commands to streams, in order, and gathers what each commit must write.

Synchronous and deterministic: what it decides depends on the commands and the store alone, never
on time, threads or who waits. The committer drives it: `apply` each command, `seal` the batch,
and after the sync `settle`, which is when readers may see the effects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from headwater.core import append, lifecycle, provisioning
from headwater.core.append import Appended, SeriesAppended
from headwater.core.buckets import BucketConfig
from headwater.core.command_records import CommandRecord, find_commands
from headwater.core.commands import (
    Append,
    AppendRecords,
    AppendSeries,
    Command,
    Create,
    Delete,
    Expire,
    Provision,
    PublishSnapshot,
    Reconfigure,
    Retain,
    SaveDocument,
    SetAttributes,
    Touch,
    Trim,
    TrimToSnapshot,
)
from headwater.core.errors import (
    BucketNotFound,
    Corruption,
    HeadwaterError,
    StreamGone,
    StreamNotFound,
)
from headwater.core.lifecycle import Created
from headwater.core.limits import LIFETIME_MS_MAX
from headwater.core.provisioning import BucketProvisioned, Provisioned, Result
from headwater.core.records import RecordHeaders
from headwater.core.snapshots import judge_snapshot, judge_trim
from headwater.core.stream import StreamState, WriterChanges, encode_state
from headwater.core.stream_config import StreamConfig
from headwater.core.types import Position, SeqNum, StreamId, TimestampMs
from headwater.engine import effects
from headwater.engine.bucket_commands import BucketCommands
from headwater.engine.buckets import Buckets
from headwater.engine.effects import Effect
from headwater.engine.forks import find_fork_point
from headwater.engine.staging import Times, stage
from headwater.engine.streams import Stream, Streams
from headwater.engine.tally import Tally
from headwater.storage import keys
from headwater.storage.packing import Pieces
from headwater.storage.runs import RunBuilder
from headwater.storage.store import Batch, Store

TRIM_DELAY_MS = 5000
"""How long the records that a command record trims stay. Writers send the last data, a fence and
a trim over all of it in one go, and live readers must see the data nonetheless."""
DROPPED_KEYS_MAX = 512
"""More runs than this are dropped as a range: cheaper to write, dearer for later reads."""
RUN_OVERHEAD_BYTES = 64
"""About what a small run costs besides its columns."""

Outcome = (
    Created
    | Appended
    | SeriesAppended
    | Provisioned
    | BucketProvisioned
    | StreamConfig
    | BucketConfig
    | bool
    | None
)


class Shard(Streams):
    """The streams, and the commands that change them."""

    def __init__(self, store: Store, *, number: int = 0, hot_streams_max: int = 100_000) -> None:
        super().__init__(store, hot_streams_max)
        self.unsettled: set[str] = set()
        """Names created or removed by the commit under way: readers of these wait for it."""
        self.appends_total = 0
        self.append_bytes_total = 0
        """Accepted since the start, repeats not counted."""
        self.tally = Tally(lambda bucket: self.buckets.find(bucket) is not None)
        self._number = number
        self._touched: list[Stream] = []
        self._effects: list[Effect] = []
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
            AppendSeries: self._append_series,
            SetAttributes: self._set_attributes,
            PublishSnapshot: self._publish_snapshot,
            TrimToSnapshot: self._trim_to_snapshot,
            Provision: self._provision,
            Reconfigure: self._reconfigure,
        }
        self.buckets = Buckets(store, self._states_after)
        self.buckets.load()
        commands = BucketCommands(
            self.buckets,
            add_effect=lambda effect: self._effects.append(effect),
            has_streams=self._has_streams,
        )
        self._apply.update(commands.handlers())

    # -- applying commands

    def apply(self, command: Command) -> Outcome:
        """Decide one command and take over its effects. Raises the errors of core."""
        return self._apply[type(command)](command)

    def _append(self, command: Append) -> Appended:
        stream = self._writable(command)
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
            first_seq, runs, seals = state.tail_seq, max(0, len(stream.builders) - 1), None
            if command.sealed is None:
                self.append_bytes_total += len(command.body)
            else:
                self.append_bytes_total += command.sealed.size
                seals = command.sealed.headers
            self._stage(stream, messages, max(command.at_ms, state.last_time_ms), seals)
            if state.written:
                self._note_written(stream, runs, first_seq, command.at_ms)
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
        commands: dict[int, CommandRecord] = {}
        if command.commands and command.headers is not None:
            commands = find_commands(command.bodies, command.headers)
        stream = self._writable(command)
        state, claim = stream.state, command.producer
        bodies = append.judge_records(state, command, commands)
        if bodies is None:
            return append.acknowledge(state, claim, repeat=True, added=False)
        times = append.stamp(state, command)
        size = sum(map(len, bodies))
        self.buckets.check_room(state.bucket, size=size)
        self._mark(stream)
        first_seq, messages = state.tail_seq, state.tail_message
        self.appends_total += 1
        self.append_bytes_total += size
        runs = max(0, len(stream.builders) - 1)
        self._stage(stream, bodies, times, command.headers, commands, whole=command.commands)
        state.touch(command.at_ms)
        if isinstance(times, list) or state.written:
            self._note_written(stream, runs, first_seq, command.at_ms)
        if claim is not None:
            append.note_writer(
                state,
                _changes_of(stream.builders[-1]),
                command.at_ms,
                claim=claim,
                stream_seq=None,
                close=False,
            )
        if commands:
            self._note_commands(stream, commands, first_seq, command.at_ms)
        return append.acknowledge(
            state,
            claim,
            repeat=False,
            added=True,
            first_seq=first_seq,
            first_time_ms=times if isinstance(times, int) else times[0],
            count=state.tail_message - messages,
        )

    def _append_series(self, command: AppendSeries) -> SeriesAppended:
        appended: list[Appended] = []
        try:
            if command.stream_id not in (None, self._live(command).state.id):
                raise StreamNotFound(command.name)
            # One by one: what was added before a refusal stays.
            appended.extend(map(self._append_records, command.parts))
        except HeadwaterError as error:
            return SeriesAppended(appended, error.with_traceback(None))
        return SeriesAppended(appended, None)

    def _note_written(
        self, stream: Stream, runs: int, first_seq: SeqNum, at_ms: TimestampMs
    ) -> None:
        """The times of this append's records need not tell when they were written: in all its
        runs, which come after the first so many, say it."""
        mark = (stream.state.tail_seq, at_ms)
        stream.state.note_written(first_seq, mark)
        for builder in stream.builders[runs:]:
            _changes_of(builder).written = mark

    def _note_commands(
        self,
        stream: Stream,
        commands: Mapping[int, CommandRecord],
        first_seq: SeqNum,
        at_ms: TimestampMs,
    ) -> None:
        changes = _changes_of(stream.builders[-1])
        append.note_commands(stream.state, changes, commands, first_seq, at_ms)
        if changes.trim is not None:
            self._look_at(stream, TimestampMs(at_ms + TRIM_DELAY_MS))

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

    def _writable(self, command: Command) -> Stream:
        stream = self._live(command)
        if self.buckets.deleting:
            self.buckets.check_kept(command.bucket)
        return stream

    def _mark(self, stream: Stream) -> None:
        if not stream.touched_in_commit:
            stream.touched_in_commit = True
            self._touched.append(stream)

    def _stage(
        self,
        stream: Stream,
        bodies: list[bytes],
        times: Times,
        headers: Sequence[RecordHeaders] | None = None,
        commands: Collection[int] = (),
        *,
        whole: bool = False,
    ) -> None:
        """Add messages to the run that the commit will write."""
        state = stream.state
        before = state.tail_byte
        stage(stream, bodies, times, headers, commands, whole=whole)
        size = state.tail_byte - before
        self.tally.append(state.bucket, state.storage_class, size)
        if self.buckets.usage:
            self.buckets.add(state, size=size)

    def _create(self, command: Create) -> Created:
        existing = self.find(command.bucket, command.name)
        if existing is not None and _keeps_name(existing.state, command.at_ms):
            return self._confirm(existing, command)
        stream = self._new_stream(command)
        self._enlist(stream, existing)
        return _created(stream.state, command, new=True)

    def _enlist(self, stream: Stream, replaced: Stream | None) -> None:
        """Give a new stream its name, which one that has expired may have had."""
        state = stream.state
        if replaced is not None:
            self._purge(replaced)
        made = self.buckets.first_use(state.bucket, state.created_at_ms)
        if made is not None:
            self._effects.append(made)
        self._remember(stream)
        self._mark(stream)
        self.unsettled.add(state.key)
        stream.dirty = True
        self._effects.append(effects.put_name(state))
        for owner in sorted(state.owners()):
            source = self.load(owner)
            assert source is not None
            source.state.references += 1
            source.dirty = True
            self._mark(source)

    def _provision(self, command: Provision) -> Provisioned:
        if self.buckets.find(command.bucket) is None:
            raise BucketNotFound(command.bucket)
        self.buckets.check_kept(command.bucket)
        existing = self.find(command.bucket, command.name)
        if existing is not None and _keeps_name(existing.state, command.at_ms):
            stream, result = existing, provisioning.judge_provision(existing.state, command)
            if result is Result.UPDATED:
                self._reconfigured(stream, command.at_ms)
        else:
            self.buckets.check_room(command.bucket, streams=1)
            result = Result.CREATED
            stream = Stream(provisioning.provisioned_stream(command, self._take_id()))
            self.buckets.add(stream.state, streams=1)
            self._enlist(stream, existing)
        state = stream.state
        return Provisioned(result, state.id, state.created_at_ms, state.cipher)

    def _reconfigure(self, command: Reconfigure) -> StreamConfig:
        stream = self._live(command)
        if provisioning.configure(stream.state, command.config):
            self._reconfigured(stream, command.at_ms)
        return provisioning.config_of(stream.state)

    def _reconfigured(self, stream: Stream, at_ms: TimestampMs) -> None:
        """What is kept may have changed: have it looked at soon."""
        stream.dirty = True
        self._mark(stream)
        self._look_at(stream, at_ms)

    def _look_at(self, stream: Stream, at_ms: TimestampMs) -> None:
        """Have the sweeper look at a stream when this time has come."""
        key = keys.deadline(TimestampMs(min(at_ms, LIFETIME_MS_MAX)), stream.state.id)
        self._effects.append(lambda batch: batch.put(key, b""))

    def _take_id(self) -> StreamId:
        self._next_id += 1
        return StreamId(self._number << keys.SHARD_SHIFT | self._next_id - 1)

    def _confirm(self, existing: Stream, command: Create) -> Created:
        if lifecycle.judge_existing(existing.state, command):
            existing.dirty = True
            self._mark(existing)
        return _created(existing.state, command, new=False)

    def _new_stream(self, command: Create) -> Stream:
        """Everything that may be refused comes first, so that a refusal changes nothing."""
        self.buckets.check_kept(command.bucket)
        if command.fork is None:
            state = lifecycle.new_stream(command, StreamId(0))
        else:
            found = self.find(command.fork.bucket, command.fork.name)
            if found and found.state.is_expired(command.at_ms) and not found.state.references:
                found = None  # Not swept yet, but there is nothing that keeps it.
            source = lifecycle.judge_source(found.state if found else None, command)
            point = find_fork_point(self, source, command.fork)
            state = lifecycle.forked_stream(command, StreamId(0), source, point)
        messages = lifecycle.first_messages(state, command)
        inherited = state.tail_byte - state.first_byte
        self.buckets.check_room(state.bucket, streams=1, size=inherited + sum(map(len, messages)))

        state.id = self._take_id()
        self.buckets.add(state, streams=1, size=inherited)
        stream = Stream(state)
        if messages:
            seals = None if command.sealed is None else command.sealed.headers
            self._stage(stream, messages, max(command.at_ms, state.last_time_ms), seals)
            if state.written:
                self._note_written(stream, 0, state.own_first_seq, command.at_ms)
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
        if stream is None or stream.state.deleted:
            return
        if stream.state.is_expired(command.at_ms) or stream.state.is_abandoned(command.at_ms):
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
        self.buckets.add(state, streams=-1, size=state.first_byte - state.tail_byte)
        stream.dirty = False
        stream.purged = True
        stream.builders.clear()
        self._hot.pop(state.key, None)
        self._by_id.pop(state.id, None)
        self._purged_ids.add(state.id)
        self._removed.append(stream)
        self.unsettled.add(state.key)
        self._effects.append(effects.drop_stream(state))
        for owner in sorted(state.owners()):
            source = self.load(owner)
            assert source is not None
            source.state.references -= 1
            source.dirty = True
            self._mark(source)
            if source.state.deleted and not source.state.references:
                self._purge(source)
            else:
                self._free_trimmed(source)

    def _touch(self, command: Touch) -> None:
        stream = self.find(command.bucket, command.name)
        if stream is not None and not stream.state.deleted:
            stream.state.touch(command.at_ms)
            stream.dirty = True
            self._mark(stream)

    def _retain(self, command: Retain) -> None:
        stream = self._live(command)
        stream.state.retention = command.retention
        self._reconfigured(stream, command.at_ms)

    def _trim(self, command: Trim) -> None:
        """Forget records. Those that forks read stay on disk, but no reader of this stream
        reaches them any more."""
        stream = self.find(command.bucket, command.name)
        if stream is None or stream.state.deleted:
            return
        state, to = stream.state, command.to
        if command.stream_id is not None and command.stream_id != state.id:
            return
        if not state.first_seq < to.seq <= stream.tail.seq:
            return
        self.buckets.add(state, size=state.first_byte - to.byte)
        state.forget_before(to)
        if state.delete_on_empty_s and to.seq == state.tail_seq:
            idle_ms = state.delete_on_empty_s * 1000
            self._look_at(stream, TimestampMs(state.written_at_ms + idle_ms))
        if state.snapshot is not None and state.snapshot.at.seq < to.seq:
            # What it stands for no longer meets what is retained.
            self._effects.append(effects.drop_upload(state.snapshot.upload))
            state.snapshot = None
        stream.dirty = True
        self._mark(stream)
        self._free_trimmed(stream)

    def _free_trimmed(self, stream: Stream) -> None:
        """Remove the records that a stream has forgotten, unless there are forks."""
        state, first = stream.state, stream.state.first_seq
        if state.references or first <= state.own_first_seq:
            return
        keep = self._run_start(stream, first)
        state.partial_chunks = [piece for piece in state.partial_chunks if piece[0] >= keep]
        stream.runs = Pieces(piece for piece in stream.runs if piece[0] >= keep)
        self._effects.append(lambda batch: self._drop_runs(batch, stream, first))

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
            self._effects.append(effects.drop_upload(state.snapshot.upload))
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

    def _has_streams(self, bucket: str) -> bool:
        """As of the last command, those kept for their forks included."""
        if any(s.state.bucket == bucket and not s.purged for s in self._touched):
            return True
        prefix = keys.name(bucket, "")
        stored = (keys.unpack_id(value) for _, value in self.store.scan(prefix, prefix + b"\xff"))
        return any(stream_id not in self._purged_ids for stream_id in stored)

    def _states_after(self, bucket: str, after: str) -> Iterator[StreamState]:
        """The stored streams of a bucket whose names are after one, in their order."""
        end = keys.name(bucket, "") + b"\xff"
        start = keys.name(bucket, after) + (b"\0" if after else b"")
        for _, value in self.store.scan(start, end):
            try:
                found = self.peek(StreamId(keys.unpack_id(value)))
            except Corruption:
                continue  # whoever reads it learns of it
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
                stream.tail_time_ms = state.last_time_ms
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


def _keeps_name(state: StreamState, at_ms: TimestampMs) -> bool:
    """May no other stream have its name?"""
    return bool(state.references) or state.deleted or not state.is_expired(at_ms)


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
        message_next=state.tail_message if state.json else None,
    )
