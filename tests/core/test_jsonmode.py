"""JSON mode: what is valid, how it is flattened, and that no byte of a message changes."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import jsonmode
from headwater.core.errors import InvalidRequest
from headwater.core.limits import APPEND_RECORDS_MAX


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        pytest.param(b'{"a":1}', [b'{"a":1}'], id="object"),
        pytest.param(b'"text"', [b'"text"'], id="string"),
        pytest.param(b"null", [b"null"], id="null"),
        pytest.param(b"true", [b"true"], id="true"),
        pytest.param(b"0", [b"0"], id="zero"),
        pytest.param(b"-0.0", [b"-0.0"], id="minus zero"),
        pytest.param(b"1.0", [b"1.0"], id="a float that is whole"),
        pytest.param(b"1E+2", [b"1E+2"], id="an exponent"),
        pytest.param(b"1e400", [b"1e400"], id="larger than a double"),
        pytest.param(b"[1e400,-1e400]", [b"1e400", b"-1e400"], id="larger than a double, in it"),
        pytest.param(b"1e-999", [b"1e-999"], id="smaller than a double"),
        pytest.param(b"12345678901234567890", [b"12345678901234567890"], id="20 digits"),
        pytest.param(
            b'{"n":123456789012345678901234567890}',
            [b'{"n":123456789012345678901234567890}'],
            id="30 digits",
        ),
        pytest.param(b'{"a":1,"a":2}', [b'{"a":1,"a":2}'], id="duplicate keys"),
        pytest.param(b'{"b":1, "a" : 2}', [b'{"b":1, "a" : 2}'], id="order and spaces within"),
        pytest.param(b' \t\r\n{"a":1}\r\n', [b'{"a":1}'], id="whitespace around"),
        pytest.param(b'{"a":1} \n', [b'{"a":1}'], id="whitespace after"),
        pytest.param(b' [ 1 , "x" ,{} ] ', [b"1", b'"x"', b"{}"], id="whitespace in the array"),
        pytest.param(b"[\n[1, 2],\n[]\n]", [b"[1, 2]", b"[]"], id="one level only"),
        pytest.param(b"[[[1]]]", [b"[[1]]"], id="nested"),
        pytest.param(b"[]", [], id="empty array"),
        pytest.param(b"[ \n ]", [], id="empty array with space"),
        pytest.param(b'"\\ud83d\\ude00"', [b'"\\ud83d\\ude00"'], id="escapes stay escapes"),
        pytest.param('"€😀"'.encode(), ['"€😀"'.encode()], id="UTF-8 stays UTF-8"),
        pytest.param(b'"\\u0000"', [b'"\\u0000"'], id="an escaped NUL"),
        pytest.param(b'[","," "]', [b'","', b'" "'], id="commas in strings"),
    ],
)
def test_a_body_is_flattened_and_its_messages_keep_their_text(
    body: bytes, messages: list[bytes]
) -> None:
    assert jsonmode.flatten(body) == messages


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"  ", id="only space"),
        pytest.param(b"{", id="unfinished object"),
        pytest.param(b"[1", id="unfinished array"),
        pytest.param(b"[1,]", id="trailing comma"),
        pytest.param(b"[1,,2]", id="two commas"),
        pytest.param(b'{"a":1,}', id="trailing comma in an object"),
        pytest.param(b'{"a" 1}', id="no colon"),
        pytest.param(b"{1:2}", id="key is no string"),
        pytest.param(b"1 2", id="two values"),
        pytest.param(b"{}{}", id="two objects"),
        pytest.param(b"[1][2]", id="two arrays"),
        pytest.param(b"{},", id="a comma after"),
        pytest.param(b"01", id="leading zero"),
        pytest.param(b"+1", id="plus sign"),
        pytest.param(b"1.", id="no digit after the point"),
        pytest.param(b".5", id="no digit before the point"),
        pytest.param(b"1e", id="no exponent"),
        pytest.param(b"-", id="only a sign"),
        pytest.param(b"NaN", id="NaN"),
        pytest.param(b"[NaN]", id="NaN in an array"),
        pytest.param(b'{"a":Infinity}', id="infinity"),
        pytest.param(b"nul", id="half a word"),
        pytest.param(b"'a'", id="single quotes"),
        pytest.param(b'"a', id="unfinished string"),
        pytest.param(b'"\x01"', id="control character"),
        pytest.param(b'"\n"', id="newline in a string"),
        pytest.param(b'{"a":"\t"}', id="tab in a string"),
        pytest.param(b'"\\x41"', id="unknown escape"),
        pytest.param(b'"\\u12"', id="short escape"),
        pytest.param(b'"\xff"', id="no UTF-8"),
        pytest.param(b'{"a":"\xc3"}', id="half a character"),
        pytest.param(b'["\xed\xa0\x80"]', id="a surrogate as UTF-8"),
        pytest.param(b'"\\ud83d"', id="half a pair of surrogates"),
        pytest.param(b'"\\ude00 and more"', id="the other half"),
        pytest.param(b'"\xc0\xaf"', id="overlong UTF-8"),
        pytest.param(b'\xef\xbb\xbf{"a":1}', id="byte order mark"),
        pytest.param('{"a":1}'.encode("utf-16"), id="UTF-16"),
        pytest.param(b"{}\x00", id="NUL after"),
        pytest.param(b"\x0b1", id="a space that JSON does not know"),
        pytest.param(b"// no\n1", id="comment"),
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not valid JSON"):
        jsonmode.flatten(body)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"[1,["], ids=["arrays", "objects", "mixed"])
def test_absurd_nesting_is_refused_and_breaks_nothing(opening: bytes) -> None:
    with pytest.raises(InvalidRequest):
        jsonmode.flatten(opening * 200_000)


def test_there_is_a_limit_to_the_messages_of_one_append() -> None:
    most = [b"1"] * APPEND_RECORDS_MAX
    assert len(jsonmode.flatten(b"[%b]" % b",".join(most))) == APPEND_RECORDS_MAX
    with pytest.raises(InvalidRequest, match=f"at most {APPEND_RECORDS_MAX} messages"):
        jsonmode.flatten(b"[%b]" % b",".join([*most, b"1"]))


def test_commas_within_messages_do_not_count() -> None:
    numbers = b"[%b]" % b",".join([b"1"] * (APPEND_RECORDS_MAX + 1))
    assert jsonmode.flatten(b'[%b, "x", "%b"]' % (numbers, b"," * APPEND_RECORDS_MAX)) == [
        numbers,
        b'"x"',
        b'"%b"' % (b"," * APPEND_RECORDS_MAX),
    ]


def test_too_many_messages_are_not_all_read() -> None:
    body = b"[" + b"1," * 2_000_000 + b"1]"
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match="at most"):
            jsonmode.flatten(body)
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()


def test_deep_but_sane_nesting_is_kept() -> None:
    message = b"[" * 100 + b"]" * 100
    assert jsonmode.flatten(b"[" + message + b"]") == [message]


@pytest.mark.parametrize(
    "parse",
    [
        pytest.param(lambda body: jsonmode.flatten(b"[" + body + b"]"), id="in an array"),
        pytest.param(lambda body: jsonmode.flatten(b'{"a":' + body + b"}"), id="in an object"),
        pytest.param(jsonmode.check_value, id="a value"),
    ],
)
def test_what_is_accepted_can_be_read_in_deeper_calls_too(parse: Callable[[bytes], object]) -> None:
    def accepts(depth: int) -> bool:
        try:
            return bool(parse(b"[" * depth + b"]" * depth))
        except InvalidRequest:
            return False

    deepest = max(depth for depth in range(100, 2000) if accepts(depth))

    def read(calls: int) -> object:
        if calls:
            return read(calls - 1)
        return msgspec.json.decode(b"[" * deepest + b"]" * deepest, type=msgspec.Raw)

    assert read(jsonmode.DEPTH_SPARE - 10)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@settings(deadline=None)
@given(values=st.lists(json_values, max_size=5), indent=st.sampled_from([None, 0, 3]))
def test_an_array_gives_its_elements_back(values: list[Any], indent: int | None) -> None:
    body = json.dumps(values, indent=indent).encode()
    assert [json.loads(message) for message in jsonmode.flatten(body)] == values


@settings(deadline=None)
@given(body=st.text(alphabet='[]{}",:\\ \n01.eE+-tfnull', max_size=12).map(str.encode))
def test_whatever_is_accepted_is_json_and_whatever_is_json_is_accepted(body: bytes) -> None:
    try:
        expected = json.loads(body, parse_constant=_refuse)
    except ValueError:
        with pytest.raises(InvalidRequest):
            jsonmode.flatten(body)
        return
    found = [json.loads(message) for message in jsonmode.flatten(body)]
    assert found == (expected if isinstance(expected, list) else [expected])


def _refuse(constant: str) -> None:
    raise ValueError(constant)


@pytest.mark.parametrize(
    ("content_type", "media_type"),
    [
        ("application/json", "application/json"),
        ("Application/JSON; charset=UTF-8", "application/json"),
        ("application/json;", "application/json"),
        (" text/plain ", "text/plain"),
        ("application/json-seq", "application/json-seq"),
        ("application/ld+json", "application/ld+json"),
    ],
)
def test_the_media_type_is_without_case_and_parameters(content_type: str, media_type: str) -> None:
    assert jsonmode.media_type(content_type) == media_type
