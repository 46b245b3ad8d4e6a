"""Where the dialects that share the routes of this package differ, as one value.

The routes ask it and never which dialect they serve. `DURABLE` is the protocol's own; Ursula has
its own in dialects/ursula.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from headwater.core.append import Appended
from headwater.core.errors import HeadwaterError, InvalidRequest
from headwater.core.lifecycle import Created
from headwater.core.names import DURABLE_STREAMS_BUCKET, NameRules
from headwater.core.types import START, Position, TimestampMs
from headwater.dialects.durable import responses
from headwater.dialects.durable.errors import render_error
from headwater.dialects.durable.live import PLAIN_EVENTS, EventForm
from headwater.dialects.names import NAMES_CACHED_MAX, decode_name
from headwater.engine.engine import Engine
from headwater.engine.opening import Opener
from headwater.engine.streams import Stream
from headwater.wire import headers, offsets
from headwater.wire.http import Request, Response

ROOT = "/v1/stream"


class Address(NamedTuple):
    """Which stream."""

    bucket: str
    name: str


class ForkStart(NamedTuple):
    """Where a fork is asked to leave its source: a position, a byte, or None for the tail."""

    at: Position | None = None
    byte: int | None = None


class ReadQuery(NamedTuple):
    """What a GET asks for."""

    start: offsets.Start | None
    live: str | None
    cursor: int | None
    touches: bool
    """Reading renews a sliding TTL, unless the reader asks not to."""
    timeout_s: float | None = None
    """How long a long-poll waits, if the reader says."""
    size_max: int | None = None
    """Body bytes of an answer, if the reader says."""
    records_max: int | None = None
    """Messages of an answer, if the reader says."""
    view: str | None = None
    """How the messages are to be shown, if the reader says."""
    opener: Opener | None = None
    """Has the key of an encrypted stream."""


@dataclass(frozen=True, slots=True)
class DialectRules:
    """One dialect's answers to what the protocol leaves open, or another one settles otherwise."""

    parse_address: Callable[[str, NameRules], Address]
    """The stream that a raw path names."""
    parse_source: Callable[[str, NameRules], Address]
    """The stream that `Stream-Forked-From` names."""
    parse_fork_start: Callable[[str], ForkStart]
    """What `Stream-Fork-Offset` says."""
    parse_start: Callable[[str], offsets.Start]
    """What `offset` says."""
    parse_attributes: Callable[[headers.Headers], bytes | None]
    """What a create says about attributes, in canonical form; None compares nothing."""
    parse_extras: Callable[[dict[str, str], ReadQuery], ReadQuery]
    """What else the parameters of a read say."""
    form_of: Callable[[Engine, Request, Stream, ReadQuery], responses.Form | None]
    """How a read of this stream is shown to this client; None as the protocol has it."""
    event_form_of: Callable[[Engine, Stream, ReadQuery], EventForm]
    """The same for live=sse."""
    render_created: Callable[[Engine, Created, str], Response]
    """The answer to a create, given the stream's URL."""
    render_appended: Callable[[Appended], Response]
    render_head: Callable[[Engine, Stream, TimestampMs], Response]
    render_write_error: Callable[[HeadwaterError], Response]
    render_read_error: Callable[[HeadwaterError], Response]
    ttl_anchor: str
    """What a TTL counts from when the request does not say: `access` or `creation`."""
    fork_takes_body: bool
    """The body of a fork's create is appended after what it inherits; else it is ignored."""
    fork_retypes: bool
    """A fork may have another content type, if what it inherits allows it."""


@lru_cache(maxsize=NAMES_CACHED_MAX)
def _parse_address(path: str, rules: NameRules) -> Address:
    name = decode_name(path[len(ROOT) + 1 :], rules)
    if name == "__ds" or name.startswith("__ds/"):
        raise InvalidRequest("names that begin with __ds are reserved")
    return Address(DURABLE_STREAMS_BUCKET, name)


def _parse_source(path: str, rules: NameRules) -> Address:
    if not path.startswith(ROOT + "/"):
        raise InvalidRequest(f"Stream-Forked-From is the path of a stream under {ROOT}/")
    return Address(DURABLE_STREAMS_BUCKET, decode_name(path[len(ROOT) + 1 :], rules))


def parse_fork_start(text: str) -> ForkStart:
    """A token, -1 or now."""
    position = offsets.parse(text)
    if position is offsets.Sentinel.NOW:
        return ForkStart()
    if position is offsets.Sentinel.BEGINNING:
        return ForkStart(START)
    assert isinstance(position, Position)
    return ForkStart(position)


DURABLE = DialectRules(
    parse_address=_parse_address,
    parse_source=_parse_source,
    parse_fork_start=parse_fork_start,
    parse_start=offsets.parse_start,
    parse_attributes=lambda given: None,
    parse_extras=lambda query, found: found,
    form_of=lambda engine, request, stream, query: None,
    event_form_of=lambda engine, stream, query: PLAIN_EVENTS,
    render_created=lambda engine, created, location: responses.render_created(created, location),
    render_appended=responses.render_appended,
    render_head=lambda engine, stream, now_ms: responses.render_head(stream, now_ms),
    render_write_error=render_error,
    render_read_error=render_error,
    ttl_anchor="access",
    fork_takes_body=True,
    fork_retypes=False,
)
