"""Every error a caller can see. Each says whether the write may have happened.

Dialects turn these into responses, one table each; nothing here knows a status code.
"""

from __future__ import annotations

from enum import Enum

from headwater.core.types import BatchSeq, Epoch, Position


class Effect(Enum):
    """What a failed write may have done."""

    NONE = "none"  # nothing happened, so a retry is safe
    UNKNOWN = "unknown"  # it may be durable, so retry only with a producer id


class HeadwaterError(Exception):
    """Base of everything the engine tells a caller."""

    effect = Effect.NONE


class InvalidRequest(HeadwaterError):
    """The request contradicts itself or the rules of its fields."""


class InvalidOffset(HeadwaterError):
    """A position that is malformed, past the tail, or does not fit the stream."""

    def __init__(self, message: str, *, tail: Position | None = None) -> None:
        super().__init__(message)
        self.tail = tail


class OffsetTrimmed(HeadwaterError):
    """The data at this position was dropped by retention."""

    def __init__(self, first: Position) -> None:
        super().__init__(
            "the data at this offset is no longer retained; "
            f"continue from Stream-Next-Offset. first_seq={first.seq}"
        )
        self.first = first


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


class InvalidRecord(HeadwaterError):
    """One record of an append breaks a rule, so none of them was added."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"record {index} is refused, and so is the append: {problem}")
        self.index = index


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
