"""Packing in the background: small steps on the loop while a commit syncs or nothing happens.

A job is prepared when a stream's runs are durable and no later command has been applied, so its
checkpoint is the state right after those runs. The chunks, the removal of the runs they replace
and the checkpoint then go into one batch that skips the log: until a memtable reaches disk the
runs are still in the log, so a crash only undoes the packing (ADR 0004).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from headwater.core.stream import encode_state
from headwater.core.types import SeqNum
from headwater.engine.shard import Shard
from headwater.engine.streams import Stream
from headwater.storage import keys, packing
from headwater.storage.packing import Pieces
from headwater.storage.runs import merge
from headwater.storage.store import StoreBusy

JOB_RUNS_MAX = 1024
"""A stream with more runs than this (after a crash undid its packing) is packed in several jobs."""


class _Job(NamedTuple):
    stream: Stream
    plan: packing.Plan
    checkpoint: bytes | None
    """None when runs are left over: the chunks then keep the changes of writer state."""
    checkpoint_number: int
    """Of the stream's last checkpoint when this one was taken: a later one must stay."""
    runs: int


class Packer:
    """Streams with enough small runs wait here for their turn."""

    def __init__(self, shard: Shard) -> None:
        self.enabled = True
        self.chunks_total = 0
        self.bytes_total = 0
        self.debt_runs = 0
        """Runs in the jobs that wait."""
        self._shard = shard
        self._jobs: deque[_Job] = deque()

    @property
    def has_work(self) -> bool:
        return bool(self._jobs)

    def consider(self, stream: Stream) -> None:
        """A stream has new durable runs, and its state is exactly theirs."""
        count = len(stream.runs)
        if count < 2 or not self.enabled or stream.purged:
            return
        if not packing.worth_packing(count, stream.runs.bytes, stream.checkpoint_bytes):
            return
        while len(stream.runs) > JOB_RUNS_MAX:
            self._prepare_part(stream)
        state = stream.state
        plan = packing.plan(list(stream.runs), state.partial_chunks, state.tail_seq)
        state.partial_chunks = plan.partial
        checkpoint = encode_state(state)
        stream.checkpoint_bytes = len(checkpoint)
        self._add(_Job(stream, plan, checkpoint, stream.checkpoint_number, len(stream.runs)))
        stream.runs = Pieces()

    def _prepare_part(self, stream: Stream) -> None:
        """Pack the first of very many runs, without a checkpoint.

        Nothing before them is merged with them: a chunk must not reach over the checkpoint that is
        on disk, because loading the stream replays from there.
        """
        runs = list(stream.runs)
        first, rest = runs[:JOB_RUNS_MAX], runs[JOB_RUNS_MAX:]
        plan = packing.plan(first, [], rest[0][0])
        stream.state.partial_chunks = plan.partial
        self._add(_Job(stream, plan, None, stream.checkpoint_number, len(first)))
        stream.runs = Pieces(rest)

    def _add(self, job: _Job) -> None:
        self.debt_runs += job.runs
        job.stream.packing_jobs += 1
        self._jobs.append(job)

    def step(self) -> None:
        """Do one job."""
        if not self._jobs:
            return
        job = self._jobs.popleft()
        if not job.stream.purged:
            try:
                self._do(job)
            except StoreBusy:
                self._jobs.appendleft(job)
                return
            self.chunks_total += len(job.plan.chunks)
            self.bytes_total += job.plan.bytes
        self.debt_runs -= job.runs
        job.stream.packing_jobs -= 1

    def _do(self, job: _Job) -> None:
        stream, store = job.stream, self._shard.store
        stream_id = stream.state.id
        batch = store.batch()
        for first, end in job.plan.chunks:
            runs = self._read(stream, first, end)
            if len(runs) < 2:
                continue
            for later, _ in runs[1:]:
                batch.delete(keys.run(stream_id, later))
            chunk = merge(runs, keep_changes=job.checkpoint is None)
            batch.put(keys.run(stream_id, runs[0][0]), chunk)
        if job.checkpoint is not None and stream.checkpoint_number == job.checkpoint_number:
            batch.put(keys.state(stream_id), job.checkpoint)
        store.write_unlogged(batch)

    def _read(self, stream: Stream, first: SeqNum, end: SeqNum) -> list[tuple[SeqNum, bytes]]:
        stream_id = stream.state.id
        entries = self._shard.store.scan(keys.run(stream_id, first), keys.run(stream_id, end))
        return [(keys.split_run(key)[1], value) for key, value in entries]
