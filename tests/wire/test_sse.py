"""Events as bytes, judged by a reader written from the WHATWG text. PROTOCOL §5.8."""

from __future__ import annotations

import base64
import codecs
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.wire import sse
from tests.support import event_stream
from tests.support.event_stream import Event


@given(payload=st.text(min_size=1))
@example(payload="\n")
@example(payload="\r\n")
@example(payload=" ")
@example(payload="\n event: control\ndata:{}")
@example(payload="\ufeff")
def test_any_text_survives_except_for_the_kind_of_its_line_ends(payload: str) -> None:
    (event,) = event_stream.parse(sse.data_event(payload.encode()))
    assert event == Event("data", re.sub("\r\n|\r", "\n", payload))


@given(
    payload=st.text(alphabet=" \r\n:a", max_size=12), rest=st.text(alphabet="\r\n:b", max_size=6)
)
def test_an_event_never_leaks_into_the_next_one(payload: str, rest: str) -> None:
    stream = sse.data_event(payload.encode()) + sse.data_event(b"x" + rest.encode())
    assert [event.type for event in event_stream.parse(stream)][-1:] == ["data"]
    assert event_stream.parse(stream)[-1].data.startswith("x")


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        pytest.param(b"hello", b"data:hello", id="one line"),
        pytest.param(b"", b"data:", id="nothing"),
        pytest.param(b" x", b"data:  x", id="a space in front gets one more"),
        pytest.param(b"a\nb", b"data:a\ndata:b", id="LF"),
        pytest.param(b"a\rb", b"data:a\ndata:b", id="CR"),
        pytest.param(b"a\r\nb", b"data:a\ndata:b", id="CRLF is one line end"),
        pytest.param(b"a\n\rb", b"data:a\ndata:\ndata:b", id="LF CR are two"),
        pytest.param(b"a\n\n b", b"data:a\ndata:\ndata:  b", id="an empty line, then a space"),
        pytest.param(b"a\n", b"data:a\ndata:", id="a line end last"),
        pytest.param(
            b"x\nevent: control\ndata: {}\n\nevent: data",
            b"data:x\ndata:event: control\ndata:data: {}\ndata:\ndata:event: data",
            id="a forged event",
        ),
        pytest.param(b"a\xc2\x85b\xe2\x80\xa8c", b"data:a\xc2\x85b\xe2\x80\xa8c", id="NEL and LS"),
    ],
)
def test_a_data_event_byte_for_byte(payload: bytes, expected: bytes) -> None:
    assert sse.data_event(payload) == b"event: data\n%b\n\n" % expected


@given(payload=st.binary(min_size=1))
def test_binary_is_one_line_of_base64_that_decodes_alone(payload: bytes) -> None:
    (event,) = event_stream.parse(sse.base64_event(payload))
    assert event.type == "data"
    assert base64.b64decode(event.data, validate=True) == payload


def test_empty_binary_is_an_empty_string() -> None:
    assert sse.base64_event(b"") == b"event: data\ndata:\n\n"


@pytest.mark.parametrize("cursor", [None, 0, 3_578_400])
@pytest.mark.parametrize("up_to_date", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_a_control_event_says_what_is_true_and_nothing_else(
    cursor: int | None, up_to_date: bool, closed: bool
) -> None:
    data = sse.control_event(b"1_2", cursor=cursor, up_to_date=up_to_date, closed=closed)
    assert data.startswith(b"event: control\ndata:{")
    (event,) = event_stream.parse(data)
    expected: dict[str, object] = {"streamNextOffset": "1_2"}
    if cursor is not None:
        expected["streamCursor"] = str(cursor)
    if up_to_date:
        expected["upToDate"] = True
    if closed:
        expected["streamClosed"] = True
    assert event.type == "control"
    assert json.loads(event.data) == expected


def test_a_heartbeat_is_a_comment_and_dispatches_nothing() -> None:
    assert event_stream.parse(sse.HEARTBEAT) == []
    assert event_stream.comments(sse.HEARTBEAT) == [" heartbeat"]


def waiting_bytes(payload: bytes) -> int:
    """What Python's own decoder keeps back for the next piece."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(payload)
    return len(decoder.getstate()[0])


EDGES = bytes.fromhex("00417f808f909fa0bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5ff")


@given(payload=st.one_of(st.binary(max_size=8), st.lists(st.sampled_from(EDGES)).map(bytes)))
@example(payload=b"\xff")
@example(payload=b"\xc0")
@example(payload=b"\xe0\x80")
@example(payload=b"\xed\xa0")
@example(payload=b"\xf4\x90\x80")
@example(payload=b"\xf0\x9f\x98")
def test_an_incomplete_character_is_one_that_more_bytes_could_complete(payload: bytes) -> None:
    assert sse.incomplete_tail(payload) == waiting_bytes(payload)


@given(text=st.text(max_size=20), cut=st.integers(0, 80))
def test_text_cut_anywhere_is_whole_before_its_incomplete_end(text: str, cut: int) -> None:
    payload = text.encode()[:cut]
    whole = payload[: len(payload) - sse.incomplete_tail(payload)]
    assert text.startswith(whole.decode())
