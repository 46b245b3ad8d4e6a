"""Which records are commands, and what they say. S2 API: append, command records."""

from __future__ import annotations

import pytest

from headwater.core.command_records import Headers, find_commands
from headwater.core.errors import InvalidRecord

FENCE = [(b"", b"fence")]
TRIM = [(b"", b"trim")]


def test_commands_are_found_by_their_only_header() -> None:
    headers: list[Headers] = [[], FENCE, [(b"k", b""), (b"k", b"fence")], TRIM, FENCE]
    bodies = [b"a", "töken".encode(), b"b", (7).to_bytes(8, "big"), b""]
    assert find_commands(bodies, headers) == {1: "töken", 3: 7, 4: ""}
    assert find_commands(bodies, None) == {}


@pytest.mark.parametrize(
    ("headers", "body", "problem"),
    [
        ([(b"", b"fence"), (b"k", b"v")], b"", "not the only one"),
        ([(b"k", b"v"), (b"", b"")], b"", "not the only one"),
        ([(b"", b"")], b"", "fence or trim"),
        ([(b"", b"FENCE")], b"", "fence or trim"),
        ([(b"", b"\xff" * 99)], b"", "fence or trim"),
        (FENCE, b"x" * 37, "at most 36 bytes"),
        (FENCE, b"\xff", "UTF-8"),
        (TRIM, b"", "8 bytes"),
        (TRIM, b"1234567", "8 bytes"),
        (TRIM, b"123456789", "8 bytes"),
    ],
)
def test_what_is_not_a_proper_command_is_refused_by_its_number(
    headers: Headers, body: bytes, problem: str
) -> None:
    with pytest.raises(InvalidRecord, match=f"record 1 .*{problem}"):
        find_commands([b"", body], [[], headers])


def test_the_longest_token_and_the_highest_trim_point_are_taken() -> None:
    found = find_commands([b"x" * 36, b"\xff" * 8], [FENCE, TRIM])
    assert found == {0: "x" * 36, 1: 2**64 - 1}
