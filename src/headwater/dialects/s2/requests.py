"""Requests of the S2 API to values. Raises Refused with the code that the API has for it.

What cannot be understood is refused before anything is looked up, so that it never makes a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from headwater.core import limits
from headwater.core.command_records import CommandRecord, find_commands
from headwater.core.errors import InvalidRecord, InvalidRequest
from headwater.core.limits import MIB
from headwater.core.stream_config import StreamConfig
from headwater.dialects.names import unescape
from headwater.dialects.s2 import configs
from headwater.dialects.s2.errors import Refused
from headwater.wire.http import Request
from headwater.wire.s2 import bodies, events, frames, protobuf
from headwater.wire.s2.bodies import FORMATS, Format, InvalidBase64
from headwater.wire.s2.events import EventId
from headwater.wire.s2.records import U64_MAX, Input, TooManyRecords, WireError

SESSION_TYPE = "s2s/proto"
EVENTS_TYPE = "text/event-stream"
PROTOBUF_TYPES = ("application/protobuf", "application/x-protobuf")

TYPES_CACHED_MAX = 256
"""Values of Content-Type and Accept that need not be parsed again."""

BATCH_RECORDS_MAX = 1000
BATCH_BYTES_MAX = MIB
"""Of one append, and of one batch that is read. Metered."""
WAIT_S_MAX = 60
"""Of a read that answers with one batch."""

_U32_MAX = 2**32 - 1
READ_PARAMETERS = {
    "seq_num": U64_MAX,
    "timestamp": U64_MAX,
    "tail_offset": U64_MAX,
    "count": U64_MAX,
    "bytes": U64_MAX,
    "until": U64_MAX,
    "wait": _U32_MAX,
}
_SWITCHES = {"true": True, "false": False}


class Sent(NamedTuple):
    """One batch, and its command records by their index."""

    batch: Input
    size: int
    """Metered bytes."""
    commands: Mapping[int, CommandRecord]


class Read(NamedTuple):
    """What a read asks for; None for what it does not say."""

    seq: int | None = None
    time_ms: int | None = None
    tail_offset: int | None = None
    records: int | None = None
    size: int | None = None
    until_ms: int | None = None
    wait_s: int | None = None
    clamp: bool = False

    @property
    def is_bounded(self) -> bool:
        return self.records is not None or self.size is not None or self.until_ms is not None

    def after(self, last: EventId) -> Read:
        """The same read, gone on with behind an event that was received."""
        return self._replace(
            seq=min(last.seq + 1, U64_MAX),
            time_ms=None,
            tail_offset=None,
            records=None if self.records is None else max(0, self.records - last.records),
            size=None if self.size is None else max(0, self.size - last.size),
        )


@lru_cache(maxsize=TYPES_CACHED_MAX)
def media_type(header: bytes | None) -> str:
    """The first type of a Content-Type or Accept header, in lower case; empty when there is none.

    S2 API: only the first entry is looked at.
    """
    if not header:
        return ""
    return header.split(b",", 1)[0].split(b";", 1)[0].strip().lower().decode("latin-1")


def is_session(request: Request) -> bool:
    """Does it ask for a session of frames?"""
    return media_type(request.headers.get(b"content-type")) == SESSION_TYPE


def wants_events(request: Request) -> bool:
    return media_type(request.headers.get(b"accept")) == EVENTS_TYPE


def wants_protobuf(request: Request) -> bool:
    return media_type(request.headers.get(b"accept")) in PROTOBUF_TYPES


def parse_format(request: Request) -> Format:
    """How bytes stand in JSON: `s2-format`."""
    given = request.headers.get(b"s2-format")
    if given is None:
        return Format.RAW
    found = FORMATS.get(given.decode("latin-1").strip())
    if found is None:
        raise Refused("bad_header", "s2-format is raw or base64")
    return found


def parse_last_event_id(request: Request) -> EventId | None:
    given = request.headers.get(b"last-event-id")
    if given is None:
        return None
    found = events.parse_event_id(given.decode("latin-1"))
    if found is None:
        raise Refused("bad_header", "Last-Event-ID is seq_num,count,bytes as it was received")
    return found


# -- what every request may have


def is_json(request: Request) -> bool:
    kind = media_type(request.headers.get(b"content-type"))
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def unpack(request: Request, code: str, bytes_max: int) -> bytes:
    """The body without its Content-Encoding."""
    encoding = request.headers.get(b"content-encoding", b"").strip().lower()
    if encoding in (b"", b"identity"):
        return request.body
    unpacker = _UNPACKERS.get(encoding)
    if unpacker is None:
        raise Refused("bad_header", "Content-Encoding is zstd or gzip")
    try:
        return unpacker(request.body, bytes_max)
    except WireError as error:
        raise Refused(code, str(error)) from None


_UNPACKERS = {b"zstd": frames.decompress_zstd, b"gzip": frames.decompress_gzip}


def parse_config_header(request: Request) -> StreamConfig | None:
    """What a stream is to be like if this very request makes it: `s2-stream-config`."""
    given = request.headers.get(b"s2-stream-config")
    return None if given is None else configs.parse_config_header(given)


# -- reading


def parse_read(request: Request) -> Read:
    """The query of a read. S2 API: read, parameters."""
    numbers: dict[str, int] = {}
    clamp: bool | None = None
    for name, text in _parameters(request.query):
        if name in numbers or (name == "clamp" and clamp is not None):
            raise Refused("bad_query", f"{name} is given more than once")
        if name == "clamp":
            clamp = _SWITCHES.get(text)
            if clamp is None:
                raise Refused("bad_query", f"clamp is true or false. received={text!r}")
        elif name in READ_PARAMETERS:
            numbers[name] = _parse_number(name, text, READ_PARAMETERS[name])
    read = Read(
        seq=numbers.get("seq_num"),
        time_ms=numbers.get("timestamp"),
        tail_offset=numbers.get("tail_offset"),
        records=numbers.get("count"),
        size=numbers.get("bytes"),
        until_ms=numbers.get("until"),
        wait_s=numbers.get("wait"),
        clamp=clamp or False,
    )
    if [read.seq, read.time_ms, read.tail_offset].count(None) < 2:
        raise Refused("invalid", "send one of seq_num, timestamp and tail_offset, not several")
    return read


def check_read(read: Read) -> Read:
    """Raises Refused for a range that nothing can lie in."""
    if read.time_ms is not None and read.until_ms is not None and read.until_ms <= read.time_ms:
        raise Refused("invalid", "timestamp is not before until")
    return read


def _parameters(query: str) -> list[tuple[str, str]]:
    found = []
    try:
        for part in filter(None, query.split("&")):
            name, _, value = part.partition("=")
            found.append((unescape(name, "a parameter"), unescape(value, name)))
    except InvalidRequest as error:
        raise Refused("bad_query", str(error)) from None
    return found


def _parse_number(name: str, text: str, high: int) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= high:
        return int(text)
    raise Refused("bad_query", f"{name} is a whole number from 0 to {high}. received={text!r}")


# -- appending


def parse_append(request: Request, *, body_bytes_max: int) -> Sent:
    """The body of an append that comes whole."""
    kind = media_type(request.headers.get(b"content-type"))
    if kind in PROTOBUF_TYPES:
        return decode_input(unpack(request, "bad_proto", body_bytes_max), "bad_proto")
    if not is_json(request):
        raise Refused("bad_json", "Content-Type is application/json or application/protobuf")
    form = parse_format(request)
    try:
        body = unpack(request, "bad_json", body_bytes_max)
        sent = bodies.decode_input(body, form, records_max=BATCH_RECORDS_MAX)
    except WireError as error:
        raise Refused("bad_json", str(error)) from None
    except TooManyRecords as error:
        raise _miscounted(error.records) from None
    except InvalidBase64 as error:
        raise Refused("invalid", str(error)) from None
    if _is_long(sent.fencing_token):
        raise Refused("bad_json", _TOKEN_RULE)
    return _check_input(sent)


def decode_input(data: bytes, code: str) -> Sent:
    """A protobuf message, or one of a session; `code` is for what is not one."""
    try:
        sent = protobuf.decode_input(data, records_max=BATCH_RECORDS_MAX)
    except WireError as error:
        raise Refused(code, str(error)) from None
    except TooManyRecords as error:
        raise _miscounted(error.records) from None
    if _is_long(sent.fencing_token):
        raise Refused("invalid", _TOKEN_RULE)
    return _check_input(sent)


_TOKEN_RULE = f"a fencing token is at most {limits.FENCING_TOKEN_BYTES_MAX} bytes"


def _is_long(token: str | None) -> bool:
    return token is not None and len(token.encode()) > limits.FENCING_TOKEN_BYTES_MAX


def _check_input(sent: Input) -> Sent:
    """The rules of one batch. Those of its stream come later, with the commit."""
    if not sent.bodies:
        raise _miscounted(0)
    size = sent.metered
    if size > BATCH_BYTES_MAX:
        raise Refused(
            "invalid", f"a batch has at most {BATCH_BYTES_MAX} metered bytes. bytes={size}"
        )
    if sent.headers is None:
        return Sent(sent, size, _NO_COMMANDS)
    headers = max(map(len, sent.headers))
    if headers > limits.RECORD_HEADERS_MAX:
        raise Refused(
            "invalid",
            f"a record has at most {limits.RECORD_HEADERS_MAX} headers. headers={headers}",
        )
    try:
        return Sent(sent, size, find_commands(sent.bodies, sent.headers))
    except InvalidRecord as error:
        raise Refused("invalid", str(error)) from None


def _miscounted(records: int) -> Refused:
    return Refused("invalid", f"a batch has 1 to {BATCH_RECORDS_MAX} records. records={records}")


_NO_COMMANDS: dict[int, CommandRecord] = {}
