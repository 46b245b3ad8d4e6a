"""GET {stream}?live=long-poll: at once, or when something happens, or in vain. PROTOCOL §5.7."""

from __future__ import annotations

import pytest

from headwater.core.errors import Corruption
from headwater.core.pending import Pending
from headwater.engine.engine import Engine
from headwater.engine.streams import Stream
from headwater.wire import cursors
from tests.support.clock import FakeClock
from tests.support.durable import JSON, NOW_MS, START, TEXT, DurableServer, token
from tests.support.stores import FaultyStore

TIMEOUT_S = 30.0
CURRENT = cursors.current(FakeClock(NOW_MS).now_ms())


# -- at once


@pytest.mark.parametrize("offset", ["-1", START])
def test_data_that_is_there_is_returned_at_once(server: DurableServer, offset: str) -> None:
    tail = server.make("s", b"hello")
    reply = server.poll("s", offset).reply
    assert (reply.status, reply.body, reply.next) == (200, b"hello", tail)
    assert reply.headers["content-type"] == TEXT
    assert (reply.up_to_date, reply.closed, reply.cursor) == (True, False, CURRENT)
    assert server.engine.followers == 0


def test_data_comes_in_the_same_chunks_as_in_a_catch_up() -> None:
    with DurableServer(chunk_bytes=4) as server:
        server.make("s", b"aaaa", b"bbbb")
        reply = server.poll("s", "-1").reply
        catch_up = server.get("s", "-1")
        assert (reply.body, reply.next, reply.etag) == (b"aaaa", catch_up.next, catch_up.etag)
        assert not reply.up_to_date
        assert reply.cursor == CURRENT


@pytest.mark.parametrize("offset", ["tail", "now"])
def test_at_the_end_of_a_closed_stream_nobody_waits(server: DurableServer, offset: str) -> None:
    server.make("s", b"hello")
    tail = server.close()
    reply = server.poll("s", tail if offset == "tail" else "now").reply
    assert (reply.status, reply.next) == (204, tail)
    assert (reply.closed, reply.up_to_date) == (True, True)
    assert reply.headers["cache-control"] == "no-store"


def test_the_last_data_of_a_closed_stream_comes_with_its_end(server: DurableServer) -> None:
    server.make("s", b"hello")
    server.close()
    reply = server.poll("s", "-1").reply
    assert (reply.status, reply.body, reply.closed) == (200, b"hello", True)


# -- waiting


@pytest.mark.parametrize("offset", ["tail", "now"])
def test_an_append_wakes_a_waiting_reader(server: DurableServer, offset: str) -> None:
    tail = server.make("s", b"hello")
    poll = server.poll("s", tail if offset == "tail" else "now")
    assert poll.waiting and server.engine.followers == 1
    end = server.append("s", b"world")
    reply = poll.reply
    assert (reply.status, reply.body, reply.next) == (200, b"world", end)
    assert (reply.up_to_date, reply.closed, reply.cursor) == (True, False, CURRENT)
    assert server.engine.followers == 0
    server.advance(TIMEOUT_S)


def test_a_reader_of_an_empty_stream_waits_for_its_first_data(server: DurableServer) -> None:
    server.make("s", content_type=JSON)
    poll = server.poll("s", "-1")
    assert poll.waiting
    server.append("s", b"[1,2]")
    assert poll.reply.body == b"[1,2]"


def test_a_close_wakes_a_waiting_reader(server: DurableServer) -> None:
    tail = server.make("s", b"hello")
    poll = server.poll("s", tail)
    server.close()
    reply = poll.reply
    assert (reply.status, reply.next) == (204, tail)
    assert (reply.closed, reply.up_to_date) == (True, True)


def test_append_and_close_wakes_with_the_data_and_the_end(server: DurableServer) -> None:
    server.make("s", b"hello")
    poll = server.poll()
    server.append("s", b"bye", stream_closed="true")
    assert (poll.reply.status, poll.reply.body, poll.reply.closed) == (200, b"bye", True)


def test_a_delete_wakes_a_waiting_reader(server: DurableServer) -> None:
    server.make("s", b"hello")
    poll = server.poll()
    server.delete()
    assert (poll.reply.status, poll.reply.error) == (404, "stream_not_found")
    assert server.engine.followers == 0


def test_a_delete_of_a_stream_with_forks_wakes_with_410(server: DurableServer) -> None:
    server.make("s", b"hello")
    server.fork("f")
    poll = server.poll()
    server.delete()
    assert (poll.reply.status, poll.reply.error) == (410, "stream_gone")


def test_expiry_wakes_a_waiting_reader(server: DurableServer) -> None:
    server.make("s", b"hello", stream_ttl="10", stream_ttl_anchor="creation")
    poll = server.poll()
    server.advance(9)
    assert poll.waiting
    server.advance(2)
    assert (poll.reply.status, poll.reply.error) == (404, "stream_not_found")


