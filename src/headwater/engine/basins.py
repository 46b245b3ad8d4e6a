"""The removal of buckets with all their streams, in the background. S2 API: basins.

Some streams at a time, and after a restart where it stopped: that a bucket is to go is written in
its own document.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from headwater.core.commands import Command, Delete, DropBucket
from headwater.core.pending import Pending
from headwater.core.types import TimestampMs
from headwater.engine.shard import Shard

STREAMS_PER_SWEEP_MAX = 512
BUCKETS_PER_SWEEP_MAX = 64
"""Together they bound a sweep, however much was deleted."""


class BucketRemover:
    """Goes through the streams of each deleted bucket, again and again until none is left.

    Those that are kept for their forks in other buckets stay, and so does then the bucket.
    """

    def __init__(
        self,
        shard: Shard,
        submit: Callable[[Command], Pending[Any]],
        farewells: Iterable[Callable[[str], None]] = (),
    ) -> None:
        """`farewells` are called with each bucket right before it goes, to remove what else
        belongs to it."""
        self._shard = shard
        self._submit = submit
        self._farewells = farewells
        self._after: dict[str, str] = {}
        """Up to which stream each bucket has been gone through."""
        self._last = ""
        """The bucket that was looked at last; the one after it is next."""
        self._waiting = 0

    def sweep(self, now_ms: TimestampMs) -> None:
        if self._waiting:
            return
        buckets = sorted(self._shard.buckets.deleting)
        start = bisect_right(buckets, self._last)
        left = STREAMS_PER_SWEEP_MAX
        for bucket in [*buckets[start:], *buckets[:start]][:BUCKETS_PER_SWEEP_MAX]:
            left -= self._remove_from(bucket, left, now_ms)
            self._last = bucket
            if not left:
                return

    def _remove_from(self, bucket: str, streams_max: int, now_ms: TimestampMs) -> int:
        """Remove some streams, or the bucket if it has none. Returns how many there were."""
        after = self._after.pop(bucket, "")
        names = list(islice(self._shard.names(bucket, after=after), streams_max))
        for name in names:
            self._send(Delete(bucket, name, now_ms))
        if names:
            self._after[bucket] = names[-1]
        elif not after:
            for farewell in self._farewells:
                farewell(bucket)
            self._send(DropBucket(bucket, "", now_ms))
        return len(names)

    def _send(self, command: Command) -> None:
        self._waiting += 1
        self._submit(command).deliver(self._done)

    def _done(self, outcome: object) -> None:
        """Done or refused: the next round shows what is left."""
        self._waiting -= 1
