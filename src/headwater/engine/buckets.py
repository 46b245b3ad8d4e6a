"""The buckets of one shard: their documents, and what those with a quota hold.

A bucket comes into being with its first stream. Only buckets with a quota are counted, so that
an append to any other costs nothing; they are counted once, when the quota is set or the server
starts, and kept up to date from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from headwater.core.buckets import BucketConfig, Usage, check_room, decode_bucket, encode_bucket
from headwater.core.names import DURABLE_STREAMS_BUCKET
from headwater.core.stream import StreamState
from headwater.core.types import TimestampMs
from headwater.storage import keys
from headwater.storage.store import Batch, Store

COLLECTION = "bucket"
"""Documents: bucket -> MessagePack of BucketConfig. Frozen."""
KNOWN_MAX = 10_000
"""Buckets kept at hand; the others are read when they are used."""

Effect = Callable[[Batch], None]


class Buckets:
    """Changed by commands only, and then ahead of the store until the commit is written."""

    def __init__(self, store: Store, states_of: Callable[[str], Iterable[StreamState]]) -> None:
        """`states_of` gives the streams of a bucket, those of the commit under way included."""
        self.usage: dict[str, Usage] = {}
        """Of the buckets that have a quota."""
        self._store = store
        self._states_of = states_of
        self._known: dict[str, BucketConfig | None] = {}

    def load(self) -> None:
        """Count the buckets that have a quota."""
        start = keys.document(COLLECTION, "")
        for key, value in self._store.scan(start, keys.prefix_end(start)):
            bucket, config = keys.split_document(key)[1], decode_bucket(value)
            if config.is_limited:
                self._known[bucket] = config
                self._count(bucket)

    def find(self, bucket: str) -> BucketConfig | None:
        if bucket in self._known:
            return self._known[bucket]
        stored = self._store.get(keys.document(COLLECTION, bucket))
        config = None if stored is None else decode_bucket(stored)
        if config is None and bucket == DURABLE_STREAMS_BUCKET:
            config = BucketConfig()
        self._known[bucket] = config
        return config

    def settle(self) -> None:
        """What was applied is in the store: any of it can be read again."""
        if len(self._known) > KNOWN_MAX:
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
        self.usage.pop(bucket, None)
        if config.is_limited:
            self._count(bucket)
        key, value = keys.document(COLLECTION, bucket), encode_bucket(config)
        return lambda batch: batch.put(key, value)

    def drop(self, bucket: str) -> Effect:
        self._known[bucket] = None
        self.usage.pop(bucket, None)
        key = keys.document(COLLECTION, bucket)
        return lambda batch: batch.delete(key)

    # -- quotas

    def check_room(self, bucket: str, *, streams: int = 0, size: int = 0) -> None:
        """Raises TooManyRequests when the bucket is full."""
        usage = self.usage.get(bucket)
        if usage is not None:
            config = self.find(bucket)
            assert config is not None
            check_room(bucket, config, usage, streams=streams, size=size)

    def add(self, bucket: str, *, streams: int = 0, size: int = 0) -> None:
        """It holds more than before, or less."""
        usage = self.usage.get(bucket)
        if usage is not None:
            usage.streams += streams
            usage.bytes += size

    def _count(self, bucket: str) -> None:
        usage = self.usage[bucket] = Usage()
        for state in self._states_of(bucket):
            usage.streams += 1
            usage.bytes += state.tail_byte - state.first_byte
