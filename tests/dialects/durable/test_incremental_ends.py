"""How an incremental append ends: errors, cuts, a client that is too fast; and what stays then."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import StorageFailed
from headwater.dialects.durable import incremental
from tests.support.durable import BYTES, JSON, START, TEXT, DurableServer, producer, token
from tests.support.uploads import SlowServer, counted, messages, post

# -- what ends it


def test_an_invalid_line_ends_it_and_the_lines_before_stay(server: DurableServer) -> None:
    server.make("s", content_type=JSON)
    upload = post(server)
    upload.send_settled(b"1\n")
    upload.send_settled(b"2\n3\nnope\n4\n")
    reply = upload.reply
    assert (reply.status, reply.error, counted(reply)) == (400, "invalid_request", 3)
    assert "line=4" in reply.body.decode()
    assert reply.next == token(3, 3)
    upload.send_settled(b"5\n")
    assert messages(server) == [1, 2, 3]


def test_a_line_that_is_too_long_ends_it() -> None:
    with DurableServer(body_bytes_max=100) as server:
        server.make("s")
        upload = post(server, TEXT)
        upload.send_settled(b"x" * 99 + b"\n", b"y" * 100, b"y")
        reply = upload.reply
        assert (reply.status, reply.error, counted(reply)) == (413, "body_too_large", 1)
        assert reply.next == token(1, 100)
        assert server.content("s") == b"x" * 99 + b"\n"


def test_many_lines_may_be_longer_than_a_body() -> None:
    with DurableServer(body_bytes_max=100) as server:
        server.make("s")
        upload = post(server, TEXT)
        for _ in range(20):
            upload.send_settled(b"x" * 50 + b"\n")
        assert counted(upload.finish()) == 20


@pytest.mark.parametrize("headers", [{}, producer()], ids=["plain", "producer"])
def test_a_stream_that_somebody_closes_ends_it(
    server: DurableServer, headers: dict[str, str]
) -> None:
    server.make("s")
    upload = post(server, TEXT, **headers)
    upload.send_settled(b"a\n")
    closing = server.begin("POST", "s", stream_closed="true")
    upload.send(b"b\nc\nd\n")
    server.runner.result(closing)
    reply = upload.finish()
    assert (reply.status, reply.error, counted(reply)) == (409, "stream_closed", 1)
    assert reply.closed and reply.next == token(1, 2)
    assert server.content("s") == b"a\n"


def test_the_first_thing_that_went_wrong_is_told(slow: SlowServer) -> None:
    slow.make("s", content_type=JSON)
    upload = post(slow)
    upload.send_settled(b"1\n")
    slow.hold()
    slow.begin("POST", "s", stream_closed="true")
    upload.send(b"2\n", b"nope\n")
    slow.release()
    slow.settle()
    assert (upload.reply.error, counted(upload.reply)) == ("stream_closed", 1)


@pytest.mark.parametrize("headers", [{}, producer()], ids=["plain", "producer"])
def test_a_new_stream_of_the_same_name_gets_nothing(
    slow: SlowServer, headers: dict[str, str]
) -> None:
    """Deleted and created between two lines, all of it in one commit."""
    slow.make("s")
    upload = post(slow, TEXT, **headers)
    upload.send_settled(b"a\n")
    slow.hold()
    upload.send(b"b\n")
    others = [slow.begin("DELETE", "s")]
    upload.send(b"c\n")
    others.append(slow.begin("PUT", "s", content_type=TEXT))
    upload.send(b"d\n")
    slow.release()
    assert [slow.runner.result(other).status for other in others] == [204, 201]
    reply = upload.finish(b"e\n")
    assert (reply.status, reply.error, counted(reply)) == (404, "stream_not_found", 2)
    assert slow.content("s") == b""


def test_a_full_disk_ends_it(slow: SlowServer) -> None:
    slow.make("s", content_type=JSON)
    upload = post(slow)
    upload.send_settled(b"1\n")
    slow.hold()
    upload.send(b"2\n3\n4\n")
    slow.engine.sweeper.disk_low = True
    upload.send(b"5\n")
    slow.engine.sweeper.disk_low = False
    upload.send(b"6\n")
    slow.release()
    slow.settle()
    assert (upload.reply.status, counted(upload.reply)) == (507, 4)
    assert messages(slow) == [1, 2, 3, 4]


def test_a_full_queue_ends_it(slow: SlowServer) -> None:
    slow.make("s")
    upload = post(slow, TEXT)
    upload.send_settled(b"a\n")
    committer = slow.engine.committer
    committer._queue_bytes_max = 1000  # noqa: SLF001
    slow.hold()
    upload.send(b"b\n" * 20)
    committer._queue_bytes_max = 1 << 30  # noqa: SLF001
    upload.send(b"c\n")
    slow.release()
    slow.settle()
    reply = upload.reply
    assert (reply.status, reply.error, counted(reply)) == (503, "overloaded", 4)
    assert slow.content("s") == b"a\nb\nb\nb\n"


def test_a_failed_sync_ends_it(slow: SlowServer) -> None:
    slow.make("s")
    upload = post(slow, TEXT)
    upload.send_settled(b"a\n")
    slow.store.sync_error = OSError("broken")
    upload.send_settled(b"b\nc\n")
    assert (upload.reply.error, counted(upload.reply)) == ("storage_failed", 1)
    with pytest.raises(StorageFailed):
        slow.engine.open("durable-streams", "s")
    later = post(slow, TEXT).reply
    assert (later.error, counted(later)) == ("storage_failed", 0)


def test_a_bug_is_not_rendered_as_an_answer(
    server: DurableServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.make("s")
    upload = post(server, TEXT)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(server.engine.shard, "apply", broken)
    upload.send_settled(b"a\n")
    monkeypatch.setattr(server.engine, "append", broken)
    second = post(server, TEXT)
    second.send_settled(b"a\n")
    monkeypatch.setattr(server.engine, "open", broken)
    third = post(server, TEXT)
    for each in (upload, second, third):
        with pytest.raises(ZeroDivisionError):
            each.reply  # noqa: B018
    assert not server.dialect._incremental.open  # noqa: SLF001


def test_a_server_that_stops_says_how_far_it_got(
    slow: SlowServer,
) -> None:
    slow.make("s")
    upload, idle = post(slow, TEXT), post(slow, TEXT)
    upload.send_settled(b"a\n")
    slow.hold()
    upload.send(b"b\n")
    slow.dialect.end_waits()
    upload.send(b"c\n")
    assert idle.answered and not upload.answered, "what was submitted is settled first"
    slow.release()
    slow.settle()
    assert (upload.reply.status, counted(upload.reply)) == (503, 2)
    assert "retry-after" in upload.reply.headers
    assert slow.content("s") == b"a\nb\n"
    assert not slow.dialect._incremental.open  # noqa: SLF001


def test_a_server_that_stops_does_not_wait_for_a_stream_to_appear(
    slow: SlowServer,
) -> None:
    slow.store.hold_syncs()
    slow.begin("PUT", "s", content_type=TEXT)
    slow.runner.turn(2)
    upload = post(slow, TEXT)
    slow.dialect.end_waits()
    assert (upload.reply.status, counted(upload.reply)) == (503, 0)
    slow.release()
    slow.settle()


# -- a cut connection


@pytest.mark.parametrize(
    ("body", "left"), [(b"a\nb", b"a\n"), (b"a\nb\n", b"a\nb\n"), (b"a", b""), (b"", b"")]
)
def test_complete_lines_stay_when_the_connection_is_cut(
    server: DurableServer, body: bytes, left: bytes
) -> None:
    server.make("s")
    upload = post(server, TEXT)
    upload.send(body)
    upload.cut()
    server.settle()
    assert server.content("s") == left
    assert not server.dialect._incremental.open  # noqa: SLF001


def test_lines_that_waited_for_room_stay_when_the_connection_is_cut(
    slow: SlowServer,
) -> None:
    slow.make("s")
    slow.hold()
    upload = post(slow, TEXT)
    upload.send(b"x\n" * 1000 + b"y")
    upload.cut()
    slow.release()
    slow.settle()
    assert slow.content("s") == b"x\n" * 1000


# -- back-pressure


@pytest.mark.parametrize(
    ("line", "commands"),
    [(b"token\n", incremental.WINDOW_COMMANDS_MAX), (b"x" * 9999 + b"\n", 27)],
    ids=["commands", "bytes"],
)
def test_no_more_than_the_window_is_submitted(slow: SlowServer, line: bytes, commands: int) -> None:
    slow.make("s")
    upload = post(slow, TEXT)
    upload.send_settled(line)
    slow.hold()
    sent = 1
    while not upload.paused:
        upload.send(line * 2)
        sent += 2
    assert slow.queued == commands
    assert sent - 1 - commands <= 2, "what waits here is one read at most"
    assert not upload.answered
    slow.release()
    slow.settle()
    assert not upload.paused
    assert counted(upload.finish()) == sent
    assert slow.content("s") == line * sent


def test_a_long_body_in_one_read_is_not_cut_ahead_of_time(
    slow: SlowServer,
) -> None:
    slow.make("s")
    slow.hold()
    upload = post(slow, TEXT)
    upload.send(b"\n" * 100_000)
    assert slow.queued == 1
    slow.release()
    assert counted(upload.finish()) == 100_000


def test_bytes_wait_in_the_connection(slow: SlowServer) -> None:
    slow.make("s", content_type=BYTES)
    slow.hold()
    upload = post(slow, BYTES)
    upload.send(b"a", b"b", b"c")
    assert upload.paused
    slow.release()
    assert counted(upload.finish()) == 3
    assert slow.content("s") == b"abc"


def test_an_ended_body_waits_for_its_window_too(slow: SlowServer) -> None:
    slow.make("s")
    slow.hold()
    upload = post(slow, TEXT, stream_closed="true")
    upload.send(b"x\n" * 600)
    upload.end()
    assert slow.queued == 1
    slow.release()
    slow.settle()
    assert counted(upload.reply) == 600 and upload.reply.closed
    assert slow.content("s") == b"x\n" * 600


# -- exactly once, wherever it is cut

lines = st.lists(
    st.text("ab\r", max_size=3).map(lambda text: text.encode() + b"\n"), min_size=1, max_size=12
)
steps = st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=12)
"""How many bytes come, and whether they are committed before the next."""


@settings(max_examples=150, deadline=None)
@given(body=lines, tries=st.lists(steps, max_size=3), last=st.booleans())
def test_a_producer_that_repeats_itself_writes_every_line_once(
    body: list[bytes], tries: list[list[tuple[int, bool]]], last: bool
) -> None:
    whole = b"".join(body) if last else b"".join(body) + b"unfinished"
    with DurableServer() as server:
        server.make("s")
        for plan in tries:
            upload = post(server, TEXT, **producer())
            sent = 0
            for size, settles in plan:
                upload.send(whole[sent : sent + size])
                sent += size
                if settles:
                    server.settle()
            upload.cut()
            assert whole.startswith(server.content("s"))
        reply = post(server, TEXT, **producer()).finish(whole)
        assert reply.status in (200, 204)
        assert counted(reply) == whole.count(b"\n") + (not last)
        assert server.content("s") == whole


@settings(max_examples=200, deadline=None)
@given(
    plan=st.lists(
        st.sampled_from([1, 2, 3, "close", "delete", "create", "settle", "hold"]),
        min_size=1,
        max_size=14,
    ),
    numbered=st.booleans(),
    kind=st.sampled_from([JSON, TEXT]),
)
def test_what_is_accepted_is_a_beginning_of_what_was_sent(
    plan: list[int | str], numbered: bool, kind: str
) -> None:
    """Whatever others do: lines of one stream, in order, none left out, none after a refusal."""
    with SlowServer() as server:
        server.make("s", content_type=kind)
        stream = server.engine.open("durable-streams", "s")
        upload = post(server, kind, **(producer() if numbered else {}))
        sent = 0
        for step in plan:
            if isinstance(step, int):
                upload.send(b"".join(b"%d\n" % (sent + number) for number in range(step)))
                sent += step
            elif step == "close":
                server.begin("POST", "s", stream_closed="true")
            elif step == "delete":
                server.begin("DELETE", "s")
            elif step == "create":
                server.begin("PUT", "s", content_type=kind)
            else:
                server.release()
                server.settle()
                if step == "hold":
                    server.hold()
        server.release()
        reply = upload.finish()
        assert counted(reply) <= sent
        assert stream.state.tail_message == counted(reply)
        assert (reply.status < 300) == (counted(reply) == sent)
        if counted(reply):
            assert reply.next != START
        now = server.get("s")
        if now.status == 200 and server.engine.open("durable-streams", "s") is not stream:
            assert now.body in (b"", b"[]"), "a new stream of that name gets nothing"