def test_a_stream_re_created_meanwhile_is_another_stream(server: DurableServer) -> None:
    server.make("s", b"hello")
    poll = server.poll()
    server.delete()
    server.make("s", b"HELLO")
    assert poll.reply.status == 404


def test_other_streams_wake_nobody(server: DurableServer) -> None:
    server.make("s", b"hello")
    server.make("t", b"hello")
    poll = server.poll("s")
    server.append("t", b"world")
    assert poll.waiting


def test_a_repeated_batch_wakes_nobody(server: DurableServer) -> None:
    server.make("s")
    batch = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}
    server.append("s", b"hello", **batch)
    poll = server.poll()
    server.append("s", b"hello", **batch)
    assert poll.waiting


def test_every_waiting_reader_gets_what_follows_its_own_offset(server: DurableServer) -> None:
    server.make("s", b"hello")
    polls = [server.poll() for _ in range(20)]
    server.append("s", b"world")
    assert {poll.reply.body for poll in polls} == {b"world"}


def test_appends_of_one_commit_come_together(server: DurableServer) -> None:
    server.make("s", b"hello")
    poll = server.poll()
    answers = [server.begin("POST", "s", "", body, content_type=TEXT) for body in (b"1", b"2")]
    for answer in answers:
        server.runner.result(answer)
    assert poll.reply.body == b"12"


# -- in vain


def test_a_timeout_sends_the_reader_back_where_it_waited(server: DurableServer) -> None:
    tail = server.make("s", b"hello")
    poll = server.poll("s", tail)
    server.advance(TIMEOUT_S - 1)
    assert poll.waiting
    server.advance(1)
    reply = poll.reply
    assert (reply.status, reply.next) == (204, tail)
    assert (reply.up_to_date, reply.closed) == (True, False)
    assert reply.cursor >= CURRENT
    assert reply.headers["cache-control"] == "no-store"
    assert server.engine.followers == 0


def test_a_timeout_never_skips_what_was_appended_meanwhile(server: DurableServer) -> None:
    """The tail has moved, and the time is up before the reader hears of it."""
    tail = server.make("s", b"hello")
    poll = server.poll("s", tail)
    appending = server.begin("POST", "s", "", b"bye", content_type=TEXT, stream_closed="true")
    assert isinstance(appending, Pending)
    # Answers leave before readers are woken.
    appending.deliver(lambda _: server.clock.advance(TIMEOUT_S))
    server.settle()
    reply = poll.reply
    assert (reply.status, reply.next, reply.closed) == (204, tail, False)
    assert server.poll("s", reply.next).reply.body == b"bye"


def test_the_time_to_wait_is_a_setting() -> None:
    with DurableServer(long_poll_timeout_s=0.5) as server:
        server.make("s")
        poll = server.poll()
        server.advance(0.5)
        assert poll.reply.status == 204


# -- cursors


@pytest.mark.parametrize("cursor", [None, "", "abc", "-5", "1.5", "0", str(CURRENT - 1)])
def test_without_a_current_cursor_the_reader_gets_the_current_one(
    server: DurableServer, cursor: str | None
) -> None:
    server.make("s", b"hello")
    assert server.poll("s", "-1", cursor=cursor).reply.cursor == CURRENT


@pytest.mark.parametrize("ahead", [0, 1, 1000])
@pytest.mark.parametrize("outcome", ["at once", "woken", "in vain"])
def test_an_echoed_cursor_is_answered_with_a_later_one(
    server: DurableServer, ahead: int, outcome: str
) -> None:
    server.make("s", b"hello")
    cursor = CURRENT + 10 + ahead
    poll = server.poll("s", "-1" if outcome == "at once" else "now", cursor=cursor)
    if outcome == "woken":
        server.append("s", b"world")
    elif outcome == "in vain":
        server.advance(TIMEOUT_S)
    assert cursor < poll.reply.cursor <= cursor + 180


def test_a_cursor_never_goes_back_over_many_polls(server: DurableServer) -> None:
    server.make("s", b"hello")
    cursor = -1
    for _ in range(30):
        poll = server.poll("s", "-1", cursor=cursor)
        assert poll.reply.cursor > cursor
        cursor = poll.reply.cursor
        server.advance(1)


# -- readers that go away


def test_a_reader_that_goes_away_is_forgotten(server: DurableServer) -> None:
    server.make("s", b"hello")
    timers = server.clock.timers
    polls = [server.poll() for _ in range(5)]
    assert server.engine.followers == 5
    for poll in polls:
        poll.cancel()
    assert (server.engine.followers, server.clock.timers) == (0, timers)
    server.append("s", b"world")
    assert all(poll.waiting for poll in polls)


