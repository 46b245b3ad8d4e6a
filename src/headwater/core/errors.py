"""Every error a caller can see. Each says whether the write may have happened.

Dialects turn these into responses, one table each; nothing here knows a status code.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from headwater.core.types import BatchSeq, Epoch, Position


class Effect(Enum):
    """What a failed write may have done."""

    NONE = "none"  # nothing happened, so a retry is safe
    UNKNOWN = "unknown"  # it may be durable, so retry only with a producer id


class HeadwaterError(Exception):
    """Base of everything the engine tells a caller."""

    effect = Effect.NONE


class RecordRange(NamedTuple):
    """Which records, by their numbers, a JSON stream has."""

    first: int
    """The first that is retained."""
    next: int
    """The one to come."""


class InvalidRequest(HeadwaterError):
    """The request contradicts itself or the rules of its fields."""

    def __init__(self, message: str, *, records: RecordRange | None = None) -> None:
        super().__init__(message)
        self.records = records
        """Those that there are, when the request named one that is not."""


class InvalidOffset(HeadwaterError):
    """A position that is malformed, past the tail, or does not fit the stream."""

    def __init__(self, message: str, *, tail: Position | None = None) -> None:
        super().__init__(message)
        self.tail = tail


class OffsetTrimmed(HeadwaterError):
    """The data at this position was dropped by retention."""

    def __init__(self, first: Position, *, records: RecordRange | None = None) -> None:
        super().__init__(
            "the data at this offset is no longer retained; "
            f"continue from Stream-Next-Offset. first_seq={first.seq}"
        )
        self.first = first
        self.records = records
        """Those that there are, when the request named one by its number."""


class StreamNotFound(HeadwaterError):
    """No such stream, or it has expired."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no such stream; create it first. stream={name}")


class StreamGone(HeadwaterError):
    """Deleted, but its data still serves forks, so the name is not free yet."""

    def __init__(self, name: str) -> None:
        super().__init__(f"this stream was deleted and is kept only for its forks. stream={name}")


class StreamExists(HeadwaterError):
    """The name is taken by a stream with another configuration."""


class ForkRefused(HeadwaterError):
    """The source cannot be forked as asked."""


class NotFound(HeadwaterError):
    """What is asked for, other than a stream, is not there."""


class Conflict(HeadwaterError):
    """What is there, other than a stream's configuration, rules the request out."""


class BucketNotFound(HeadwaterError):
    """No such bucket, where an operation does not make one."""

    def __init__(self, bucket: str) -> None:
        super().__init__(f"no such bucket; create it first. bucket={bucket}")


class BucketExists(HeadwaterError):
    """The name is taken by a bucket that was not made by this very request."""

    def __init__(self, bucket: str) -> None:
        super().__init__(f"the bucket exists. bucket={bucket}")


class BucketDeleting(HeadwaterError):
    """The bucket was deleted, and its streams are being removed."""

    def __init__(self, bucket: str) -> None:
        super().__init__(f"the bucket is being deleted. bucket={bucket}")


class StreamClosed(HeadwaterError):
    """The stream has ended; nothing can be appended."""

    def __init__(self, tail: Position) -> None:
        super().__init__("the stream is closed; no more data can be appended")
        self.tail = tail


class PreconditionFailed(HeadwaterError):
    """The stream has moved on since the writer looked."""

    def __init__(self, tail: Position, *, message_next: int | None = None) -> None:
        header = "If-Match" if message_next is None else "Stream-Record-Match"
        super().__init__(
            f"the stream's tail is not the one in {header}; read on and decide again. "
            f"tail_seq={tail.seq}"
        )
        self.tail = tail
        self.message_next = message_next


class FencingTokenMismatch(HeadwaterError):
    """Another writer has fenced the stream. S2 API: append."""

    def __init__(self, actual: str) -> None:
        super().__init__(f"the fencing token is not the stream's. actual={actual!r}")
        self.actual = actual


class KeyRequired(HeadwaterError):
    """The stream is encrypted, and the request brought no key that could be one."""

    def __init__(self, cipher: str, problem: str = "there is none") -> None:
        super().__init__(
            f"the stream is encrypted with {cipher}: send a key, 32 bytes in base64, "
            f"as S2-Encryption-Key; {problem}"
        )
        self.cipher = cipher


class DecryptionFailed(HeadwaterError):
    """A record of an encrypted stream does not open with the key of the request."""

    def __init__(self, cipher: str) -> None:
        super().__init__(
            f"a record does not open with the key in S2-Encryption-Key; send the one that it was "
            f"appended with. cipher={cipher}"
        )


class CipherExhausted(HeadwaterError):
    """The stream has as many records as its cipher is safe for."""

    def __init__(self, cipher: str, records_max: int) -> None:
        super().__init__(
            f"a stream encrypted with {cipher} takes no more than {records_max} records; "
            "go on in a new one"
        )


class InvalidRecord(HeadwaterError):
    """One record of an append breaks a rule, so none of them was added."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"record {index} is refused, and so is the append: {problem}")
        self.index = index
        self.problem = problem


class ContentTypeMismatch(HeadwaterError):
    """The append's content type is not the stream's."""

    def __init__(self, *, expected: str, received: str) -> None:
        super().__init__(f"content type mismatch. expected={expected} received={received}")


class SequenceRegression(HeadwaterError):
    """`Stream-Seq` did not increase."""

    def __init__(self, *, last: str, received: str) -> None:
        super().__init__(
            "Stream-Seq must be greater than the last one accepted. "
            f"last={last!r} received={received!r}"
        )


class ProducerFenced(HeadwaterError):
    """A newer epoch of this producer has taken over."""

    def __init__(self, current: Epoch) -> None:
        super().__init__(f"producer epoch is stale; claim a higher one. current={current}")
        self.current = current


class ProducerGap(HeadwaterError):
    """Earlier batches of this producer are missing."""

    def __init__(self, *, expected: BatchSeq, received: BatchSeq) -> None:
        super().__init__(f"producer sequence gap. expected={expected} received={received}")
        self.expected = expected
        self.received = received


class Unauthenticated(HeadwaterError):
    """Nobody knows who asks: no access token, or one that is not valid (any more)."""


class PermissionDenied(HeadwaterError):
    """The access token does not permit this. Dialects that hide what is forbidden answer as if
    the stream, or else the bucket, were not there."""

    def __init__(
        self, message: str, *, bucket: str | None = None, stream: str | None = None
    ) -> None:
        super().__init__(message)
        self.bucket = bucket
        self.stream = stream


class TooManyRequests(HeadwaterError):
    """A limit on rate or number is reached."""

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Overloaded(HeadwaterError):
    """The server has more accepted work than it may hold, or is shutting down."""


class ReadOnly(HeadwaterError):
    """This server does not take writes."""

    def __init__(self) -> None:
        super().__init__("this server is read-only")


class DiskFull(HeadwaterError):
    """Free disk space is below the reserve."""

    def __init__(self) -> None:
        super().__init__("the disk is nearly full; writes resume when space is free again")


class StorageFailed(HeadwaterError):
    """A write did not reach the disk for certain. The server stops."""

    effect = Effect.UNKNOWN

    def __init__(self) -> None:
        super().__init__("storage failed; the write may or may not be durable")


class Corruption(HeadwaterError):
    """What was read from disk is not what was written."""
