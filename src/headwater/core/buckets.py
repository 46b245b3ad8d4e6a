"""Buckets: what a bucket gives its new streams, and how much it may hold. Ursula: buckets."""

from __future__ import annotations

import msgspec

from headwater.core.errors import TooManyRequests
from headwater.core.retention import Retention
from headwater.core.types import TimestampMs

QUOTA_RETRY_S = 60
"""Room in a bucket comes with a deletion or with retention, not by itself."""


class BucketConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One bucket, as it is stored. Fields are only ever added, with a default."""

    created_at_ms: TimestampMs = TimestampMs(0)
    retention: Retention | None = None
    """Of new streams that do not say."""
    content_type: str | None = None
    """Of new streams that do not say."""
    streams_max: int | None = None
    bytes_max: int | None = None
    """Retained body bytes of all its streams."""

    @property
    def is_limited(self) -> bool:
        return self.streams_max is not None or self.bytes_max is not None


class Usage(msgspec.Struct):
    """What a bucket holds."""

    streams: int = 0
    bytes: int = 0


def check_room(bucket: str, config: BucketConfig, usage: Usage, *, streams: int, size: int) -> None:
    """May this much more be added? Raises TooManyRequests."""
    if streams and config.streams_max is not None and usage.streams >= config.streams_max:
        raise TooManyRequests(
            f"the bucket has as many streams as it may. bucket={bucket} max={config.streams_max}",
            retry_after_s=QUOTA_RETRY_S,
        )
    if size and config.bytes_max is not None and usage.bytes + size > config.bytes_max:
        raise TooManyRequests(
            f"the bucket holds as many bytes as it may. bucket={bucket} max={config.bytes_max}",
            retry_after_s=QUOTA_RETRY_S,
        )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BucketConfig)


def encode_bucket(config: BucketConfig) -> bytes:
    return _encoder.encode(config)


def decode_bucket(data: bytes) -> BucketConfig:
    return _decoder.decode(data)
