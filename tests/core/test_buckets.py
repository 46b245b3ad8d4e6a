"""How much a bucket may hold."""

from __future__ import annotations

import pytest

from headwater.core.buckets import (
    BucketConfig,
    Usage,
    check_room,
    decode_bucket,
    encode_bucket,
)
from headwater.core.errors import TooManyRequests
from headwater.core.retention import Retention


@pytest.mark.parametrize(
    ("config", "streams", "size", "fits"),
    [
        (BucketConfig(), 1, 10**9, True),
        (BucketConfig(streams_max=3), 1, 10, True),
        (BucketConfig(streams_max=2), 1, 0, False),
        (BucketConfig(streams_max=2), 0, 10, True),
        (BucketConfig(bytes_max=15), 1, 5, True),
        (BucketConfig(bytes_max=14), 0, 5, False),
        (BucketConfig(bytes_max=5), 1, 0, True),
    ],
)
def test_room(config: BucketConfig, streams: int, size: int, fits: bool) -> None:
    usage = Usage(streams=2, bytes=10)
    if fits:
        check_room("b", config, usage, streams=streams, size=size)
    else:
        with pytest.raises(TooManyRequests, match="bucket=b"):
            check_room("b", config, usage, streams=streams, size=size)


def test_a_bucket_is_stored_whole() -> None:
    config = BucketConfig(retention=Retention(age_s=5), content_type="text/plain", bytes_max=9)
    assert decode_bucket(encode_bucket(config)) == config
    assert config.is_limited and not BucketConfig().is_limited
