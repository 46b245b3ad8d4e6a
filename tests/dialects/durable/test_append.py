"""POST {stream}: append and close. PROTOCOL §5.2, §5.3."""

from __future__ import annotations

import pytest

from tests.support.durable import BYTES, JSON, TEXT, DurableServer, Headers, producer, token


def test_an_append_moves_the_tail(server: DurableServer) -> None:
    server.make("s")
    reply = server.post("s", b"hello", content_type=TEXT)
    assert (reply.status, reply.body, reply.next) == (204, b"", token(1, 5))
    assert not reply.closed
    assert not {"content-type", "producer-epoch", "etag"} & reply.headers.keys()


def test_offsets_only_ever_grow(server: DurableServer) -> None:
    server.make("s")
    tails = [server.append("s", b"x" * size) for size in (1, 10, 100, 1)]
    assert tails == sorted(set(tails))


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        pytest.param(b"", {}, 400, "invalid_request", id="empty body"),
        pytest.param(b"", {"content_type": TEXT}, 400, "invalid_request", id="empty, with type"),
        pytest.param(b"", {"stream_closed": "no"}, 400, "invalid_request", id="empty, not closing"),
        pytest.param(b"x", {}, 400, "invalid_request", id="no content type"),
        pytest.param(b"x", {"content_type": ""}, 400, "invalid_request", id="empty content type"),
        pytest.param(b"x", {"content_type": "x"}, 400, "invalid_request", id="not a type"),
        pytest.param(b"x", {"content_type": JSON}, 409, "content_type_mismatch", id="other type"),
        pytest.param(
            b"x", {"content_type": BYTES}, 409, "content_type_mismatch", id="the default type"
        ),
        pytest.param(
            b"x",
            {"content_type": TEXT, "stream_seq": "x" * 1025},
            400,
            "invalid_request",
            id="sequence too long",
        ),
    ],
)
def test_a_malformed_append_changes_nothing(
    server: DurableServer, body: bytes, headers: Headers, status: int, code: str
) -> None:
    tail = server.make("s", b"before")
    reply = server.post("s", body, **headers)
    assert (reply.status, reply.error) == (status, code)
    assert server.head().next == tail


@pytest.mark.parametrize("content_type", ["text/plain", "TEXT/PLAIN", "text/plain; charset=utf-8"])
def test_content_types_match_by_media_type(server: DurableServer, content_type: str) -> None:
    server.make("s", content_type="Text/Plain; charset=ascii")
    assert server.post("s", b"x", content_type=content_type).status == 204


# -- Stream-Seq


@pytest.mark.parametrize(
    ("last", "given", "accepted"),
    [
        pytest.param("1", "2", True, id="greater"),
        pytest.param("1", "1", False, id="equal"),
        pytest.param("2", "1", False, id="smaller"),
        pytest.param("9", "10", False, id="compared as text, not as numbers"),
        pytest.param("09", "10", True, id="padded"),
        pytest.param("a", "Z", False, id="capitals sort first"),
        pytest.param("a", "aa", True, id="a prefix sorts first"),
        pytest.param("", "0", True, id="empty sorts first"),
        pytest.param("\xc3\xa9", "\xc4", True, id="bytewise, whatever the encoding"),
        pytest.param("\xff", "\xc3\xa9", False, id="bytewise the other way round"),
    ],
)
def test_a_sequence_must_increase_bytewise(
    server: DurableServer, last: str, given: str, accepted: bool
) -> None:
    server.make("s")
    server.append("s", b"one", stream_seq=last)
    reply = server.post("s", b"two", content_type=TEXT, stream_seq=given)
    assert (reply.status == 204) is accepted
    if not accepted:
        assert (reply.status, reply.error) == (409, "sequence_regression")
    assert server.content() == (b"onetwo" if accepted else b"one")


def test_an_append_without_a_sequence_leaves_it_where_it_was(server: DurableServer) -> None:
    server.make("s")
    server.append("s", b"1", stream_seq="5")
    server.append("s", b"2")
    assert server.post("s", b"3", content_type=TEXT, stream_seq="5").error == "sequence_regression"


def test_the_sequence_belongs_to_the_stream_not_to_a_writer(server: DurableServer) -> None:
    server.make("s")
    server.append("s", b"1", stream_seq="5", **producer("p"))
    assert (
        server.post("s", b"2", content_type=TEXT, stream_seq="4", **producer("q")).error
        == "sequence_regression"
    )


def test_a_close_may_carry_a_sequence_too(server: DurableServer) -> None:
    server.make("s")
    server.append("s", b"1", stream_seq="5")
    assert server.post("s", stream_closed="true", stream_seq="5").error == "sequence_regression"
    assert server.post("s", stream_closed="true", stream_seq="6").status == 204


