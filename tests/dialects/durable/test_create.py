"""PUT {stream}. PROTOCOL §5.1."""

from __future__ import annotations

import pytest

from tests.support.durable import (
    BYTES,
    JSON,
    START,
    TEXT,
    DurableServer,
    Headers,
    producer,
    token,
)


def test_a_new_stream_is_created_empty_and_open(server: DurableServer) -> None:
    reply = server.put("s", content_type=TEXT)
    assert reply.status == 201
    assert reply.body == b""
    assert reply.headers["content-type"] == TEXT
    assert reply.headers["cache-control"] == "no-store"
    assert reply.next == START
    assert not reply.closed
    assert not {"stream-ttl", "stream-expires-at", "producer-epoch", "etag"} & reply.headers.keys()


@pytest.mark.parametrize("path", ["s", "a/b/c", "a%2Fb", "n%C3%A4me", "with%20space"])
def test_the_location_is_absolute_and_the_path_as_it_was_asked_for(
    server: DurableServer, path: str
) -> None:
    assert server.put(path).headers["location"] == f"http://test/v1/stream/{path}"
    assert "location" not in server.put(path).headers


def test_the_body_is_the_first_content(server: DurableServer) -> None:
    reply = server.put("s", b"hello", content_type=TEXT)
    assert (reply.status, reply.next) == (201, token(1, 5))
    assert server.content() == b"hello"


@pytest.mark.parametrize(
    ("body", "expected", "tail"),
    [
        pytest.param(b"[]", b"[]", token(0, 0), id="empty array"),
        pytest.param(b" [ ] ", b"[]", token(0, 0), id="empty array with spaces"),
        pytest.param(b"{}", b"[{}]", token(1, 2), id="one value"),
        pytest.param(b"[1,[2]]", b"[1,[2]]", token(2, 4), id="array flattened one level"),
    ],
)
def test_a_json_body_is_flattened(
    server: DurableServer, body: bytes, expected: bytes, tail: str
) -> None:
    reply = server.put("s", body, content_type=JSON)
    assert (reply.status, reply.next) == (201, tail)
    assert server.content() == expected


@pytest.mark.parametrize("body", [b"{", b"nul", b"[1,]", b'"\xff"'])
def test_a_body_that_is_not_json_creates_nothing(server: DurableServer, body: bytes) -> None:
    assert server.put("s", body, content_type=JSON).status == 400
    assert server.head().status == 404


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        pytest.param(None, BYTES, id="none means bytes"),
        pytest.param("", BYTES, id="empty means bytes"),
        pytest.param(TEXT, TEXT, id="no charset is added"),
        pytest.param("text/plain; charset=utf-8", "text/plain; charset=utf-8", id="kept whole"),
        pytest.param("TEXT/Plain", "TEXT/Plain", id="case kept"),
        pytest.param("a/b; x=\xe9\xff", "a/b; x=\xe9\xff", id="any bytes are echoed"),
        pytest.param("a/b; x=\xc3\xa9", "a/b; x=\xc3\xa9", id="UTF-8 is echoed"),
    ],
)
def test_the_content_type_is_kept_as_it_was_sent(
    server: DurableServer, given: str | None, stored: str
) -> None:
    headers = {} if given is None else {"content_type": given}
    assert server.put("s", **headers).headers["content-type"] == stored
    assert server.head().headers["content-type"] == stored
    assert server.get().headers["content-type"] == stored


