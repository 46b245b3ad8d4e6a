"""How a long message becomes several records."""

from __future__ import annotations

import pytest

from headwater.core.limits import MIB, RECORD_BODY_BYTES_MAX
from headwater.core.records import split_message


@pytest.mark.parametrize(
    ("size", "parts"),
    [
        (0, 1),
        (1, 1),
        (RECORD_BODY_BYTES_MAX, 1),
        (RECORD_BODY_BYTES_MAX + 1, 2),
        (2 * RECORD_BODY_BYTES_MAX, 2),
        (32 * MIB, 35),
    ],
)
def test_a_message_is_cut_into_full_records_and_a_rest(size: int, parts: int) -> None:
    message = bytes(size)
    found = split_message(message)
    assert len(found) == parts
    assert b"".join(found) == message
    assert all(len(part) == RECORD_BODY_BYTES_MAX for part in found[:-1])
    assert len(found[-1]) <= RECORD_BODY_BYTES_MAX
