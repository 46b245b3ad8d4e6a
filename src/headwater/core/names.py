"""Bucket and stream names: parsed once at the edge, trusted after.

Names compare decoded. Lenient by default; `strict` enforces the rules of the Ursula protocol.
"""

from __future__ import annotations

import re
from enum import Enum

from headwater.core import limits
from headwater.core.errors import InvalidRequest

_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_BUCKET_STRICT = re.compile(r"[a-z0-9_-]{4,64}\Z")
_STRICT_STREAM_BYTES_MAX = 122

DURABLE_STREAMS_BUCKET = "durable-streams"
RESERVED_BUCKETS = frozenset(
    {"v1", "health", "ready", "metrics", "console", "favicon.ico", "robots.txt"}
)


class NameRules(Enum):
    """How strictly names are checked: the setting `names`."""

    LENIENT = "lenient"
    STRICT = "strict"


def check_bucket(bucket: str, rules: NameRules = NameRules.LENIENT) -> str:
    """Return `bucket`, or raise InvalidRequest saying which rule it breaks."""
    if bucket in RESERVED_BUCKETS or bucket.startswith("__"):
        raise InvalidRequest(f"this bucket name is reserved. bucket={bucket}")
    if not _BUCKET.match(bucket) or bucket in (".", ".."):
        raise InvalidRequest("a bucket name is 1 to 64 characters of [A-Za-z0-9._-]")
    if rules is NameRules.STRICT and not _BUCKET_STRICT.match(bucket):
        raise InvalidRequest("a bucket name is 4 to 64 characters of [a-z0-9_-] (names = strict)")
    return bucket


def check_stream(name: str, rules: NameRules = NameRules.LENIENT) -> str:
    """Return `name`, or raise InvalidRequest saying which rule it breaks."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidRequest("a stream name is valid UTF-8") from None
    if not 1 <= size <= limits.STREAM_NAME_BYTES_MAX:
        raise InvalidRequest(
            f"a stream name is 1 to {limits.STREAM_NAME_BYTES_MAX} bytes. bytes={size}"
        )
    if "\0" in name:
        raise InvalidRequest("a stream name has no NUL")
    if any(segment in (".", "..") for segment in name.split("/")):
        raise InvalidRequest("a stream name has no '.' or '..' segment")
    if rules is NameRules.STRICT and size > _STRICT_STREAM_BYTES_MAX:
        raise InvalidRequest(f"a stream name is at most 122 bytes (names = strict). bytes={size}")
    return name
