"""What servers of this protocol have got wrong in ways that lose or hide data, each pinned here.

Others are pinned where they belong: characters split over appends in test_sse_text.py, long-polls
that skip in test_long_poll.py, chunks and offsets past the tail in test_read.py, names in
test_names.py, sources made again under their forks in test_forks.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.core.pending import Pending
from headwater.storage.rocks import RocksStore
from tests.support.clock import FakeClock
from tests.support.durable import JSON, NOW_MS, TEXT, DurableServer, Headers, Reply, token
from tests.support.stores import FaultyStore


@pytest.mark.parametrize(
    "lifetime",
    [
        {"stream_ttl": "0"},
        {"stream_ttl": "9" * 18},
        {"stream_ttl": "9" * 400},
        {"stream_ttl": "NaN"},
        {"stream_expires_at": "1970-01-01T00:00:00Z"},
        {"stream_expires_at": "0001-01-01T00:00:00Z"},
        {"stream_expires_at": "9999-12-31T23:59:59.999999999Z"},
        {"stream_expires_at": "9999-12-31T23:59:60Z"},
        {"stream_expires_at": "9999-12-31T23:59:59-23:59"},
        {"stream_expires_at": "Infinity"},
    ],
    ids=str,
)
def test_no_lifetime_is_an_internal_error(server: DurableServer, lifetime: Headers) -> None:
    """Others: 500 on TTL 0 and on moments in the past."""
    assert server.put("s", b"x", content_type=TEXT, **lifetime).status in (201, 400)
    assert server.get().status in (200, 404)
    assert server.head().status in (200, 404)
    server.advance(2)


def test_json_is_never_rewritten(server: DurableServer) -> None:
    """Others: large integers rounded, 1.0 made 1, duplicate keys dropped."""
    text = b'{"b":12345678901234567890,"a":1.0,"a":1e400,"c":[ 0.10 ],"d":"\\u0041/\\/"}'
    server.make("s", text, content_type=JSON)
    assert server.content() == b"[" + text + b"]"
    assert server.follow("s", "-1").text == "[" + text.decode() + "]"
    assert server.poll("s", "-1").reply.body == b"[" + text + b"]"


def test_a_304_never_hides_that_the_stream_has_ended(server: DurableServer) -> None:
    """Others: the tag is the end offset alone."""
    server.make("s", b"hello")
    tag = server.get().etag
    server.close()
    assert server.get("s", "-1", if_none_match=tag).closed
    assert server.get("s", "-1", if_none_match=tag).status == 200


def test_a_cache_of_a_deleted_stream_is_never_confirmed(server: DurableServer) -> None:
    """Others: the tag has no id, so a re-created stream of the same size gets 304."""
    server.make("s", b"hello")
    tag = server.get().etag
    server.delete()
    server.make("s", b"HELLO")
    assert server.get("s", "-1", if_none_match=tag).body == b"HELLO"


def test_a_client_of_a_stream_made_again_does_not_stall(server: DurableServer) -> None:
    """Others: 200 with a smaller next offset, for ever."""
    old = server.make("s", b"a long text")
    server.delete()
    tail = server.make("s", b"short")
    for query in ("", "&live=long-poll", "&live=sse"):
        reply = server.query("s", f"offset={old}{query}")
        assert (reply.status, reply.next) == (400, tail)


@pytest.mark.parametrize("value", ["TRUE", "True"])
def test_closed_in_capitals_is_closed(server: DurableServer, value: str) -> None:
    """Others: ignored, then 400 for the empty body."""
    server.make("s")
    assert server.post("s", stream_closed=value).closed


def test_a_repeated_fork_without_content_type_is_the_same(server: DurableServer) -> None:
    """Others: 409, because the default type is compared with the inherited one."""
    server.make("s", content_type=JSON)
    server.fork("f")
    assert server.put("f", stream_forked_from="/v1/stream/s").status == 200


# -- answers of one commit


def test_a_connection_that_fails_does_not_disturb_the_answers_of_its_commit(
    server: DurableServer,
) -> None:
    """Others: whoever comes after it in the commit is never answered."""
    server.make("s", b"0")
    poll, follower = server.poll(), server.follow()
    answers: list[Any] = []

    def fail(_: object) -> None:
        raise ConnectionError("the test broke this connection")

    sinks = [answers.append, fail, answers.append, fail, answers.append]
    for number, sink in enumerate(sinks):
        answer = server.begin("POST", "s", "", b"%d" % number, content_type=TEXT)
        assert isinstance(answer, Pending)
        answer.deliver(sink)
    server.settle()
    assert [Reply(answer).next for answer in answers] == [token(n, n) for n in (2, 4, 6)]
    assert (poll.reply.body, follower.text) == (b"01234", "01234")
    server.append("s", b"after")
    assert server.content() == b"001234after"


def test_a_connection_that_fails_does_not_disturb_readers_that_wait_for_its_commit() -> None:
    store = FaultyStore()
    with DurableServer(store) as server:
        store.hold_syncs()
        creating = server.begin("PUT", "s", content_type=TEXT)
        server.runner.turn(3)
        answers: list[Any] = []

        def fail(_: object) -> None:
            raise ConnectionError("the test broke this connection")

        for sink in (fail, answers.append):
            reading = server.begin("GET", "s", "offset=-1")
            assert isinstance(reading, Pending)
            reading.deliver(sink)
        store.release_syncs()
        assert server.runner.result(creating).status == 201
        server.settle()
        assert [Reply(answer).status for answer in answers] == [200]


def test_requests_of_one_commit_see_each_other_in_order(server: DurableServer) -> None:
    requests = [
        server.begin("PUT", "s", "", b"a", content_type=TEXT),
        server.begin("PUT", "s", "", b"a", content_type=TEXT),
        server.begin("POST", "s", "", b"b", content_type=TEXT, stream_closed="true"),
        server.begin("POST", "s", "", b"c", content_type=TEXT),
        server.begin("DELETE", "s"),
        server.begin("POST", "s", "", b"d", content_type=TEXT),
        server.begin("PUT", "s", "", b"e", content_type=TEXT),
    ]
    statuses = [server.runner.result(request).status for request in requests]
    assert statuses == [201, 200, 204, 409, 204, 404, 201]
    assert server.content() == b"e"


# -- only what is durable, and all of it


def test_what_one_request_has_seen_every_later_one_sees() -> None:
    """Others: a HEAD that tells less than a read that has already finished."""
    store = FaultyStore()
    with DurableServer(store) as server:
        server.make("s", b"one")
        store.hold_syncs()
        appending = server.begin("POST", "s", "", b"two", content_type=TEXT)
        server.runner.turn(3)
        assert server.get().next == server.head().next == server.get("s", "now").next == token(1, 3)
        store.release_syncs()
        assert Reply(server.runner.result(appending)).next == token(2, 6)
        assert server.get().next == server.head().next == server.get("s", "now").next == token(2, 6)


def test_whoever_has_its_answer_can_read_what_it_wrote(server: DurableServer) -> None:
    server.make("s")
    read: list[Reply] = []
    appending = server.begin("POST", "s", "", b"mine", content_type=TEXT)
    assert isinstance(appending, Pending)
    appending.deliver(lambda _: read.append(server.request("GET", "s")))
    server.settle()
    assert [reply.body for reply in read] == [b"mine"]


def test_a_close_that_is_not_durable_yet_is_not_told() -> None:
    store = FaultyStore()
    with DurableServer(store) as server:
        server.make("s", b"one")
        follower = server.follow()
        store.hold_syncs()
        closing = server.begin("POST", "s", stream_closed="true")
        server.runner.turn(3)
        assert not server.get().closed and not server.head().closed and not follower.ended
        store.release_syncs()
        server.runner.result(closing)
        server.settle()
        assert server.get().closed and server.head().closed and follower.ended


def test_a_restarted_server_says_what_it_said_before(tmp_path: Path) -> None:
    """Offsets, tags, closure and sequences are as durable as the data."""
    clock = FakeClock(NOW_MS)
    told: list[list[object]] = []
    for _ in range(3):
        with DurableServer(RocksStore(tmp_path), clock) as server:
            if not told:
                server.make(
                    "s", b"[1,2]", content_type=JSON, stream_expires_at="2030-01-01T00:00:00Z"
                )
                server.append("s", b"3", stream_seq="b", stream_closed="true")
                server.make("t", b"one")
                server.append("t", b"two", stream_seq="b")
            refused = server.post("t", b"x", content_type=TEXT, stream_seq="b")
            replies = [
                server.get("s"),
                server.head("s"),
                server.get("t"),
                server.head("t"),
                refused,
            ]
            told.append([(reply.status, reply.headers, reply.body) for reply in replies])
            server.runner.close()
    assert told[0] == told[1] == told[2]
    assert refused.error == "sequence_regression"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_stream_that_is_being_created_is_there_only_when_it_is_durable(method: str) -> None:
    store = FaultyStore()
    with DurableServer(store) as server:
        store.hold_syncs()
        creating = server.begin("PUT", "s", "", b"one", content_type=TEXT)
        server.runner.turn(3)
        reading = server.begin(method, "s")
        assert isinstance(reading, Pending) and not reading.done
        store.release_syncs()
        assert server.runner.result(creating).status == 201
        assert Reply(server.runner.result(reading)).next == token(1, 3)


def test_data_that_fails_its_checks_is_not_served(server: DurableServer) -> None:
    server.make("s", b"hello")
    store = server.engine.store
    ((key, value),) = [
        (key, value) for key, value in store.scan(b"", b"\xff" * 9) if b"hello" in value
    ]
    batch = store.batch()
    batch.put(key, value.replace(b"hello", b"jello"))
    store.write(batch)
    reply = server.get()
    assert (reply.status, reply.error) == (500, "corruption")


def test_a_bug_is_not_dressed_as_an_answer(
    server: DurableServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The HTTP server logs it and answers 500; nothing here pretends to know better."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    server.make("s")
    monkeypatch.setattr("headwater.core.append.acknowledge", fail)
    appending = server.begin("POST", "s", "", b"x", content_type=TEXT)
    assert isinstance(appending, Pending)
    assert isinstance(server.runner.outcome(appending), RuntimeError)