# -- closing


@pytest.mark.parametrize("value", ["true", "TRUE", "True"])
def test_a_close_leaves_the_tail_where_it_is(server: DurableServer, value: str) -> None:
    tail = server.make("s", b"data")
    reply = server.post("s", stream_closed=value)
    assert (reply.status, reply.closed, reply.next) == (204, True, tail)
    again = server.post("s", stream_closed=value)
    assert (again.status, again.closed, again.next) == (204, True, tail)


@pytest.mark.parametrize("content_type", ["application/json", "nonsense", ""])
def test_the_content_type_of_an_empty_body_is_ignored(
    server: DurableServer, content_type: str
) -> None:
    server.make("s")
    assert server.post("s", stream_closed="true", content_type=content_type).status == 204


def test_append_and_close_is_one_step(server: DurableServer) -> None:
    server.make("s", b"one")
    reply = server.post("s", b"two", content_type=TEXT, stream_closed="true")
    assert (reply.status, reply.closed, reply.next) == (204, True, token(2, 6))
    read = server.get()
    assert (read.body, read.closed) == (b"onetwo", True)


def test_append_and_close_that_is_refused_does_not_close(server: DurableServer) -> None:
    server.make("s", content_type=JSON)
    assert server.post("s", b"{", content_type=JSON, stream_closed="true").status == 400
    assert not server.head().closed


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        pytest.param(b"x", {"content_type": TEXT}, id="append"),
        pytest.param(b"x", {"content_type": TEXT, "stream_closed": "true"}, id="append and close"),
        pytest.param(b"x", {"content_type": JSON}, id="closed comes before content type"),
        pytest.param(
            b"x", {"content_type": TEXT, "stream_seq": "0"}, id="closed comes before sequence"
        ),
        pytest.param(b"x", {"content_type": TEXT, **producer("q")}, id="another producer"),
        pytest.param(
            b"x", {"content_type": TEXT, **producer("p", 0, 0)}, id="an earlier batch repeated"
        ),
        pytest.param(b"", {"stream_closed": "true", **producer("q")}, id="another closer"),
    ],
)
def test_a_closed_stream_refuses_writes_and_tells_where_it_ended(
    server: DurableServer, body: bytes, headers: Headers
) -> None:
    server.make("s")
    server.append("s", b"one", stream_seq="5", **producer("p", 0, 0))
    tail = server.close()
    reply = server.post("s", body, **headers)
    assert (reply.status, reply.error) == (409, "stream_closed")
    assert (reply.closed, reply.next) == (True, tail)
    assert server.content() == b"one"


@pytest.mark.parametrize("state", ["open", "closed"])
def test_a_closed_stream_is_read_as_before(server: DurableServer, state: str) -> None:
    middle = server.make("s", b"one")
    server.append("s", b"two")
    if state == "closed":
        server.close()
    assert server.content("s") == b"onetwo"
    assert server.content("s", middle) == b"two"


# -- precedence


def test_errors_come_in_the_order_of_the_protocol(server: DurableServer) -> None:
    """Syntax, existence, closed, content type, producer, sequence, body."""
    wrong = {
        "stream_seq": "1",
        "content_type": TEXT,
        "producer_id": "p",
        "producer_epoch": "0",
        "producer_seq": "x",
    }

    def error() -> str:
        return server.post("s", b"{", **wrong).error

    assert error() == "invalid_request"
    wrong |= producer("p", 0, 9)
    assert error() == "stream_not_found"
    server.make("s", content_type=JSON)
    server.append("s", b"1", stream_seq="5", **producer("p", 1, 0))
    assert error() == "content_type_mismatch"
    wrong["content_type"] = JSON
    assert error() == "producer_fenced"
    wrong |= producer("p", 1, 9)
    assert error() == "producer_gap"
    wrong |= producer("p", 1, 1)
    assert error() == "sequence_regression"
    wrong["stream_seq"] = "6"
    assert error() == "invalid_request"
    server.close()
    assert error() == "stream_closed"
    server.delete()
    assert error() == "stream_not_found"


# -- delete


def test_delete_removes_the_stream_and_its_data(server: DurableServer) -> None:
    server.make("s", b"data")
    reply = server.delete()
    assert (reply.status, reply.body) == (204, b"")
    assert server.get().error == "stream_not_found"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_what_does_not_exist_is_404(server: DurableServer, method: str) -> None:
    for body, headers in [(b"x", {"content_type": TEXT}), (b"", {"stream_closed": "true"})]:
        reply = server.request(method, "s", "", body, **headers)
        assert (reply.status, reply.error) == (404, "stream_not_found")
