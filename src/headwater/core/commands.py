"""Everything that can change a stream, as values with a byte encoding.

The same commands in the same order give the same state on every machine, so whatever varies
(time, new ids, random choices) is a field. The encoding is MessagePack arrays tagged by kind;
fields are only ever added at the end, with a default. PROTOCOL §5, Ursula: create.
"""

from __future__ import annotations

import msgspec

from headwater.core.buckets import BucketConfig
from headwater.core.producer import ProducerClaim
from headwater.core.retention import Retention
from headwater.core.stream import Snapshot
from headwater.core.types import START, Position, SeqNum, StreamId, TimestampMs


# gc=False here and on the other structs of core: none can be part of a cycle, and with many
# streams the collector would otherwise have to look at all of them.
class _Command(msgspec.Struct, frozen=True, array_like=True, gc=False):
    bucket: str
    name: str
    at_ms: TimestampMs

    @property
    def key(self) -> str:
        return f"{self.bucket}/{self.name}"


class ForkClaim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a new stream branches off."""

    bucket: str
    name: str
    at: Position | None = None
    """None means the source's tail."""
    sub_offset: int = 0
    """Messages (JSON) or bytes past `at`, inside one append. PROTOCOL §4.2."""
    at_byte: int | None = None
    """In place of `at`: a byte position, which must be the start of a message. Ursula: create."""


class Create(_Command, frozen=True, tag="create"):
    """Make a stream, or confirm that it is there with this configuration."""

    content_type: str | None = None
    body: bytes = b""
    closed: bool = False
    ttl_s: int | None = None
    expires_at_ms: TimestampMs | None = None
    ttl_from_access: bool = True
    stream_seq: str | None = None
    producer: ProducerClaim | None = None
    fork: ForkClaim | None = None
    attributes: bytes | None = None
    retention: Retention | None = None
    retention_default: Retention | None = None
    """What the bucket gives a new stream that does not say."""
    fork_retypes: bool = False
    """A fork may have another content type than its source, if what it inherits allows it."""


class Append(_Command, frozen=True, tag="append"):
    """Add one body, close the stream, or both at once."""

    content_type: str | None = None
    body: bytes = b""
    close: bool = False
    producer: ProducerClaim | None = None
    stream_seq: str | None = None
    expect: Position | None = None
    """The tail the writer believes in; the append is refused at any other."""
    part_of: StreamId | None = None
    """One of a row of appends that a single request makes, to the stream with this id only: if
    one of them is refused because the stream ended, the ones behind it are refused too, though
    another stream may have the name by then."""
    expect_message: int | None = None
    """The number the writer believes its first message will have; JSON streams only."""


class Delete(_Command, frozen=True, tag="delete"):
    """Remove a stream; keep its data while forks read it."""


class Touch(_Command, frozen=True, tag="touch"):
    """Renew a sliding TTL on disk: somebody read the stream at `at_ms`."""


class Expire(_Command, frozen=True, tag="expire"):
    """Remove a stream if its lifetime has ended by `at_ms`."""


class Retain(_Command, frozen=True, tag="retain"):
    """Change how much of a stream is kept; None keeps everything."""

    retention: Retention | None = None


class Trim(_Command, frozen=True, tag="trim"):
    """Drop the records before a position, which is the start of a message."""

    to: Position = START


class SaveDocument(_Command, frozen=True, tag="document"):
    """Store one document of the server's own (a subscription, a key), or drop it when None.

    `bucket` is the collection, `name` the document within it.
    """

    value: bytes | None = None


class AppendRecords(_Command, frozen=True, tag="append-records"):
    """Add records as they are, each with headers of its own: all of them or none."""

    bodies: list[bytes]
    headers: list[list[tuple[bytes, bytes]]] | None = None
    """Of each record; None when no record has any."""
    producer: ProducerClaim | None = None
    expect_seq: SeqNum | None = None
    """The tail the writer believes in, by number alone."""

    @property
    def size(self) -> int:
        """Bytes of bodies and headers."""
        headers = self.headers or ()
        pairs = (pair for record in headers for pair in record)
        return sum(map(len, self.bodies)) + sum(len(name) + len(value) for name, value in pairs)


class SetAttributes(_Command, frozen=True, tag="attributes"):
    """Replace a stream's attributes, open or closed."""

    attributes: bytes = b""
    """In canonical form."""


class PublishSnapshot(_Command, frozen=True, tag="snapshot"):
    """Make an upload, whose bytes are stored already, the snapshot of one stream."""

    stream_id: StreamId
    snapshot: Snapshot
    match: str | None = None
    """The digest of the snapshot that it is to replace."""


class TrimToSnapshot(_Command, frozen=True, tag="trim-to-snapshot"):
    """Drop the records before a position, which a snapshot stands for."""

    to: Position = START


class PutBucket(_Command, frozen=True, tag="put-bucket"):
    """Make a bucket, or change it when it is there; without a `config` leave it as it is."""

    config: BucketConfig | None = None


class DropBucket(_Command, frozen=True, tag="drop-bucket"):
    """Remove a bucket that has no streams."""


Command = (
    Create
    | Append
    | Delete
    | Touch
    | Expire
    | SaveDocument
    | Retain
    | Trim
    | AppendRecords
    | SetAttributes
    | PublishSnapshot
    | TrimToSnapshot
    | PutBucket
    | DropBucket
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


def encode(command: Command) -> bytes:
    return _encoder.encode(command)


def decode(data: bytes) -> Command:
    command: Command = _decoder.decode(data)
    return command
