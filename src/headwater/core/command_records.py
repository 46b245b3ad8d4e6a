"""Command records: they take a number like any other and say something about their stream.

A record with exactly one header, whose name is empty, is a command; the value names it. S2 API:
append, command records. `fence` sets the token that later appends may have to know, `trim` lets
everything before a record go.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core import limits
from headwater.core.errors import InvalidRecord
from headwater.core.types import SeqNum

FENCE = b"fence"
TRIM = b"trim"
TRIM_POINT_BYTES = 8

Headers = Sequence[tuple[bytes, bytes]]
CommandRecord = str | SeqNum
"""The new fencing token, or the first record to keep."""


def find_commands(
    bodies: Sequence[bytes], headers: Sequence[Headers] | None
) -> dict[int, CommandRecord]:
    """The command records of an append by their index. Raises InvalidRecord."""
    found = {}
    for index, pairs in enumerate(headers or ()):
        if not pairs or all(name for name, _ in pairs):
            continue
        if len(pairs) > 1:
            raise InvalidRecord(index, "a header has no name, and is not the only one")
        found[index] = _parse(index, pairs[0][1], bodies[index])
    return found


def _parse(index: int, operation: bytes, body: bytes) -> CommandRecord:
    if operation == FENCE:
        return _parse_token(index, body)
    if operation == TRIM:
        if len(body) != TRIM_POINT_BYTES:
            raise InvalidRecord(
                index, f"a trim point is {TRIM_POINT_BYTES} bytes. bytes={len(body)}"
            )
        return SeqNum(int.from_bytes(body, "big"))
    named = operation[:32].decode(errors="replace")
    raise InvalidRecord(index, f"a command is fence or trim. received={named!r}")


def _parse_token(index: int, body: bytes) -> str:
    if len(body) > limits.FENCING_TOKEN_BYTES_MAX:
        raise InvalidRecord(
            index,
            f"a fencing token is at most {limits.FENCING_TOKEN_BYTES_MAX} bytes. bytes={len(body)}",
        )
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise InvalidRecord(index, "a fencing token is UTF-8") from None