@pytest.mark.parametrize("given", ["text", "text/", "/plain", "te xt/plain", "x" * 300 + "/y"])
def test_a_content_type_that_is_none_is_refused(server: DurableServer, given: str) -> None:
    assert server.put("s", content_type=given).error == "invalid_request"


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        pytest.param({}, {}, 200, id="nothing asked for"),
        pytest.param({}, {"content_type": BYTES}, 200, id="the default, spelt out"),
        pytest.param({"content_type": TEXT}, {}, 409, id="the default is not text"),
        pytest.param({"content_type": TEXT}, {"content_type": TEXT}, 200, id="same type"),
        pytest.param({"content_type": TEXT}, {"content_type": "Text/PLAIN"}, 200, id="case"),
        pytest.param(
            {"content_type": TEXT}, {"content_type": "text/plain;charset=x"}, 200, id="parameters"
        ),
        pytest.param({"content_type": TEXT}, {"content_type": JSON}, 409, id="other type"),
        pytest.param({"stream_ttl": "60"}, {"stream_ttl": "60"}, 200, id="same TTL"),
        pytest.param({"stream_ttl": "60"}, {"stream_ttl": "61"}, 409, id="other TTL"),
        pytest.param({"stream_ttl": "60"}, {}, 409, id="TTL left out"),
        pytest.param({}, {"stream_ttl": "60"}, 409, id="TTL added"),
        pytest.param(
            {"stream_expires_at": "2030-01-01T00:00:00Z"},
            {"stream_expires_at": "2030-01-01T01:00:00.000+01:00"},
            200,
            id="same moment in another zone",
        ),
        pytest.param(
            {"stream_expires_at": "2030-01-01T00:00:00Z"},
            {"stream_expires_at": "2030-01-01T00:00:01Z"},
            409,
            id="other moment",
        ),
        pytest.param(
            {"stream_ttl": "60"},
            {"stream_expires_at": "2030-01-01T00:00:00Z"},
            409,
            id="other kind of lifetime",
        ),
        pytest.param(
            {"stream_ttl": "60"},
            {"stream_ttl": "60", "stream_ttl_anchor": "creation"},
            409,
            id="other anchor",
        ),
        pytest.param(
            {"stream_ttl": "60", "stream_ttl_anchor": "creation"},
            {"stream_ttl": "60", "stream_ttl_anchor": "Creation"},
            200,
            id="same anchor",
        ),
        pytest.param({}, {"stream_closed": "false"}, 200, id="open, asked for open"),
        pytest.param({}, {"stream_closed": "true"}, 409, id="open, asked for closed"),
        pytest.param({"stream_closed": "true"}, {}, 409, id="closed, asked for open"),
        pytest.param(
            {"stream_closed": "true"}, {"stream_closed": "TRUE"}, 200, id="closed, asked for closed"
        ),
    ],
)
def test_a_repeated_create_succeeds_only_with_the_same_configuration(
    server: DurableServer, first: Headers, second: Headers, status: int
) -> None:
    assert server.put("s", **first).status == 201
    reply = server.put("s", **second)
    assert reply.status == status
    if status == 409:
        assert reply.error == "stream_exists"


def test_a_repeated_create_tells_the_tail_and_appends_nothing(server: DurableServer) -> None:
    server.put("s", b"first", content_type=TEXT)
    tail = server.post("s", b"second", content_type=TEXT).next
    reply = server.put("s", b"first", content_type=TEXT)
    assert (reply.status, reply.next) == (200, tail)
    assert reply.headers["content-type"] == TEXT
    assert server.content() == b"firstsecond"


def test_a_stream_closed_by_an_append_is_not_the_open_one_asked_for(server: DurableServer) -> None:
    server.make("s", b"data")
    server.close("s")
    assert server.put("s", content_type=TEXT).status == 409
    assert server.put("s", content_type=TEXT, stream_closed="true").status == 200


@pytest.mark.parametrize("body", [b"", b"all of it"])
def test_create_and_close_in_one_request(server: DurableServer, body: bytes) -> None:
    reply = server.put("s", body, content_type=TEXT, stream_closed="true")
    assert (reply.status, reply.closed) == (201, True)
    read = server.get()
    assert (read.body, read.closed, read.up_to_date) == (body, True, True)
    assert server.post("s", b"more", content_type=TEXT).error == "stream_closed"


@pytest.mark.parametrize("value", ["false", "1", "yes", "", "true, true", "truee"])
def test_other_values_of_stream_closed_are_as_good_as_absent(
    server: DurableServer, value: str
) -> None:
    assert not server.put("s", stream_closed=value).closed
    assert not server.head().closed


