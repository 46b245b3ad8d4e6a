"""Request headers to values and back: lifetimes, booleans, producers. PROTOCOL §5.1, §5.2.1."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from headwater.core import limits
from headwater.core.errors import InvalidRequest
from headwater.core.producer import ProducerClaim
from headwater.core.types import BatchSeq, Epoch, TimestampMs

_TTL = re.compile(rb"(?:0|[1-9][0-9]{0,17})\Z")
_NUMBER = re.compile(rb"[0-9]{1,16}\Z")
_MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_RFC3339 = re.compile(
    rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})[Tt]({_MINUTE}):([0-5][0-9]|60)"
    rf"(?:\.([0-9]+))?([Zz]|[+-]{_MINUTE})\Z"
)
_ENCODED_TAG = re.compile(rb'-(?:gzip|zstd)"\Z')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Headers = dict[bytes, bytes]

ENCRYPTION_KEY = b"s2-encryption-key"
"""The key of an encrypted stream, in base64, on every dialect. S2 API: encryption."""


def parse_text(headers: Headers, name: bytes, *, bytes_max: int) -> str | None:
    """A header as text, one character a byte: it compares bytewise and is echoed as it came."""
    value = headers.get(name)
    if value is None:
        return None
    if len(value) > bytes_max:
        raise InvalidRequest(f"{_title(name)} is longer than {bytes_max} bytes")
    return value.decode("latin-1")


def parse_flag(headers: Headers, name: bytes) -> bool:
    """Only `true`, in any case, counts; everything else is as good as absent. PROTOCOL §4.1."""
    value = headers.get(name)
    return value is not None and value.lower() == b"true"


def parse_lifetime(headers: Headers) -> tuple[int | None, TimestampMs | None]:
    """`Stream-TTL` in seconds or `Stream-Expires-At` in milliseconds, never both."""
    ttl, expires = headers.get(b"stream-ttl"), headers.get(b"stream-expires-at")
    if ttl is not None and expires is not None:
        raise InvalidRequest("send Stream-TTL or Stream-Expires-At, not both")
    if ttl is not None:
        if not _TTL.match(ttl):
            raise InvalidRequest(
                "Stream-TTL is a whole number of seconds without sign, leading zeros or fraction"
            )
        return int(ttl), None
    if expires is not None:
        return None, parse_rfc3339(expires.decode("latin-1"), field="Stream-Expires-At")
    return None, None


def parse_rfc3339(text: str, *, field: str) -> TimestampMs:
    """A full RFC 3339 timestamp, any zone. Raises InvalidRequest naming `field`."""
    found = _RFC3339.match(text)
    problem = f"{field} is an RFC 3339 timestamp such as 2030-01-31T12:00:00Z. received={text!r}"
    if found is None:
        raise InvalidRequest(problem)
    day, minute, second, fraction, zone = found.groups()
    leap = second == "60"
    whole = f"{day}T{minute}:{'59' if leap else second}"
    offset = "+00:00" if zone in "Zz" else zone
    try:
        moment = datetime.fromisoformat(f"{whole}{offset}").astimezone(UTC)
        if leap and (moment.hour, moment.minute) != (23, 59):
            raise ValueError("a leap second is the last second of a day")
        moment += timedelta(seconds=1 if leap else 0)
    except (ValueError, OverflowError):
        raise InvalidRequest(problem) from None
    milliseconds = int(((fraction or "") + "000")[:3])
    return TimestampMs(max(0, (moment - _EPOCH) // timedelta(milliseconds=1) + milliseconds))


def render_rfc3339(at_ms: TimestampMs) -> bytes:
    moment = _EPOCH + timedelta(milliseconds=at_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.").encode() + b"%03dZ" % (at_ms % 1000)


def parse_producer(headers: Headers) -> ProducerClaim | None:
    """The `Producer-*` triple: all three or none."""
    producer_id = headers.get(b"producer-id")
    epoch, seq = headers.get(b"producer-epoch"), headers.get(b"producer-seq")
    if producer_id is None and epoch is None and seq is None:
        return None
    if producer_id is None or epoch is None or seq is None:
        raise InvalidRequest("send Producer-Id, Producer-Epoch and Producer-Seq together")
    if not producer_id:
        raise InvalidRequest("Producer-Id is empty")
    text = parse_text(headers, b"producer-id", bytes_max=limits.PRODUCER_ID_BYTES_MAX)
    assert text is not None
    return ProducerClaim(
        text, Epoch(_number(epoch, "Producer-Epoch")), BatchSeq(_number(seq, "Producer-Seq"))
    )


def _number(value: bytes, field: str) -> int:
    if _NUMBER.match(value):
        number = int(value)
        if number <= limits.PRODUCER_NUMBER_MAX:
            return number
    raise InvalidRequest(f"{field} is a whole number from 0 to 2^53-1")


def matching_etag(if_none_match: bytes, etag: bytes) -> bytes | None:
    """The tag of a list, or `*`, that fits `etag` by weak comparison. RFC 9110 §13.1.2.

    The tag of a compressed answer counts as that of the plain one, since it is the same range,
    and is returned as it is: a 304 must name what the client has.
    """
    if if_none_match.strip() == b"*":
        return etag
    for part in if_none_match.split(b","):
        tag = part.strip().removeprefix(b"W/")
        if _ENCODED_TAG.sub(b'"', tag) == etag:
            return tag
    return None


def _title(name: bytes) -> str:
    return name.decode().title()
