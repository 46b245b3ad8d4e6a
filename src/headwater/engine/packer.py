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
from headwater.engine.shard import Shard, Stream
from headwater.storage import keys, packing
from headwater.storage.runs import Run, merge
from headwater.storage.store import StoreBusy


class _Job(NamedTuple):
    stream: Stream
    plan: packing.Plan
    checkpoint: bytes
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
        if not packing.worth_packing(count, stream.run_bytes, stream.checkpoint_bytes):
            return
        state = stream.state
        plan = packing.plan(stream.runs, state.partial_chunks, state.tail_seq)
        state.partial_chunks = plan.partial
        checkpoint = encode_state(state)
        stream.checkpoint_bytes = len(checkpoint)
        stream.runs = []
        stream.run_bytes = 0
        self.debt_runs += count
        self._jobs.append(_Job(stream, plan, checkpoint, stream.checkpoint_number, count))

    def step(self) -> None:
        """Do one job."""
        if not self._jobs:
            return
        job = self._jobs.popleft()
        stream = job.stream
        if not stream.purged:
            store = self._shard.store
            batch = store.batch()
            stream_id = stream.state.id
            for first, end in job.plan.chunks:
                runs = self._read(stream, first, end)
                if len(runs) < 2:
                    continue
                for run in runs[1:]:
                    batch.delete(keys.run(stream_id, run.first))
                batch.put(keys.run(stream_id, first), merge(runs))
            if stream.checkpoint_number == job.checkpoint_number:
                batch.put(keys.state(stream_id), job.checkpoint)
            try:
                store.write_unlogged(batch)
            except StoreBusy:
                self._jobs.appendleft(job)
                return
            self.chunks_total += len(job.plan.chunks)
            self.bytes_total += job.plan.bytes
        self.debt_runs -= job.runs

    def _read(self, stream: Stream, first: SeqNum, end: SeqNum) -> list[Run]:
        stream_id = stream.state.id
        entries = self._shard.store.scan(keys.run(stream_id, first), keys.run(stream_id, end))
        return [Run(keys.split_run(key)[1], value) for key, value in entries]
