"""The JSON of appends and batches."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.wire.s2 import bodies
from headwater.wire.s2.bodies import FORMATS, Format, InvalidBase64
from headwater.wire.s2.records import U64_MAX, Ack, Place, Records, TooManyRecords, WireError


@given(st.binary(max_size=40))
def test_base64_is_there_and_back(data: bytes) -> None:
    text = Format.BASE64.encode(memoryview(data))

    assert text == base64.b64encode(data).decode()
    assert Format.BASE64.decode(text) == data


@given(st.text(max_size=40))
def test_raw_is_utf_8(text: str) -> None:
    data = Format.RAW.decode(text)

    assert data == text.encode()
    assert Format.RAW.encode(memoryview(data)) == text


def test_raw_replaces_what_is_not_text() -> None:
    assert Format.RAW.encode(b"a\xff\xfeb") == "a\ufffd\ufffdb"


@pytest.mark.parametrize("text", ["a", "ab==c", "a b=", "YQ", "YQ=", "YQ===", "Y-_=", "é"])
def test_what_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(InvalidBase64):
        Format.BASE64.decode(text)


def test_formats_have_old_names_too() -> None:
    assert FORMATS == {
        "raw": Format.RAW,
        "json": Format.RAW,
        "base64": Format.BASE64,
        "json-binsafe": Format.BASE64,
    }


def test_an_append_may_leave_everything_out() -> None:
    found = bodies.decode_input(b'{"records": [{}], "later": 1}', Format.RAW, records_max=10)

    assert found == ([b""], None, None, None, None)


def test_an_append_in_full() -> None:
    sent = {
        "records": [
            {"timestamp": U64_MAX, "headers": [["a", ""], ["a", "b"]], "body": "x"},
            {"timestamp": None},
        ],
        "match_seq_num": U64_MAX,
        "fencing_token": "é",
    }

    found = bodies.decode_input(json.dumps(sent).encode(), Format.RAW, records_max=10)

    assert found.bodies == [b"x", b""]
    assert found.headers == [[(b"a", b""), (b"a", b"b")], []]
    assert found.times == [U64_MAX, None]
    assert (found.match_seq_num, found.fencing_token) == (U64_MAX, "é")


def test_base64_is_for_names_and_values_too() -> None:
    sent = b'{"records": [{"headers": [["/w==", "AA=="]], "body": "gA=="}]}'

    found = bodies.decode_input(sent, Format.BASE64, records_max=10)

    assert found.headers == [[(b"\xff", b"\0")]]
    assert found.bodies == [b"\x80"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b'{"records": null}',
        b'{"records": [{}], "match_seq_num": -1}',
        b'{"records": [{"timestamp": 18446744073709551616}]}',
        b'{"records": [{}], "match_seq_num": 18446744073709551616}',
        b'{"records": [{"body": "\xff"}]}',
        b'{"records": [{}]} more',
    ],
)
def test_what_is_not_an_append_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        bodies.decode_input(data, Format.RAW, records_max=10)


def test_absurd_nesting_is_refused() -> None:
    nested = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(WireError):
        bodies.decode_input(b'{"records": [{}], "x": %b}' % nested, Format.RAW, records_max=10)


def test_more_records_than_are_taken_are_refused() -> None:
    sent = b'{"records": [{}, {}, {}]}'

    assert len(bodies.decode_input(sent, Format.RAW, records_max=3).bodies) == 3
    with pytest.raises(TooManyRecords):
        bodies.decode_input(sent, Format.RAW, records_max=2)


def test_an_acknowledgement() -> None:
    ack = Ack(Place(0, 1), Place(2, 3), Place(U64_MAX, U64_MAX))

    assert json.loads(bodies.encode_ack(ack)) == {
        "start": {"seq_num": 0, "timestamp": 1},
        "end": {"seq_num": 2, "timestamp": 3},
        "tail": {"seq_num": U64_MAX, "timestamp": U64_MAX},
    }


def test_a_tail() -> None:
    assert bodies.encode_tail(Place(1, 2)) == b'{"tail":{"seq_num":1,"timestamp":2}}'


def test_a_batch_leaves_out_what_is_empty() -> None:
    plain = Records(7, [1, 2], [b"a", b""], None)
    headed = Records(9, [3], [b""], [[(b"n", b"")]])

    assert json.loads(bodies.encode_batch([plain, headed], Place(10, 3), Format.RAW)) == {
        "records": [
            {"seq_num": 7, "timestamp": 1, "body": "a"},
            {"seq_num": 8, "timestamp": 2},
            {"seq_num": 9, "timestamp": 3, "headers": [["n", ""]]},
        ],
        "tail": {"seq_num": 10, "timestamp": 3},
    }
    assert bodies.encode_batch([], None, Format.RAW) == b'{"records":[]}'
