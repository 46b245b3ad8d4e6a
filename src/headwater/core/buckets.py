"""Buckets: what a bucket gives its new streams, and how much it may hold. Ursula: buckets."""

from __future__ import annotations

import msgspec

from headwater.core.errors import TooManyRequests
from headwater.core.retention import Retention
from headwater.core.stream_config import StreamConfig
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

    stream_defaults: StreamConfig | None = None
    """Of new streams made through S2 that do not say."""
    stream_cipher: str | None = None
    create_on_append: bool = False
    create_on_read: bool = False
    """Whether a stream that S2 is asked for and is not there comes into being."""
    location: str | None = None
    creation_token: bytes | None = None
    """Tells a repeated request to create this bucket from another one."""
    deleted_at_ms: TimestampMs | None = None
    """Since then its streams are being removed, and it takes no new ones."""

    @property
    def is_limited(self) -> bool:
        return self.streams_max is not None or self.bytes_max is not None


class Usage(msgspec.Struct):
    """What a bucket holds."""

    streams: int = 0
    bytes: int = 0
    counted_to: str | None = None
    """While it is being counted: the streams up to this name are in. None when all are."""

    def has(self, name: str) -> bool:
        """Is this stream in it, or would be if it were there?"""
        return self.counted_to is None or name <= self.counted_to


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
