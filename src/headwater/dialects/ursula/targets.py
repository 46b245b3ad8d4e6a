"""What a raw path below `/{bucket}` names: a bucket, a stream, or a resource of a stream.

    /{bucket}                       the bucket
    /{bucket}/streams               the list of its streams
    /{bucket}/__ds/…                its subscriptions
    /{bucket}/{name…}               a stream
    /{bucket}/{name…}/attrs         a resource of that stream; also bootstrap, append-batch,
                                    snapshot[/{offset}] and retention[/{offset}]

Decided on the raw path: `%2F` never separates, so that `x%2Fattrs` is a stream.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from headwater.core.errors import InvalidRequest
from headwater.core.names import RESERVED_BUCKETS, NameRules, check_bucket
from headwater.dialects.durable.rules import Address
from headwater.dialects.names import NAMES_CACHED_MAX, decode_name, unescape


class Kind(Enum):
    """What is addressed."""

    BUCKET = "bucket"
    STREAMS = "streams"
    SUBSCRIPTIONS = "__ds"
    STREAM = "stream"
    ATTRIBUTES = "attrs"
    BOOTSTRAP = "bootstrap"
    BATCH = "append-batch"
    SNAPSHOT = "snapshot"
    RETENTION = "retention"


_LAST = {kind.value: kind for kind in (Kind.ATTRIBUTES, Kind.BOOTSTRAP, Kind.BATCH)}
_WITH_OFFSET = {kind.value: kind for kind in (Kind.SNAPSHOT, Kind.RETENTION)}


class Target(NamedTuple):
    """A path taken apart, still percent-encoded."""

    kind: Kind
    bucket: str
    name: str = ""
    rest: str = ""
    """What follows a resource: an offset, or the path of a subscription."""


@lru_cache(maxsize=NAMES_CACHED_MAX)
def parse_target(path: str) -> Target | None:
    """None for a path that is not of a bucket: the root, and every reserved name."""
    bucket, slash, rest = path[1:].partition("/")
    decoded = bucket if "%" not in bucket else unescape(bucket, "the bucket name")
    if not path.startswith("/") or not bucket or is_reserved(decoded):
        return None
    if not slash:
        return Target(Kind.BUCKET, bucket)
    if rest == Kind.STREAMS.value:
        return Target(Kind.STREAMS, bucket)
    segments = rest.split("/")
    if segments[0] == Kind.SUBSCRIPTIONS.value:
        return Target(Kind.SUBSCRIPTIONS, bucket, rest="/".join(segments[1:]))
    if len(segments) > 1:
        kind = _LAST.get(segments[-1]) or _WITH_OFFSET.get(segments[-1])
        if kind is not None:
            return Target(kind, bucket, "/".join(segments[:-1]))
    if len(segments) > 2:
        kind = _WITH_OFFSET.get(segments[-2])
        if kind is not None:
            return Target(kind, bucket, "/".join(segments[:-2]), segments[-1])
    return Target(Kind.STREAM, bucket, rest)


def is_reserved(bucket: str) -> bool:
    """Names that the server keeps for itself."""
    return bucket in RESERVED_BUCKETS or bucket.startswith("__")


@lru_cache(maxsize=NAMES_CACHED_MAX)
def parse_address(path: str, rules: NameRules) -> Address:
    """The stream that a path is of. Raises InvalidRequest saying which rule a name breaks."""
    target = parse_target(path)
    if target is None or target.kind in (Kind.BUCKET, Kind.STREAMS, Kind.SUBSCRIPTIONS):
        raise InvalidRequest("the path of a stream is /{bucket}/{stream}")
    return Address(parse_bucket(target.bucket, rules), decode_name(target.name, rules))


def parse_bucket(raw: str, rules: NameRules) -> str:
    return check_bucket(unescape(raw, "the bucket name"), rules)


def parse_source(text: str, rules: NameRules) -> Address:
    """`Stream-Forked-From: {bucket}/{stream}`, a slash before it allowed."""
    bucket, slash, name = text.strip().removeprefix("/").partition("/")
    if not bucket or not slash or not name:
        raise InvalidRequest("Stream-Forked-From has the form {bucket}/{stream}")
    return Address(parse_bucket(bucket, rules), decode_name(name, rules))
