"""JSON mode: validate a body and flatten it into messages, never rewriting a byte of them.

PROTOCOL §9.1. A top-level array is flattened exactly one level. Messages keep the text they were
sent with, so numbers, key order and duplicate keys survive.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Annotated

import msgspec

from headwater.core.errors import InvalidRequest
from headwater.core.limits import APPEND_RECORDS_MAX

JSON_MEDIA_TYPE = "application/json"
DEFAULT_CONTENT_TYPE = "application/octet-stream"

DEPTH_SPARE = 64
"""How deep JSON may be nested depends on how deep the calls are in which it is parsed. What is
accepted must be readable later, in deeper ones too, so it leaves that many levels to spare."""
_BRACKETS_SAFE = 512
"""A value that has no more of them is not nested deeply enough to be looked at for it."""

_WHITESPACE = b" \t\r\n"
# Raw checks the whole grammar without building values or judging the size of numbers, but not
# that strings are UTF-8: hence the decode of the whole body beside it.
_ONE = msgspec.json.Decoder(msgspec.Raw)
_MANY = msgspec.json.Decoder(list[msgspec.Raw])


@lru_cache(maxsize=1024)
def media_type(content_type: str) -> str:
    """The media type without parameters, in lower case: what content types are compared by."""
    return content_type.split(";", 1)[0].strip().lower()


def check_value(text: bytes) -> bytes:
    """Return `text`, which must be exactly one JSON value, without the space around it.

    An array is one value here. Raises InvalidRequest.
    """
    try:
        text.decode()
        stripped = text.strip(_WHITESPACE)
        _ONE.decode(stripped)
        _check_depth(stripped)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is not one JSON value: {error}") from None
    return stripped


def flatten(body: bytes) -> list[bytes]:
    """Return the messages of `body`; an empty list for `[]`. Raises InvalidRequest.

    There are at most APPEND_RECORDS_MAX of them.
    """
    try:
        body.decode()
        if body[:1] in (b"{", b'"'):
            _ONE.decode(body)
            _check_depth(body)
            return [body.rstrip(_WHITESPACE)]
        stripped = body.strip(_WHITESPACE)
        if stripped[:1] == b"[":
            if stripped.count(b",") >= APPEND_RECORDS_MAX:
                _check_count(stripped)
            messages = [bytes(raw).strip(_WHITESPACE) for raw in _MANY.decode(stripped)]
            if max(map(len, messages), default=0) > _BRACKETS_SAFE:
                for message in messages:
                    _check_depth(message)
            return messages
        _ONE.decode(stripped)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    return [stripped]


def _check_depth(value: bytes) -> None:
    """Raises RecursionError if a valid value could not be read everywhere."""
    if len(value) > _BRACKETS_SAFE and value.count(b"[") + value.count(b"{") > _BRACKETS_SAFE:
        _ONE.decode(b"%b%b%b" % (b"[" * DEPTH_SPARE, value, b"]" * DEPTH_SPARE))


@cache
def _limited() -> msgspec.json.Decoder[object]:
    """Reads as many messages as there may be, and stops at the next one, which nothing can be.

    A bound on the length of a list is looked at only when the list is there, and a list of tens of
    millions of tiny messages takes gigabytes.
    """
    nothing = Annotated[int, msgspec.Meta(ge=1, le=0)]
    parts = (*[msgspec.Raw] * APPEND_RECORDS_MAX, nothing)
    return msgspec.json.Decoder(tuple[parts])  # type: ignore[valid-type]


def _check_count(array: bytes) -> None:
    """Raises InvalidRequest when the array has more messages than there may be."""
    try:
        _limited().decode(array)
    except msgspec.ValidationError as error:
        if str(error).endswith(f"$[{APPEND_RECORDS_MAX}]`"):
            raise InvalidRequest(f"an append has at most {APPEND_RECORDS_MAX} messages") from None
