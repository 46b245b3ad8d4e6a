"""Verify everything on disk: what is there is whole, and fits together. Changes nothing.

Checksums and order of every run, names and streams in both directions, what forks read from their
sources, snapshots, lifetimes, documents. One walk over the keys; what it remembers grows with the
number of forks, snapshots and lifetimes, not with the data.

Some records can be on disk without anybody reaching them: a crash that undoes packing (ADR 0004)
brings back runs that were trimmed or deleted as part of a chunk. They cost space and do no harm,
so they are counted, not reported.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

import msgspec

from headwater.core.buckets import decode_bucket
from headwater.core.errors import Corruption
from headwater.core.names import DURABLE_STREAMS_BUCKET
from headwater.core.snapshots import begin_digest
from headwater.core.stream import StreamState, decode_state
from headwater.core.types import SeqNum, StreamId
from headwater.storage import keys
from headwater.storage.runs import Run
from headwater.storage.store import Store

PROBLEMS_MAX = 1000
"""Beyond that many it is clear that something is wrong."""

Entry = tuple[bytes, bytes]
Interval = tuple[SeqNum, SeqNum]


class Findings(msgspec.Struct):
    """What was looked at, and what is wrong with it."""

    streams: int = 0
    runs: int = 0
    records: int = 0
    bytes: int = 0
    """Of runs, as they are stored."""
    snapshots: int = 0
    documents: int = 0
    unreachable_runs: int = 0
    unreachable_bytes: int = 0
    problems: list[str] = msgspec.field(default_factory=list)

    def report(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


def check_store(
    store: Store, progress: Callable[[Findings], None] = lambda found: None
) -> Findings:
    """Look at everything. `progress` is called now and then with what was found so far."""
    check = _Check(store, progress)
    check.run()
    return check.found


class _Check:
    def __init__(self, store: Store, progress: Callable[[Findings], None]) -> None:
        self.found = Findings()
        self._store = store
        self._progress = progress
        self._needs: dict[StreamId, list[Interval]] = defaultdict(list)
        """Records that forks read, by the stream that wrote them."""
        self._references: Counter[StreamId] = Counter()
        self._uploads: set[int] = set()
        self._looked_at: set[StreamId] = set()
        """Streams that the index of lifetimes has."""

    def run(self) -> None:
        self._check_facts()
        for key, _ in self._scan(keys.DEADLINE_PREFIX):
            self._looked_at.add(keys.split_deadline(key)[1])
        for state in self._states(report=True):
            self._note_fork(state)
        runs = _Runs(self._scan(keys.RUN_PREFIX))
        for state in self._states():
            self._pass_over(runs.before(state.id))
            self._check_stream(state, runs.of(state.id))
            self._progress(self.found)
        self._pass_over(runs.rest())
        self._check_names()
        self._check_uploads()
        self._check_documents()

    def _scan(self, prefix: bytes) -> Iterator[Entry]:
        return self._store.scan(prefix, keys.prefix_end(prefix))

    def _states(self, *, report: bool = False) -> Iterator[StreamState]:
        """Every stream that can be read, in the order of ids."""
        for key, value in self._scan(keys.STATE_PREFIX):
            stream_id = StreamId(keys.unpack_id(key[1:]))
            try:
                state = decode_state(value)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                if report:
                    self.found.report(
                        f"stream {stream_id:x}: its checkpoint is unreadable: {error}"
                    )
                continue
            yield state

    # -- the store

    def _check_facts(self) -> None:
        stored = self._store.get(keys.FORMAT)
        if stored != keys.STORE_FORMAT:
            self.found.report(f"the format is {stored!r}, not {keys.STORE_FORMAT!r}")
        self._check_next_id()

    def _check_next_id(self) -> None:
        last = self._store.last_before(keys.prefix_end(keys.STATE_PREFIX), keys.STATE_PREFIX)
        stored = self._store.get(keys.NEXT_ID)
        following = 1 if stored is None else keys.unpack_id(stored)
        counter = (1 << keys.SHARD_SHIFT) - 1
        if last is not None and keys.unpack_id(last[0][1:]) & counter >= following:
            self.found.report(f"the next id is in use already. next={following:x}")

    # -- streams

    def _note_fork(self, state: StreamState) -> None:
        for owner in state.owners():
            self._references[owner] += 1
        if state.deleted and not state.references:
            self.found.report(f"{_name(state)}: deleted, and nothing needs it")
        for extent in state.extents:
            first = SeqNum(max(extent.first, state.first_seq))
            if first < extent.end:
                self._needs[extent.owner].append((first, extent.end))

    def _check_stream(self, state: StreamState, runs: Iterable[Entry]) -> None:
        found, name = self.found, _name(state)
        found.streams += 1
        if self._references.pop(state.id, 0) != state.references:
            found.report(f"{name}: the number of its references is wrong")
        if state.deadline_ms is not None and not state.deleted and state.id not in self._looked_at:
            found.report(f"{name}: has a lifetime, and nothing will end it")
        needs = self._needs.pop(state.id, [])
        own = SeqNum(max(state.first_seq, state.own_first_seq))
        if not state.deleted and own < state.tail_seq:
            needs.append((own, state.tail_seq))
        lowest = min((first for first, _ in needs), default=state.tail_seq)
        segments = self._check_runs(name, state, runs, lowest)
        for first, end in needs:
            if not any(start <= first and end <= stop for start, stop in segments):
                found.report(f"{name}: records are missing between {first} and {end}")
        if state.snapshot is not None:
            self._check_snapshot(name, state)

    def _check_runs(
        self, name: str, state: StreamState, stored: Iterable[Entry], lowest: SeqNum
    ) -> list[Interval]:
        """The stretches of records that are there. Those before `lowest` are of no use."""
        segments: list[Interval] = []
        last: Run | None = None
        for key, value in stored:
            run = self._open(name, keys.split_run(key)[1], value)
            if run is None:
                continue
            if run.end <= lowest:
                self._leave_out(value)
                continue
            self._count(run)
            if last is None or run.first != last.end:
                if last is not None and run.first < last.end:
                    self.found.report(f"{name}: two runs have record {run.first}")
                segments.append((run.first, run.end))
            else:
                self._check_neighbours(name, last, run)
                segments[-1] = (segments[-1][0], run.end)
            if run.first < state.tail_seq < run.end:
                self.found.report(f"{name}: its checkpoint ends inside a run. seq={state.tail_seq}")
            last = run
        if last is not None and last.end > state.tail_seq and segments[-1][0] > state.tail_seq:
            self.found.report(f"{name}: records are missing after its checkpoint")
        return segments

    def _open(self, name: str, first: SeqNum, value: bytes) -> Run | None:
        try:
            run = Run(first, value)
            run.changes()
        except (Corruption, msgspec.DecodeError, UnicodeDecodeError) as error:
            self.found.report(f"{name}: {error}")
            return None
        return run

    def _check_neighbours(self, name: str, before: Run, run: Run) -> None:
        if run.bytes_before != before.bytes_before + before.shown_bytes():
            self.found.report(f"{name}: bytes do not add up before record {run.first}")
        if run.messages_before != before.messages_before + before.message_count():
            self.found.report(f"{name}: messages do not add up before record {run.first}")
        if int.from_bytes(run.times[:8], "little") < before.last_time_ms:
            self.found.report(f"{name}: record {run.first} is older than the one before it")

    def _count(self, run: Run) -> None:
        self.found.runs += 1
        self.found.records += run.count
        self.found.bytes += run.stored_bytes
        if self.found.runs % 1000 == 0:
            self._progress(self.found)

    def _leave_out(self, value: bytes) -> None:
        self.found.unreachable_runs += 1
        self.found.unreachable_bytes += len(value)

    def _pass_over(self, stored: Iterable[Entry]) -> None:
        """Runs of streams that are not there any more."""
        for _, value in stored:
            self._leave_out(value)

    def _check_snapshot(self, name: str, state: StreamState) -> None:
        snapshot = state.snapshot
        assert snapshot is not None
        self.found.snapshots += 1
        self._uploads.add(snapshot.upload)
        digest, size = begin_digest(snapshot.content_type), 0
        upload = snapshot.upload
        for _, piece in self._store.scan(keys.piece(upload, 0), keys.pieces_end(upload)):
            digest.update(piece)
            size += len(piece)
        if (size, digest.hexdigest()) != (snapshot.size, snapshot.digest):
            self.found.report(f"{name}: its snapshot is not what was published. bytes={size}")
        if not state.first_seq <= snapshot.at.seq:
            self.found.report(f"{name}: its snapshot is of an offset that is not retained")

    # -- what refers to streams

    def _check_names(self) -> None:
        for owner in (*self._needs, *self._references):
            self.found.report(f"stream {owner:x}: is read by forks, and is not there")
        count = 0
        for key, value in self._scan(keys.NAME_PREFIX):
            count += 1
            bucket, name = keys.split_name(key)
            stored = self._store.get(keys.state(StreamId(keys.unpack_id(value))))
            if stored is None:
                self.found.report(f"{bucket}/{name}: the name leads to no stream")
                continue
            try:
                state = decode_state(stored)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # reported as a stream
            if (state.bucket, state.name) != (bucket, name):
                self.found.report(f"{bucket}/{name}: the name leads to {_name(state)}")
        if count < self.found.streams:
            self._report_nameless()

    def _report_nameless(self) -> None:
        for state in self._states():
            stored = self._store.get(keys.name(state.bucket, state.name))
            if stored is None or keys.unpack_id(stored) != state.id:
                self.found.report(f"{_name(state)}: no name leads to stream {state.id:x}")

    def _check_uploads(self) -> None:
        for key, _ in self._scan(keys.UPLOAD_PREFIX):
            self._uploads.add(keys.split_unpublished(key))
        stray = Counter(
            upload
            for key, _ in self._scan(keys.PIECE_PREFIX)
            if (upload := keys.split_piece(key)[0]) not in self._uploads
        )
        for upload, pieces in stray.items():
            self.found.report(f"upload {upload:x}: is no stream's snapshot. pieces={pieces}")

    def _check_documents(self) -> None:
        buckets = {DURABLE_STREAMS_BUCKET}
        for key, value in self._scan(keys.DOCUMENT_PREFIX):
            self.found.documents += 1
            collection, name = keys.split_document(key)
            if collection != keys.BUCKETS:
                continue
            buckets.add(name)
            try:
                decode_bucket(value)
            except msgspec.DecodeError as error:
                self.found.report(f"bucket {name}: its document is unreadable: {error}")
        start = keys.NAME_PREFIX
        end = keys.prefix_end(start)
        while (entry := next(self._store.scan(start, end), None)) is not None:
            bucket = keys.split_name(entry[0])[0]
            if bucket not in buckets:
                self.found.report(f"bucket {bucket}: has streams, and is not there")
            start = keys.name(bucket, "")[:-1] + b"\x01"  # on to the next bucket


def _name(state: StreamState) -> str:
    return f"{state.bucket}/{state.name}"


class _Runs:
    """The runs of all streams, handed out stream by stream in the order of ids."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries
        self._next = next(entries, None)

    def before(self, stream_id: StreamId) -> Iterator[Entry]:
        return self._until(keys.run(stream_id, SeqNum(0)))

    def of(self, stream_id: StreamId) -> Iterator[Entry]:
        return self._until(keys.run_end(stream_id))

    def rest(self) -> Iterator[Entry]:
        return self._until(keys.prefix_end(keys.RUN_PREFIX))

    def _until(self, end: bytes) -> Iterator[Entry]:
        while self._next is not None and self._next[0] < end:
            entry, self._next = self._next, next(self._entries, None)
            yield entry
