"""The JSON of the S2 API's data plane: appends, acknowledgements, batches of records.

Bytes are strings there: `raw` is their UTF-8, `base64` is safe for any. S2 API: append, read.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from enum import Enum
from typing import Annotated

import msgspec

from headwater.wire.http import Buffer
from headwater.wire.s2.records import (
    U64_MAX,
    Ack,
    Input,
    Place,
    Records,
    TooManyRecords,
    WireError,
)

_U64 = Annotated[int, msgspec.Meta(ge=0)]
"""Its upper bound is checked by hand: msgspec has none above 2^63."""


class Format(Enum):
    """How bytes are written as strings."""

    RAW = "raw"
    BASE64 = "base64"

    def encode(self, data: Buffer) -> str:
        """What is not UTF-8 is lost in `raw`."""
        if self is Format.RAW:
            return str(data, "utf-8", "replace")
        return binascii.b2a_base64(data, newline=False).decode()

    def decode(self, text: str) -> bytes:
        """Raises InvalidBase64."""
        if self is Format.RAW:
            return text.encode()
        try:
            return binascii.a2b_base64(text, strict_mode=True)
        except ValueError as error:
            raise InvalidBase64(f"not base64: {error}") from None


FORMATS = {
    "raw": Format.RAW,
    "json": Format.RAW,
    "base64": Format.BASE64,
    "json-binsafe": Format.BASE64,
}
"""By the names that clients use, old ones included."""


class InvalidBase64(Exception):
    """Well-formed JSON with a string that is not base64."""


class _SentRecord(msgspec.Struct, gc=False):
    timestamp: _U64 | None = None
    headers: list[tuple[str, str]] = []
    body: str = ""


class _SentInput(msgspec.Struct, gc=False):
    records: list[_SentRecord]
    match_seq_num: _U64 | None = None
    fencing_token: str | None = None


class _Position(msgspec.Struct, gc=False):
    seq_num: int
    timestamp: int


class _Ack(msgspec.Struct, gc=False):
    start: _Position
    end: _Position
    tail: _Position


class _Tail(msgspec.Struct, gc=False):
    tail: _Position


class _Record(msgspec.Struct, omit_defaults=True, gc=False):
    seq_num: int
    timestamp: int
    headers: list[tuple[str, str]] = []
    body: str = ""


class _Batch(msgspec.Struct, omit_defaults=True, gc=False):
    records: list[_Record]
    tail: _Position | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_SentInput).decode


def decode_input(data: bytes, form: Format, *, records_max: int) -> Input:
    """An append. Raises WireError, TooManyRecords and InvalidBase64."""
    try:
        sent = _decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise WireError(str(error)) from None
    except UnicodeDecodeError:
        raise WireError("the JSON is not UTF-8") from None
    if len(sent.records) > records_max:
        raise TooManyRecords(len(sent.records))
    times = [_u64(record.timestamp, "timestamp") for record in sent.records]
    headers = [
        [(form.decode(name), form.decode(value)) for name, value in record.headers]
        for record in sent.records
    ]
    return Input(
        [form.decode(record.body) for record in sent.records],
        headers if any(headers) else None,
        times if any(time is not None for time in times) else None,
        _u64(sent.match_seq_num, "match_seq_num"),
        sent.fencing_token,
    )


def _u64(number: int | None, field: str) -> int | None:
    if number is not None and number > U64_MAX:
        raise WireError(f"{field} is at most {U64_MAX}. received={number}")
    return number


def encode_ack(ack: Ack) -> bytes:
    return _encode(_Ack(*(_Position(*place) for place in ack)))


def encode_tail(tail: Place) -> bytes:
    """The answer to a look at the tail; also the body of a 416."""
    return _encode(_Tail(_Position(*tail)))


def encode_batch(parts: Sequence[Records], tail: Place | None, form: Format) -> bytes:
    """A batch of records. `tail` when it reaches the end of the stream."""
    place = None if tail is None else _Position(*tail)
    return _encode(_Batch([record for part in parts for record in _show(part, form)], place))


def _show(records: Records, form: Format) -> list[_Record]:
    encode = form.encode
    shown = [
        _Record(records.first + index, time_ms, [], encode(body))
        for index, (time_ms, body) in enumerate(zip(records.times, records.bodies, strict=True))
    ]
    if records.headers is not None:
        for record, headers in zip(shown, records.headers, strict=True):
            record.headers = [(encode(name), encode(value)) for name, value in headers]
    return shown
