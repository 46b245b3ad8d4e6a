"""The removal of buckets with all their streams, in the background. S2 API: basins.

Some streams at a time, and after a restart where it stopped: that a bucket is to go is written in
its own document.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from headwater.core.commands import Command, Delete, DropBucket
from headwater.core.pending import Pending
from headwater.core.types import TimestampMs
from headwater.engine.shard import Shard

STREAMS_PER_SWEEP_MAX = 512


class BucketRemover:
    """Goes through the streams of each deleted bucket, again and again until none is left.

    Those that are kept for their forks in other buckets stay, and so does then the bucket.
    """

    def __init__(self, shard: Shard, submit: Callable[[Command], Pending[Any]]) -> None:
        self._shard = shard
        self._submit = submit
        self._after: dict[str, str] = {}
        """Up to which stream each bucket has been gone through."""
        self._waiting = 0

    def sweep(self, now_ms: TimestampMs) -> None:
        if self._waiting:
            return
        for bucket in sorted(self._shard.buckets.deleting):
            self._remove_from(bucket, now_ms)

    def _remove_from(self, bucket: str, now_ms: TimestampMs) -> None:
        after = self._after.pop(bucket, "")
        names = list(islice(self._shard.names(bucket, after=after), STREAMS_PER_SWEEP_MAX))
        for name in names:
            self._send(Delete(bucket, name, now_ms))
        if names:
            self._after[bucket] = names[-1]
        elif not after:
            self._send(DropBucket(bucket, "", now_ms))

    def _send(self, command: Command) -> None:
        self._waiting += 1
        self._submit(command).deliver(self._done)

    def _done(self, outcome: object) -> None:
        """Done or refused: the next round shows what is left."""
        self._waiting -= 1
