"""Attributes of a stream: a JSON object with an optional `title` and `metadata`. Ursula: create.

Kept as canonical text (sorted keys, no space), so that equal attributes are equal bytes. Other
members are left out.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from headwater.core import limits
from headwater.core.errors import InvalidRequest

EMPTY = b"{}"
"""What a stream without attributes has."""


def parse_attributes(text: bytes, *, field: str) -> bytes:
    """The canonical form. Raises InvalidRequest naming `field`."""
    if len(text) > limits.ATTRIBUTES_BYTES_MAX:
        raise InvalidRequest(f"{field} is longer than {limits.ATTRIBUTES_BYTES_MAX} bytes")
    try:
        given = json.loads(text.decode(), parse_constant=_refuse_constant)
        kept = _choose(given, field)
        canonical = json.dumps(
            kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        found = canonical.encode()
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{field} is not valid JSON: {error}") from None
    if len(found) > limits.ATTRIBUTES_BYTES_MAX:
        raise InvalidRequest(f"{field} is longer than {limits.ATTRIBUTES_BYTES_MAX} bytes")
    return found


def _choose(given: object, field: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InvalidRequest(f"{field} is a JSON object")
    kept: dict[str, Any] = {}
    for name, kind, word in (("title", str, "a string"), ("metadata", dict, "an object")):
        if name in given:
            if not isinstance(given[name], kind):
                raise InvalidRequest(f"{field}: {name} is {word}")
            kept[name] = given[name]
    return kept


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")
