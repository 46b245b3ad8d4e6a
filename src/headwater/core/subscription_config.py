"""What a subscription is asked to be: the body of its PUT, checked and normalised. PROTOCOL §6.2.

The errors of the whole subscription API are here too: one class, told apart by its code.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Literal, NoReturn, TypeVar

import msgspec

from headwater.core.errors import InvalidRequest
from headwater.core.globs import RESERVED_SEGMENT, Glob
from headwater.core.limits import KIB
from headwater.core.names import check_stream

LEASE_TTL_MS_MIN = 1_000
LEASE_TTL_MS_MAX = 600_000
LEASE_TTL_MS_DEFAULT = 30_000
ID_BYTES_MAX = 256
WORKER_BYTES_MAX = 256
PATTERN_BYTES_MAX = 1 * KIB
DESCRIPTION_BYTES_MAX = 4 * KIB
EXPLICIT_STREAMS_MAX = 1_000
"""Streams that one subscription names itself. A pattern may match any number."""

T = TypeVar("T")


class Code(Enum):
    """Why a request about a subscription was refused. Part of the protocol."""

    INVALID_REQUEST = "INVALID_REQUEST"
    WEBHOOK_URL_REJECTED = "WEBHOOK_URL_REJECTED"
    SUBSCRIPTION_NOT_FOUND = "SUBSCRIPTION_NOT_FOUND"
    SUBSCRIPTION_ALREADY_EXISTS = "SUBSCRIPTION_ALREADY_EXISTS"
    TOKEN_INVALID = "TOKEN_INVALID"
    TOKEN_EXPIRED = "TOKEN_EXPIRED"
    FENCED = "FENCED"
    ALREADY_CLAIMED = "ALREADY_CLAIMED"
    NO_PENDING_WORK = "NO_PENDING_WORK"
    INVALID_OFFSET = "INVALID_OFFSET"


class SubscriptionError(Exception):
    """A request about a subscription that is refused; it changed nothing."""

    def __init__(self, code: Code, message: str, **details: str | int) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


def refuse(message: str) -> NoReturn:
    raise SubscriptionError(Code.INVALID_REQUEST, message)


class Config(msgspec.Struct, frozen=True):
    """What was asked for, normalised: equal configurations have equal hashes."""

    type: Literal["webhook", "pull-wake"]
    pattern: str | None
    streams: tuple[str, ...]
    """Sorted, each once."""
    webhook_url: str | None
    wake_stream: str | None
    lease_ttl_ms: int
    description: str | None

    def hash(self) -> str:
        """Frozen: stored with the subscription and compared when it is confirmed."""
        canonical = msgspec.json.encode(msgspec.structs.astuple(self))
        return hashlib.sha256(canonical).hexdigest()


class _Webhook(msgspec.Struct):
    url: str


class _ConfigBody(msgspec.Struct):
    type: Literal["webhook", "pull-wake"]
    pattern: str | None = None
    streams: list[str] | None = None
    webhook: _Webhook | None = None
    wake_stream: str | None = None
    lease_ttl_ms: int | None = None
    description: str | None = None


class _StreamsBody(msgspec.Struct):
    streams: list[str]


class _ClaimBody(msgspec.Struct):
    worker: str


class Ack(msgspec.Struct, frozen=True):
    """One cursor to move. `path` is another name for `stream`."""

    offset: str
    stream: str = ""
    path: str = ""

    @property
    def name(self) -> str:
        return self.stream or self.path


class AckBody(msgspec.Struct, frozen=True):
    """The body of a callback, an ack or a release. PROTOCOL §7.1, §7.2."""

    wake_id: str | None = None
    generation: int | None = None
    acks: list[Ack] | None = None
    done: bool | None = None


def parse_config(body: bytes) -> Config:
    """The body of PUT subscriptions/:id. The webhook's URL is judged elsewhere."""
    asked = decode_json(body, _ConfigBody)
    pattern = relative(asked.pattern or "") or None
    streams = check_streams(asked.streams or [])
    if pattern is None and not streams:
        refuse("a subscription needs a pattern, or streams, or both")
    if pattern is not None:
        _check_pattern(pattern)
    webhook_url = asked.webhook.url if asked.webhook is not None else None
    if asked.type == "webhook" and not webhook_url:
        refuse("a webhook subscription needs webhook.url")
    wake_stream = check_streams([asked.wake_stream])[0] if asked.wake_stream else None
    if asked.type == "pull-wake":
        if wake_stream is None:
            refuse("a pull-wake subscription needs a wake_stream")
        if wake_stream in streams:
            refuse("a subscription cannot watch its own wake_stream")
    lease_ttl_ms = LEASE_TTL_MS_DEFAULT if asked.lease_ttl_ms is None else asked.lease_ttl_ms
    if not LEASE_TTL_MS_MIN <= lease_ttl_ms <= LEASE_TTL_MS_MAX:
        refuse(
            f"lease_ttl_ms is from {LEASE_TTL_MS_MIN} to {LEASE_TTL_MS_MAX}. "
            f"received={lease_ttl_ms}"
        )
    if asked.description is not None:
        _check_size("description", asked.description, DESCRIPTION_BYTES_MAX)
    return Config(
        asked.type, pattern, streams, webhook_url, wake_stream, lease_ttl_ms, asked.description
    )


def parse_streams(body: bytes) -> tuple[str, ...]:
    """The body of POST subscriptions/:id/streams."""
    return check_streams(decode_json(body, _StreamsBody).streams)


def parse_worker(body: bytes) -> str:
    """The body of POST subscriptions/:id/claim."""
    worker = decode_json(body, _ClaimBody).worker
    if not worker:
        refuse("worker is empty; name whoever claims, so that others can see it")
    _check_size("worker", worker, WORKER_BYTES_MAX)
    return worker


def parse_ack(body: bytes) -> AckBody:
    """The body of a callback, an ack or a release; an empty one says nothing."""
    return decode_json(body or b"{}", AckBody)


def check_id(subscription_id: str) -> str:
    """Return the id, or refuse it."""
    if not subscription_id or not subscription_id.isprintable():
        refuse("a subscription id is printable text, and not empty")
    _check_size("the subscription id", subscription_id, ID_BYTES_MAX)
    return subscription_id


def check_streams(names: list[str]) -> tuple[str, ...]:
    """Names relative to the stream root, sorted and each once. Refuses impossible ones."""
    found = {relative(name) for name in names}
    if len(found) > EXPLICIT_STREAMS_MAX:
        refuse(f"streams holds at most {EXPLICIT_STREAMS_MAX} names; use a pattern for more")
    for name in found:
        try:
            check_stream(name)
        except InvalidRequest as error:
            refuse(f"{error}. stream={name!r}")
        if name.split("/", 1)[0] == RESERVED_SEGMENT:
            refuse(f"names that begin with {RESERVED_SEGMENT} are reserved. stream={name!r}")
    return tuple(sorted(found))


def relative(path: str) -> str:
    """Bodies name streams relative to the stream root; slashes around a name mean nothing."""
    return path.strip("/")


def decode_json(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        refuse(f"the body is not the JSON this request needs: {error}")


def _check_pattern(pattern: str) -> None:
    _check_size("pattern", pattern, PATTERN_BYTES_MAX)
    try:
        Glob(pattern)
    except InvalidRequest as error:
        refuse(str(error))


def _check_size(field: str, text: str, bytes_max: int) -> None:
    if len(text.encode()) > bytes_max:
        refuse(f"{field} is longer than {bytes_max} bytes")
