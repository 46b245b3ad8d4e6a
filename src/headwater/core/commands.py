"""Everything that can change a stream, as values with a byte encoding.

The same commands in the same order give the same state on every machine, so whatever varies
(time, new ids, random choices) is a field. The encoding is MessagePack arrays tagged by kind;
fields are only ever added at the end, with a default. PROTOCOL §5, Ursula: create.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from headwater.core.buckets import BucketConfig
from headwater.core.producer import ProducerClaim
from headwater.core.retention import Retention
from headwater.core.stream import Snapshot
from headwater.core.stream_config import StreamConfig
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


class ProvisionMode(StrEnum):
    """What to do about a stream or bucket that is there already."""

    CREATE = "create"  # refuse, unless it was made by this very request
    ENSURE = "ensure"  # give it this configuration
    KEEP = "keep"  # leave it as it is


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


class Sealed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is added to an encrypted stream, in place of a body: encrypted before it got here."""

    seal_id: bytes
    """Of the stream that it is encrypted for; no other takes it."""
    bodies: list[bytes]
    """Of each message."""
    headers: list[list[tuple[bytes, bytes]]]
    """Of each message: one seal for each record that it is going to be."""
    refusal: str | None = None
    """What was wrong with the body. Nothing is added then; other refusals come first."""

    @property
    def size(self) -> int:
        """Bytes of the bodies, which are as long as they were in clear."""
        return sum(map(len, self.bodies))


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
    cipher: str | None = None
    """What the bucket has its new streams encrypted with; a fork has its source's first."""
    seal_id: bytes | None = None
    """Random, when there is a cipher: what the records will be sealed for."""
    sealed: Sealed | None = None
    """In place of a body."""
    sealed_after: StreamId | None = None
    """The source of a fork as it was when this was sealed; refused if it is another by now."""


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
    sealed: Sealed | None = None
    """In place of a body, for an encrypted stream."""


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
    stream_id: StreamId | None = None
    """Only of this stream, and not of a later one with the same name."""


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
    times: list[TimestampMs | None] | None = None
    """What the writer says of each record; None for its arrival."""
    commands: bool = False
    """The rules of S2: a single header without a name makes a command of its record, no body is
    cut into several records, and a stream may require `times`."""
    fencing_token: str | None = None
    """What the writer believes to be the stream's token; None does not ask."""
    seal_id: bytes | None = None
    """The records are encrypted, for the stream with this `seal_id` only; commands are not. In
    place of its headers each has one seal for each record that its body is going to be."""
    refusal: tuple[int, str] | None = None
    """What was wrong with a record, found when it was to be sealed, and the index of that. Nothing
    is added then; other refusals come first."""

    @property
    def size(self) -> int:
        """Bytes of bodies and headers."""
        size = sum(map(len, self.bodies))
        if self.headers is None:
            return size
        pairs = (pair for record in self.headers for pair in record)
        return size + sum(len(name) + len(value) for name, value in pairs)


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


class Provision(_Command, frozen=True, tag="provision"):
    """Make a stream with a configuration, or deal with the one that is there. S2 API: streams."""

    mode: ProvisionMode = ProvisionMode.CREATE
    config: StreamConfig = StreamConfig()
    """Every field is said."""
    creation_token: bytes | None = None
    cipher: str | None = None
    seal_id: bytes | None = None
    """Random, when there is a cipher: what the records will be sealed for."""


class Reconfigure(_Command, frozen=True, tag="reconfigure"):
    """Set the fields of a stream's configuration that `config` says."""

    config: StreamConfig = StreamConfig()


class ProvisionBucket(_Command, frozen=True, tag="provision-bucket"):
    """Make a bucket with the fields that S2 knows, or deal with the one that is there."""

    mode: ProvisionMode = ProvisionMode.CREATE
    config: BucketConfig = BucketConfig()


class ReconfigureBucket(_Command, frozen=True, tag="reconfigure-bucket"):
    """Set fields of a bucket by their names, those left out stay. S2 API: basins."""

    fields: dict[str, str | bool | None] = {}
    """Of BucketConfig."""
    stream_defaults: dict[str, str | int | bool | None] = {}
    """Of its `stream_defaults`; None unsays a field."""


class DeleteBucket(_Command, frozen=True, tag="delete-bucket"):
    """Remove a bucket with all its streams, in the background; again has no effect."""


class AppendSeries(_Command, frozen=True, tag="append-series"):
    """Appends that follow one another, each judged by itself: the first that is refused is the
    last that is looked at. How a session makes sure that nothing behind a failure takes effect.
    S2 API: sessions."""

    parts: list[AppendRecords] = []
    stream_id: StreamId | None = None
    """Only to this stream, and not to a later one with the same name."""


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
    | Provision
    | Reconfigure
    | ProvisionBucket
    | ReconfigureBucket
    | DeleteBucket
    | AppendSeries
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)


def encode(command: Command) -> bytes:
    return _encoder.encode(command)


def decode(data: bytes) -> Command:
    command: Command = _decoder.decode(data)
    return command