def test_a_reader_that_may_be_gone_is_answered_at_once(server: DurableServer) -> None:
    tail = server.make("s", b"hello")
    timers = server.clock.timers
    poll = server.poll("s", tail)
    assert poll.answer is not None
    poll.answer.hurry()
    assert (poll.reply.status, poll.reply.next, poll.reply.up_to_date) == (204, tail, True)
    assert (server.engine.followers, server.clock.timers) == (0, timers)


@pytest.mark.parametrize("when", ["before the commit", "after the commit"])
def test_a_reader_that_waits_for_a_commit_may_go_away_too(when: str) -> None:
    """A long-poll on a stream that is being created waits for that first."""
    store = FaultyStore()
    with DurableServer(store) as server:
        store.hold_syncs()
        creating = server.begin("PUT", "s", content_type=TEXT)
        server.runner.turn(3)
        polling = server.begin("GET", "s", "offset=-1&live=long-poll")
        assert isinstance(polling, Pending)
        if when == "before the commit":
            polling.cancel()
        store.release_syncs()
        assert server.runner.result(creating).status == 201
        server.settle()
        if when == "after the commit":
            assert server.engine.followers == 1
            polling.cancel()
        assert server.engine.followers == 0


def test_a_reader_that_waited_for_a_commit_can_be_hurried() -> None:
    store = FaultyStore()
    with DurableServer(store) as server:
        store.hold_syncs()
        creating = server.begin("PUT", "s", content_type=TEXT)
        server.runner.turn(3)
        polling = server.begin("GET", "s", "offset=-1&live=long-poll")
        assert isinstance(polling, Pending)
        store.release_syncs()
        assert server.runner.result(creating).status == 201
        server.settle()
        polling.hurry()
        assert server.runner.result(polling).status == 204
        assert server.engine.followers == 0


def test_a_reader_that_fails_does_not_keep_the_others_waiting(server: DurableServer) -> None:
    server.make("s", b"hello")

    def fail(_: Stream, __: object) -> None:
        raise RuntimeError("the test failed this follower")

    server.engine.follow(server.engine.open("durable-streams", "s"), fail)
    polls = [server.poll() for _ in range(5)]
    server.append("s", b"world")
    assert [poll.reply.body for poll in polls] == [b"world"] * 5


def test_data_that_cannot_be_read_is_told_to_those_who_wait(
    server: DurableServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.make("s", b"hello")
    poll = server.poll()

    def corrupt(*_: object) -> None:
        raise Corruption("the test says so")

    monkeypatch.setattr(Engine, "read_now", corrupt)
    server.append("s", b"world")
    assert (poll.reply.status, poll.reply.error) == (500, "corruption")
    assert server.engine.followers == 0


def test_a_server_that_stops_answers_those_who_wait(server: DurableServer) -> None:
    tail = server.make("s", b"hello")
    poll = server.poll()
    server.dialect.end_waits()
    assert (poll.reply.status, poll.reply.next) == (204, tail)
    assert server.engine.followers == 0


# -- only what is durable


def test_a_reader_sees_data_only_when_it_is_durable() -> None:
    store = FaultyStore()
    with DurableServer(store) as server:
        server.make("s", b"hello")
        poll = server.poll()
        store.hold_syncs()
        appending = server.begin("POST", "s", "", b"world", content_type=TEXT)
        server.runner.turn(3)
        assert poll.waiting
        assert server.get().body == b"hello"
        store.release_syncs()
        server.runner.result(appending)
        server.settle()
        assert poll.reply.body == b"world"


def test_a_delete_that_is_not_durable_yet_hides_nothing() -> None:
    """The append of one commit, while the delete of the next one is already applied."""
    store = FaultyStore()
    with DurableServer(store) as server:
        server.make("s", b"hello")
        server.fork("f")
        poll = server.poll()
        store.hold_syncs()
        appending = server.begin("POST", "s", "", b"world", content_type=TEXT)
        server.runner.turn(3)
        deleting = server.begin("DELETE", "s")
        server.runner.turn(3)
        store.release_syncs()
        assert server.runner.result(appending).status == 204
        assert server.runner.result(deleting).status == 204
        server.settle()
        assert (poll.reply.status, poll.reply.body) == (200, b"world")
        assert server.get().status == 410


def test_a_long_poll_after_a_token_of_the_middle_reads_on_from_there(server: DurableServer) -> None:
    middle = server.make("s", b"hello")
    server.append("s", b"world")
    assert middle == token(1, 5)
    assert server.poll("s", middle).reply.body == b"world"


def test_the_engine_counts_nobody_twice(server: DurableServer) -> None:
    engine: Engine = server.engine
    server.make("s")
    poll = server.poll()
    poll.cancel()
    poll.cancel()
    assert engine.followers == 0
