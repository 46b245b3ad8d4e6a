"""Records as columns, and how they are measured: the official SDK is asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from s2_sdk import Record, metered_bytes

from headwater.wire.s2.records import Input, Records

data = st.binary(max_size=20)
rows = st.lists(st.tuples(st.lists(st.tuples(data, data), max_size=3), data), max_size=5)


@given(rows)
def test_records_are_metered_as_the_sdk_meters_them(
    found: list[tuple[list[tuple[bytes, bytes]], bytes]],
) -> None:
    bodies = [body for _, body in found]
    headers = [pairs for pairs, _ in found]
    expected = [metered_bytes([Record(body=body, headers=pairs)]) for pairs, body in found]

    assert Input(bodies, headers, None).metered == sum(expected)
    assert Records(0, [0] * len(found), bodies, headers).sizes() == expected
    plain = [metered_bytes([Record(body=body)]) for body in bodies]
    assert Input(bodies, None, None).metered == sum(plain)
    assert Records(0, [0] * len(found), bodies, None).sizes() == plain


def test_a_part_of_records_keeps_their_numbers() -> None:
    plain = Records(5, [1, 2, 3], [b"a", b"b", b"c"], None)
    headed = plain._replace(headers=[[], [(b"n", b"v")], []])

    assert plain.part(0, 3) is plain
    assert plain.part(1, 2) == Records(6, [2], [b"b"], None)
    assert headed.part(1, 3) == Records(6, [2, 3], [b"b", b"c"], [[(b"n", b"v")], []])