# -- Stream-Seq and producers, which apply to PUT as to POST


@pytest.mark.parametrize(
    ("again", "status"),
    [
        pytest.param("b", 200, id="the same create repeated"),
        pytest.param("c", 200, id="greater"),
        pytest.param("a", 409, id="smaller"),
        pytest.param("B", 409, id="compared bytewise"),
    ],
)
def test_a_create_carries_a_sequence(server: DurableServer, again: str, status: int) -> None:
    assert server.put("s", stream_seq="b").status == 201
    assert server.put("s", stream_seq=again).status == status


def test_the_sequence_of_a_create_binds_the_appends_after_it(server: DurableServer) -> None:
    server.put("s", content_type=TEXT, stream_seq="b")
    assert server.post("s", b"x", content_type=TEXT, stream_seq="b").error == "sequence_regression"
    assert server.post("s", b"x", content_type=TEXT, stream_seq="c").status == 204
    assert server.put("s", content_type=TEXT, stream_seq="c").error == "sequence_regression"


def test_a_repeated_create_can_move_the_sequence_on(server: DurableServer) -> None:
    server.put("s", content_type=TEXT, stream_seq="b")
    server.put("s", content_type=TEXT, stream_seq="d")
    assert server.post("s", b"x", content_type=TEXT, stream_seq="c").error == "sequence_regression"


def test_a_create_with_a_producer_is_its_first_batch(server: DurableServer) -> None:
    reply = server.put("s", b"x", content_type=TEXT, **producer("p", 4, 0))
    assert reply.status == 201
    assert (reply.headers["producer-epoch"], reply.headers["producer-seq"]) == ("4", "0")
    repeat = server.put("s", b"x", content_type=TEXT, **producer("p", 4, 0))
    assert (repeat.status, repeat.headers["producer-seq"]) == (200, "0")
    assert server.content() == b"x"
    assert server.post("s", b"y", content_type=TEXT, **producer("p", 4, 1)).status == 200


@pytest.mark.parametrize(
    ("claim", "status", "code"),
    [
        pytest.param(producer("p", 3, 0), 403, "producer_fenced", id="stale epoch"),
        pytest.param(producer("p", 4, 2), 409, "producer_gap", id="gap"),
        pytest.param(producer("p", 5, 1), 400, "invalid_request", id="new epoch not at 0"),
        pytest.param(producer("q", 0, 1), 409, "producer_gap", id="unknown producer not at 0"),
    ],
)
def test_a_repeated_create_is_judged_by_its_producer(
    server: DurableServer, claim: Headers, status: int, code: str
) -> None:
    server.put("s", **producer("p", 4, 0))
    reply = server.put("s", **claim)
    assert (reply.status, reply.error) == (status, code)


def test_a_new_stream_knows_no_producer(server: DurableServer) -> None:
    reply = server.put("s", **producer("p", 0, 3))
    assert (reply.status, reply.error) == (409, "producer_gap")
    assert reply.headers["producer-expected-seq"] == "0"
    assert server.head().status == 404


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"producer_id": "p"}, id="producer headers incomplete"),
        pytest.param({"stream_seq": "x" * 1025}, id="sequence too long"),
        pytest.param({"stream_ttl_anchor": "birth"}, id="unknown anchor"),
        pytest.param({"stream_ttl": "1", "stream_expires_at": "2030-01-01T00:00:00Z"}, id="both"),
    ],
)
def test_invalid_headers_create_nothing(server: DurableServer, headers: Headers) -> None:
    assert server.put("s", **headers).error == "invalid_request"
    assert server.head().status == 404


def test_after_delete_the_name_is_free_for_another_stream(server: DurableServer) -> None:
    server.make("s", b"old")
    assert server.delete().status == 204
    assert server.put("s", content_type=JSON).status == 201
    assert server.content() == b"[]"
