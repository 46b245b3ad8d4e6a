"""The buckets of one shard: their documents, and what those with a quota hold.

A bucket comes into being with its first stream. Only buckets with a quota are counted, so that
an append to any other costs nothing. They are counted once, when the quota is set or the server
starts, and kept up to date from then on: in steps, in the order of names, so that a change of a
stream that was counted changes the count, and any other is seen when its turn comes. Until all are
counted the quota is not enforced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from headwater.core.buckets import BucketConfig, Usage, check_room, decode_bucket, encode_bucket
from headwater.core.errors import BucketDeleting
from headwater.core.names import DURABLE_STREAMS_BUCKET
from headwater.core.stream import StreamState
from headwater.core.types import TimestampMs
from headwater.engine.effects import Effect
from headwater.storage import keys
from headwater.storage.store import Store

COLLECTION = keys.BUCKETS
"""Documents: bucket -> MessagePack of BucketConfig. Frozen."""
COUNTED_PER_STEP = 500
"""Streams counted between two turns of the loop."""
KNOWN_MAX = 10_000
"""Buckets kept at hand; the others are read when they are used."""


class Buckets:
    """Changed by commands only, and then ahead of the store until the commit is written."""

    def __init__(
        self, store: Store, states_after: Callable[[str, str], Iterator[StreamState]]
    ) -> None:
        """`states_after` gives the streams of a bucket whose names are after one, as stored."""
        self.usage: dict[str, Usage] = {}
        """Of the buckets that have a quota."""
        self.counting: set[str] = set()
        """Those of them that are not counted to the end yet."""
        self.deleting: set[str] = set()
        """Buckets whose streams are being removed."""
        self._store = store
        self._states_after = states_after
        self._known: dict[str, BucketConfig | None] = {}

    def load(self) -> None:
        """Find the buckets that have a quota, and those that are being deleted."""
        start = keys.document(COLLECTION, "")
        for key, value in self._store.scan(start, keys.prefix_end(start)):
            bucket, config = keys.split_document(key)[1], decode_bucket(value)
            if config.deleted_at_ms is not None:
                self.deleting.add(bucket)
            if config.is_limited:
                self._known[bucket] = config
                self._begin_count(bucket)

    def find(self, bucket: str) -> BucketConfig | None:
        if bucket in self._known:
            return self._known[bucket]
        stored = self._store.get(keys.document(COLLECTION, bucket))
        config = None if stored is None else decode_bucket(stored)
        if config is None and bucket == DURABLE_STREAMS_BUCKET:
            config = BucketConfig()
        if len(self._known) < KNOWN_MAX:  # those that are ahead of the store are in it already
            self._known[bucket] = config
        return config

    def check_kept(self, bucket: str) -> None:
        """Raises BucketDeleting if it is on its way out."""
        config = self.find(bucket)
        if config is not None and config.deleted_at_ms is not None:
            raise BucketDeleting(bucket)

    def settle(self) -> None:
        """What was applied is in the store: any of it can be read again."""
        if len(self._known) >= KNOWN_MAX:
            self._known = {
                bucket: config for bucket, config in self._known.items() if bucket in self.usage
            }

    # -- commands

    def first_use(self, bucket: str, at_ms: TimestampMs) -> Effect | None:
        """A stream is made in it: so is the bucket, if it was not there."""
        if self.find(bucket) is not None:
            return None
        return self.put(bucket, BucketConfig(created_at_ms=at_ms))

    def put(self, bucket: str, config: BucketConfig) -> Effect:
        known = self.find(bucket)
        if known is not None:
            config = msgspec.structs.replace(config, created_at_ms=known.created_at_ms)
        self._known[bucket] = config
        if not config.is_limited:
            self._forget_count(bucket)
        elif bucket not in self.usage:
            self._begin_count(bucket)
        if config.deleted_at_ms is not None:
            self.deleting.add(bucket)
        key, value = keys.document(COLLECTION, bucket), encode_bucket(config)
        return lambda batch: batch.put(key, value)

    def drop(self, bucket: str) -> Effect:
        self._known[bucket] = None
        self._forget_count(bucket)
        self.deleting.discard(bucket)
        key = keys.document(COLLECTION, bucket)
        return lambda batch: batch.delete(key)

    # -- quotas

    def check_room(self, bucket: str, *, streams: int = 0, size: int = 0) -> None:
        """Raises TooManyRequests when the bucket is full, as far as that is known."""
        usage = self.usage.get(bucket)
        if usage is not None and usage.counted_to is None:
            config = self.find(bucket)
            assert config is not None
            check_room(bucket, config, usage, streams=streams, size=size)

    def add(self, state: StreamState, *, streams: int = 0, size: int = 0) -> None:
        """A stream's bucket holds more than before, or less."""
        usage = self.usage.get(state.bucket)
        if usage is not None and usage.has(state.name):
            usage.streams += streams
            usage.bytes += size

    def count_some(self) -> bool:
        """Count on, at a moment when all that was applied is stored. Is there more to count?"""
        bucket = next(iter(self.counting))
        usage = self.usage[bucket]
        assert usage.counted_to is not None
        found = list(islice(self._states_after(bucket, usage.counted_to), COUNTED_PER_STEP))
        for state in found:
            usage.streams += 1
            usage.bytes += state.tail_byte - state.first_byte
            usage.counted_to = state.name
        if len(found) < COUNTED_PER_STEP:
            usage.counted_to = None
            self.counting.discard(bucket)
        return bool(self.counting)

    def _begin_count(self, bucket: str) -> None:
        self.usage[bucket] = Usage(counted_to="")
        self.counting.add(bucket)

    def _forget_count(self, bucket: str) -> None:
        self.usage.pop(bucket, None)
        self.counting.discard(bucket)
