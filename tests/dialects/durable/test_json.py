"""JSON mode: boundaries kept, text never rewritten. PROTOCOL §9.1."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.durable import JSON, DurableServer


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b'{"a":1}', b'[{"a":1}]', id="object"),
        pytest.param(b"[1,2,3]", b"[1,2,3]", id="array flattened"),
        pytest.param(b"[[1,2]]", b"[[1,2]]", id="one level only"),
        pytest.param(b"[[]]", b"[[]]", id="an empty array inside"),
        pytest.param(b"[null,true,0]", b"[null,true,0]", id="plain values inside"),
        pytest.param(b"null", b"[null]", id="null"),
        pytest.param(b'"text"', b'["text"]', id="string"),
        pytest.param(b"12345678901234567890", b"[12345678901234567890]", id="large integer"),
        pytest.param(b"1.0", b"[1.0]", id="one point zero"),
        pytest.param(b"1e400", b"[1e400]", id="beyond every float"),
        pytest.param(b"-0", b"[-0]", id="minus zero"),
        pytest.param(b"0.1000", b"[0.1000]", id="zeros at the end"),
        pytest.param(b'{"b":1,"a":2}', b'[{"b":1,"a":2}]', id="key order"),
        pytest.param(b'{"a":1,"a":2}', b'[{"a":1,"a":2}]', id="duplicate keys"),
        pytest.param(b'{ "a" :\t1 }', b'[{ "a" :\t1 }]', id="whitespace inside"),
        pytest.param(b' {"a":1}\r\n', b'[{"a":1}]', id="whitespace around"),
        pytest.param(b'[ {"a": 1} , 2 ]', b'[{"a": 1},2]', id="whitespace between"),
        pytest.param(b'"\\u00e9\\/"', b'["\\u00e9\\/"]', id="escapes"),
        pytest.param('"é😀"'.encode(), '["é😀"]'.encode(), id="characters"),
        pytest.param(
            b'"\\ud83d\\ude00"', b'["\\ud83d\\ude00"]', id="a pair of surrogates, escaped"
        ),
        pytest.param(b'["],[", "\\"]"]', b'["],[","\\"]"]', id="brackets in strings"),
    ],
)
def test_messages_are_given_back_as_they_were_sent(
    server: DurableServer, body: bytes, expected: bytes
) -> None:
    server.make("s", body, content_type=JSON)
    assert server.content() == expected
    assert server.follow("s", "-1").text == expected.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[]", id="empty array"),
        pytest.param(b" [ ] ", id="empty array with spaces"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"{}{}", id="two values"),
        pytest.param(b"1 2", id="two numbers"),
        pytest.param(b"[1,]", id="comma at the end"),
        pytest.param(b"01", id="leading zero"),
        pytest.param(b"NaN", id="NaN"),
        pytest.param(b"'a'", id="single quotes"),
        pytest.param(b'"\xff"', id="not UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', id="a surrogate in UTF-8"),
        pytest.param(b'\xef\xbb\xbf"a"', id="byte order mark"),
        pytest.param(b'"a\nb"', id="a line end in a string"),
        pytest.param(b"   ", id="only spaces"),
        pytest.param(b"//x\n1", id="comment"),
        pytest.param(b"[" * 100_000, id="absurdly deep"),
    ],
)
def test_what_is_not_json_is_refused_whole(server: DurableServer, body: bytes) -> None:
    tail = server.make("s", b"0", content_type=JSON)
    reply = server.post("s", body, content_type=JSON)
    assert (reply.status, reply.error) == (400, "invalid_request")
    assert server.head().next == tail


def test_every_post_is_a_message_of_its_own(server: DurableServer) -> None:
    middle = server.make("s", b'{"n":1}', content_type="application/json; charset=utf-8")
    server.append("s", b'[{"n":2},{"n":3}]')
    assert server.content() == b'[{"n":1},{"n":2},{"n":3}]'
    assert server.content("s", middle) == b'[{"n":2},{"n":3}]'


def test_other_json_types_are_bytes_like_any(server: DurableServer) -> None:
    server.make("s", b"{", b"[]", content_type="application/x-ndjson")
    assert server.content() == b"{[]"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@settings(max_examples=50, deadline=None)
@given(posts=st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=6))
def test_any_values_come_back_in_order(posts: list[list[object]]) -> None:
    with DurableServer(chunk_bytes=16) as server:
        server.make("s", *(json.dumps(values).encode() for values in posts), content_type=JSON)
        found, offset = [], "-1"
        while True:
            reply = server.get("s", offset)
            found += json.loads(reply.body)
            offset = reply.next
            if reply.up_to_date:
                break
        assert found == [value for values in posts for value in values]
