"""Stream names as they stand in a raw path."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote_to_bytes

from headwater.core.errors import InvalidRequest
from headwater.core.names import NameRules, check_stream

NAMES_CACHED_MAX = 16_384
"""Names that need not be checked again: the same few streams are asked for over and over."""


@lru_cache(maxsize=NAMES_CACHED_MAX)
def decode_name(raw: str, rules: NameRules) -> str:
    """A stream name from the raw path; `%2F` is part of the name, never a separator."""
    return check_stream(unescape(raw, "the stream name"), rules)


def unescape(raw: str, what: str) -> str:
    """Part of a path, decoded. Raises InvalidRequest naming `what`."""
    if "%" not in raw:
        return raw
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{what} is not valid UTF-8") from None
