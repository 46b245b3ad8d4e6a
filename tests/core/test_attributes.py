"""Attributes: what is kept, in which form."""

from __future__ import annotations

import pytest

from headwater.core.attributes import EMPTY, parse_attributes
from headwater.core.errors import InvalidRequest
from headwater.core.limits import ATTRIBUTES_BYTES_MAX


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("{}", EMPTY),
        (' { "metadata" : {"b": 1, "a": [1, 2.5]}, "title" : "x" } ', None),
        ('{"other":1}', EMPTY),
        ('{"title":"a","title":"b"}', b'{"title":"b"}'),
        ('{"title":"\\u00e9"}', '{"title":"é"}'.encode()),
        ('{"metadata":{"n":12345678901234567890123}}', None),
    ],
)
def test_equal_attributes_are_equal_bytes(text: str, kept: bytes | None) -> None:
    found = parse_attributes(text.encode(), field="x")
    assert kept is None or found == kept
    assert parse_attributes(found, field="x") == found


def test_members_are_sorted_without_space() -> None:
    text = b'{"title":"x", "metadata":{"b":1,"a":{"d":2,"c":3}}}'
    assert parse_attributes(text, field="x") == (
        b'{"metadata":{"a":{"c":3,"d":2},"b":1},"title":"x"}'
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b'{"title":null}',
        b'{"metadata":"x"}',
        b"\xff",
        b'{"metadata":{"a":NaN}}',
    ]
    + [b'{"metadata":' + b'{"a":' * 5000 + b"1" + b"}" * 5001],
)
def test_what_is_no_object_of_that_form_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match="Stream-Attrs"):
        parse_attributes(text, field="Stream-Attrs")


def test_the_limit_is_16_kib_as_sent_and_as_kept() -> None:
    room = ATTRIBUTES_BYTES_MAX - len('{"title":""}')
    assert parse_attributes(b'{"title":"%b"}' % (b"x" * room), field="x")
    with pytest.raises(InvalidRequest):
        parse_attributes(b'{"title":"%b"}' % (b"x" * (room + 1)), field="x")


def test_a_number_too_large_to_write_back_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        parse_attributes(b'{"metadata":{"n":1e400}}', field="x")


def test_the_limit_holds_for_the_form_that_is_kept() -> None:
    numbers = ",".join(["1e22"] * (ATTRIBUTES_BYTES_MAX // 5 - 10))
    text = f'{{"metadata":{{"n":[{numbers}]}}}}'.encode()
    assert len(text) < ATTRIBUTES_BYTES_MAX
    with pytest.raises(InvalidRequest, match="longer than"):
        parse_attributes(text, field="x")
