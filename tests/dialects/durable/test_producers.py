"""Idempotent producers. PROTOCOL §5.2.1."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.core import limits
from headwater.storage.rocks import RocksStore
from tests.support.clock import FakeClock
from tests.support.durable import (
    JSON,
    NOW_MS,
    TEXT,
    DurableServer,
    Headers,
    Reply,
    producer,
    token,
)


def write(server: DurableServer, body: bytes, claim: Headers) -> Reply:
    return server.post("s", body, content_type=TEXT, **claim)


def test_new_data_is_200_and_a_repeat_204(server: DurableServer) -> None:
    server.make("s")
    first = write(server, b"a", producer("p", 0, 0))
    again = write(server, b"a", producer("p", 0, 0))
    assert (first.status, again.status) == (200, 204)
    for reply in (first, again):
        assert reply.headers["producer-epoch"] == "0"
        assert reply.headers["producer-seq"] == "0"
        assert reply.next == token(1, 1)
    assert server.content() == b"a"


def test_a_repeat_tells_the_highest_batch_and_the_tail_of_now(server: DurableServer) -> None:
    server.make("s")
    for seq in range(3):
        write(server, b"%d" % seq, producer("p", 0, seq))
    server.append("s", b"other")
    reply = write(server, b"0", producer("p", 0, 0))
    assert (reply.status, reply.headers["producer-seq"]) == (204, "2")
    assert reply.next == token(4, 8)
    assert server.content() == b"012other"


def test_a_batch_counts_requests_not_messages(server: DurableServer) -> None:
    server.make("s", content_type=JSON)
    for seq in range(2):
        reply = server.post("s", b"[1,2,3]", content_type=JSON, **producer("p", 0, seq))
        assert (reply.status, reply.headers["producer-seq"]) == (200, str(seq))
    assert server.content() == b"[1,2,3,1,2,3]"


@pytest.mark.parametrize(
    ("claim", "status", "code", "headers"),
    [
        pytest.param(
            producer("p", 1, 0), 403, "producer_fenced", {"producer-epoch": "2"}, id="stale epoch"
        ),
        pytest.param(
            producer("p", 1, 5), 403, "producer_fenced", {"producer-epoch": "2"}, id="stale, ahead"
        ),
        pytest.param(
            producer("p", 2, 3),
            409,
            "producer_gap",
            {"producer-expected-seq": "2", "producer-received-seq": "3"},
            id="gap",
        ),
        pytest.param(producer("p", 3, 1), 400, "invalid_request", {}, id="new epoch not at 0"),
        pytest.param(
            producer("new", 0, 1),
            409,
            "producer_gap",
            {"producer-expected-seq": "0", "producer-received-seq": "1"},
            id="unknown producer not at 0",
        ),
        pytest.param(
            producer("P", 0, 1),
            409,
            "producer_gap",
            {"producer-expected-seq": "0", "producer-received-seq": "1"},
            id="ids are case-sensitive",
        ),
    ],
)
def test_what_is_out_of_order_is_refused_and_forgotten(
    server: DurableServer, claim: Headers, status: int, code: str, headers: Headers
) -> None:
    server.make("s")
    write(server, b"a", producer("p", 2, 0))
    write(server, b"b", producer("p", 2, 1))
    reply = write(server, b"x", claim)
    assert (reply.status, reply.error) == (status, code)
    assert headers.items() <= reply.headers.items()
    assert write(server, b"c", producer("p", 2, 2)).status == 200
    assert server.content() == b"abc"


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one(server: DurableServer) -> None:
    server.make("s")
    write(server, b"a", producer("p", 0, 0))
    assert write(server, b"b", producer("p", 7, 0)).status == 200
    assert write(server, b"c", producer("p", 0, 1)).status == 403
    assert write(server, b"d", producer("p", 7, 1)).status == 200


def test_two_producers_do_not_know_of_each_other(server: DurableServer) -> None:
    server.make("s")
    assert write(server, b"a", producer("p", 0, 0)).status == 200
    assert write(server, b"b", producer("q", 9, 0)).status == 200
    assert write(server, b"c", producer("p", 0, 1)).status == 200


def test_a_producer_belongs_to_one_stream(server: DurableServer) -> None:
    server.make("s")
    server.make("t")
    write(server, b"a", producer("p", 5, 0))
    assert server.post("t", b"a", content_type=TEXT, **producer("p", 0, 0)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"producer_id": "p"}, id="id alone"),
        pytest.param({"producer_epoch": "0"}, id="epoch alone"),
        pytest.param({"producer_seq": "0"}, id="sequence alone"),
        pytest.param({"producer_id": "p", "producer_epoch": "0"}, id="no sequence"),
        pytest.param(producer(""), id="empty id"),
        pytest.param(producer("p", "-1"), id="negative epoch"),
        pytest.param(producer("p", 0, "1.5"), id="fraction"),
        pytest.param(producer("p", 0, "0x1"), id="hexadecimal"),
        pytest.param(producer("p", 0, ""), id="empty sequence"),
        pytest.param(producer("p", 2**53), id="epoch above 2^53-1"),
        pytest.param(producer("p", 0, 2**53), id="sequence above 2^53-1"),
    ],
)
@pytest.mark.parametrize("body", [b"x", b""], ids=["append", "close"])
def test_malformed_producer_headers_are_refused(
    server: DurableServer, headers: Headers, body: bytes
) -> None:
    server.make("s")
    reply = server.post("s", body, content_type=TEXT, stream_closed="true", **headers)
    assert (reply.status, reply.error) == (400, "invalid_request")
    assert not server.head().closed


def test_the_largest_epoch_is_accepted(server: DurableServer) -> None:
    server.make("s")
    reply = write(server, b"x", producer("p", 2**53 - 1, 0))
    assert (reply.status, reply.headers["producer-epoch"]) == (200, str(2**53 - 1))


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        pytest.param(b"{", {}, id="bad JSON"),
        pytest.param(b"[]", {}, id="empty array"),
        pytest.param(b"1", {"content_type": TEXT}, id="other content type"),
        pytest.param(b"1", {"stream_seq": "1"}, id="sequence regression"),
    ],
)
def test_a_failed_append_does_not_count_as_a_batch(
    server: DurableServer, body: bytes, headers: Headers
) -> None:
    server.make("s", content_type=JSON)
    server.append("s", b"0", stream_seq="5")
    headers = {"content_type": JSON, **headers}
    assert server.post("s", body, **headers, **producer("p", 0, 0)).status in (400, 409)
    assert server.post("s", b"1", content_type=JSON, **producer("p", 0, 0)).status == 200


def test_too_many_producers_on_one_stream_are_429(
    server: DurableServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_HARD_MAX", 2)
    server.make("s")
    for name in "ab":
        assert write(server, b"x", producer(name)).status == 200
    reply = write(server, b"x", producer("c"))
    assert (reply.status, reply.error) == (429, "too_many_requests")
    assert int(reply.headers["retry-after"]) > 0
    assert write(server, b"x", producer("b", 0, 1)).status == 200


# -- closing


def test_a_close_is_a_batch_and_may_be_repeated(server: DurableServer) -> None:
    server.make("s")
    write(server, b"a", producer("p", 0, 0))
    for _ in range(2):
        reply = server.post("s", stream_closed="true", **producer("p", 0, 1))
        assert (reply.status, reply.closed, reply.next) == (204, True, token(1, 1))
        assert (reply.headers["producer-epoch"], reply.headers["producer-seq"]) == ("0", "1")


def test_append_and_close_is_200_once(server: DurableServer) -> None:
    server.make("s")
    headers = {"content_type": TEXT, "stream_closed": "true"}
    first = server.post("s", b"last", **headers, **producer("p", 0, 0))
    again = server.post("s", b"last", **headers, **producer("p", 0, 0))
    assert (first.status, first.closed) == (200, True)
    assert (again.status, again.closed, again.next) == (204, True, first.next)
    assert server.content() == b"last"


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(producer("p", 0, 0), id="earlier batch"),
        pytest.param(producer("p", 0, 2), id="later batch"),
        pytest.param(producer("p", 1, 0), id="later epoch"),
        pytest.param(producer("q", 0, 0), id="another producer"),
    ],
)
def test_only_the_request_that_closed_is_a_repeat(server: DurableServer, claim: Headers) -> None:
    server.make("s")
    write(server, b"a", producer("p", 0, 0))
    server.post("s", stream_closed="true", **producer("p", 0, 1))
    reply = server.post("s", stream_closed="true", **claim)
    assert (reply.status, reply.error, reply.closed) == (409, "stream_closed", True)


def test_a_close_without_producer_is_welcome_after_one_with(server: DurableServer) -> None:
    server.make("s")
    server.post("s", stream_closed="true", **producer("p", 0, 0))
    reply = server.post("s", stream_closed="true")
    assert (reply.status, reply.closed) == (204, True)


def test_a_restarted_server_still_knows_its_producers(tmp_path: Path) -> None:
    clock = FakeClock(NOW_MS)
    with DurableServer(RocksStore(tmp_path), clock) as server:
        server.make("s")
        write(server, b"a", producer("p", 3, 0))
        write(server, b"b", producer("p", 3, 1))
        server.runner.close()
    with DurableServer(RocksStore(tmp_path), clock) as server:
        assert write(server, b"b", producer("p", 3, 1)).status == 204
        assert write(server, b"x", producer("p", 2, 0)).status == 403
        assert write(server, b"c", producer("p", 3, 2)).status == 200
        assert server.content() == b"abc"
        server.runner.close()
