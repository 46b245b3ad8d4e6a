"""Append sessions: pipelined, ordered, poisoned by the first failure. S2 API: sessions."""

from __future__ import annotations

import gzip
import json

import pytest
import s2_sdk._generated.s2.v1.s2_pb2 as pb
import zstandard

from headwater.core.append import SeriesAppended
from headwater.core.commands import AppendSeries, Delete
from headwater.core.errors import Overloaded
from headwater.core.pending import Pending
from headwater.dialects.s2 import append_session
from tests.support.s2 import (
    BASIN,
    GZIP,
    RECONNECT,
    TERMINAL,
    ZSTD,
    S2Server,
    Session,
    encode_frame,
)


@pytest.fixture
def stream(server: S2Server) -> S2Server:
    server.make_stream("s")
    return server


def batch(*bodies: bytes) -> bytes:
    records = [pb.AppendRecord(body=body) for body in bodies]
    sent: bytes = pb.AppendInput(records=records).SerializeToString()
    return sent


def bodies(server: S2Server) -> list[str]:
    return server.read("seq_num=0").bodies if server.check_tail().tail else []


def test_the_head_leaves_before_anything_is_sent(stream: S2Server) -> None:
    session = stream.append_session()

    assert session.reply.status == 200
    assert session.reply.headers["content-type"] == "s2s/proto"
    assert session.frames == []
    assert not session.ended


def test_each_batch_is_acknowledged_in_order(stream: S2Server) -> None:
    session = stream.append_session()
    session.send(b"a", b"b")
    session.send(b"c")

    assert session.acks == [(0, 2, 2), (2, 3, 3)]
    assert bodies(stream) == ["a", "b", "c"]


def test_batches_are_pipelined_and_share_commits(stream: S2Server) -> None:
    session = stream.append_session()
    before = stream.engine.committer.figures.commits
    for number in range(20):
        session.send(b"%d" % number, settle=False)
    stream.settle()

    assert [ack[:2] for ack in session.acks] == [(n, n + 1) for n in range(20)]
    assert bodies(stream) == [str(number) for number in range(20)]
    assert stream.engine.committer.figures.commits - before == 2


def test_a_frame_may_come_in_any_pieces(stream: S2Server) -> None:
    session = stream.append_session()
    data = encode_frame(batch(b"a")) + encode_frame(batch(b"b", b"c"))
    for at in range(len(data)):
        session.send_bytes(data[at : at + 1])

    assert session.acks == [(0, 1, 1), (1, 3, 3)]


def test_many_frames_may_come_in_one_piece(stream: S2Server) -> None:
    session = stream.append_session()
    session.send_bytes(b"".join(encode_frame(batch(b"%d" % n)) for n in range(5)))

    assert len(session.acks) == 5


def test_half_close_ends_the_session_after_the_last_acknowledgement(stream: S2Server) -> None:
    session = stream.append_session()
    session.send(b"a", settle=False)
    session.end()

    assert session.acks == [(0, 1, 1)]
    assert session.ended


def test_a_session_without_batches_just_ends(stream: S2Server) -> None:
    session = stream.append_session()
    session.end()

    assert session.frames == []
    assert session.ended


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_session_may_come_as_a_whole_body(stream: S2Server, count: int) -> None:
    body = b"".join(encode_frame(batch(b"x")) for _ in range(count))
    answer = stream.ask("POST", "streams/s/records", "", body, content_type="s2s/proto")
    session = Session(stream, stream.runner.result(answer))

    assert len(session.frames) == count
    assert session.ended


def test_the_first_failure_ends_the_session_and_nothing_behind_it_takes_effect(
    stream: S2Server,
) -> None:
    session = stream.append_session()
    session.send(b"a", settle=False)
    session.send(b"b", settle=False, match_seq_num=7)
    session.send(b"c", settle=False)
    stream.settle()

    assert session.acks == [(0, 1, 1)]
    assert session.frames[-1].status == 412
    assert session.frames[-1].error == {"seq_num_mismatch": 1}
    assert session.ended
    assert bodies(stream) == ["a"]


@pytest.mark.parametrize("pause", [0, 1, 2, 3, 5])
def test_what_comes_later_than_a_failure_takes_no_effect(stream: S2Server, pause: int) -> None:
    """However far the failing batch is when the next one arrives."""
    session = stream.append_session()
    session.send(b"a", settle=False)
    stream.runner.turn(pause)
    session.send(b"b", settle=False, fencing_token="not mine")
    stream.runner.turn(pause)
    session.send(b"c", settle=False)
    stream.runner.turn(pause)
    session.send(b"d")

    assert session.frames[-1].error == {"fencing_token_mismatch": ""}
    assert bodies(stream) == ["a"]


def test_what_waits_while_a_batch_is_refused_takes_no_effect(stream: S2Server) -> None:
    session = stream.append_session()
    session.send(b"a", settle=False, match_seq_num=7)  # in flight by itself
    session.send(b"b", settle=False)
    stream.settle()

    assert [frame.flag for frame in session.frames] == [TERMINAL]
    assert session.ended
    assert stream.check_tail().tail == 0


def test_two_sessions_do_not_poison_each_other(stream: S2Server) -> None:
    one, other = stream.append_session(), stream.append_session()
    one.send(b"a", settle=False, match_seq_num=9)
    other.send(b"b", settle=False)
    stream.settle()
    other.send(b"c")

    assert one.ended
    assert other.acks == [(0, 1, 1), (1, 2, 2)]


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"\0\0\0\0", 400, "bad_frame"),
        (b"\x20\0\x01\0", 400, "bad_frame"),
        (encode_frame(batch(b"x"), 0x60), 400, "bad_frame"),
        (encode_frame(batch(b"x"), TERMINAL), 400, "bad_frame"),
        (encode_frame(b"\xff\xff"), 400, "bad_frame"),
        (encode_frame(b"not zstd", ZSTD), 400, "bad_frame"),
        (encode_frame(b"not gzip", GZIP), 400, "bad_frame"),
        (encode_frame(zstandard.compress(bytes(3 << 20)), ZSTD), 400, "bad_frame"),
        (encode_frame(gzip.compress(bytes(3 << 20)), GZIP), 400, "bad_frame"),
        (encode_frame(b""), 422, "invalid"),
        (encode_frame(batch(*[b"x"] * 1001)), 422, "invalid"),
        (encode_frame(batch(bytes(1 << 20))), 422, "invalid"),
    ],
    ids=[
        "empty frame",
        "too long",
        "unknown compression",
        "terminal",
        "no message",
        "no zstd",
        "no gzip",
        "zstd bomb",
        "gzip bomb",
        "no records",
        "too many records",
        "too many bytes",
    ],
)
def test_a_bad_frame_ends_the_session_after_earlier_acknowledgements(
    stream: S2Server, data: bytes, status: int, code: str
) -> None:
    session = stream.append_session()
    session.send(b"a", settle=False)
    session.send_bytes(data, settle=False)
    session.send(b"b")

    assert session.acks == [(0, 1, 1)]
    last = session.frames[-1]
    assert (last.status, last.error["code"]) == (status, code)
    assert session.ended
    assert bodies(stream) == ["a"]


@pytest.mark.parametrize("bad", [b"\0\0\0\0", encode_frame(b"\xff"), encode_frame(b"")])
def test_what_comes_in_one_piece_with_a_bad_frame_is_acknowledged(
    stream: S2Server, bad: bytes
) -> None:
    session = stream.append_session()
    good = encode_frame(batch(b"a"))
    session.send_bytes(good + good + bad + good)

    assert [ack[:2] for ack in session.acks] == [(0, 1), (1, 2)]
    assert session.frames[-1].flag == TERMINAL
    assert session.ended
    assert bodies(stream) == ["a", "a"]


def test_a_body_that_ends_inside_a_frame_is_a_bad_frame(stream: S2Server) -> None:
    session = stream.append_session()
    session.send_bytes(encode_frame(batch(b"a"))[:-1])
    session.end()

    assert session.frames[-1].error["code"] == "bad_frame"
    assert bodies(stream) == []


@pytest.mark.parametrize(
    ("flag", "compress"), [(ZSTD, zstandard.compress), (GZIP, gzip.compress), (RECONNECT, bytes)]
)
def test_frames_may_be_compressed(stream: S2Server, flag: int, compress: object) -> None:
    session = stream.append_session()
    session.send_bytes(encode_frame(compress(batch(b"x" * 2000)), flag))  # type: ignore[operator]

    assert session.acks == [(0, 1, 1)]


def test_an_acknowledgement_has_all_three_positions(stream: S2Server) -> None:
    session = stream.append_session()
    session.send(b"a")

    ack = session.frames[0].ack
    assert ack.HasField("start") and ack.HasField("end") and ack.HasField("tail")


# -- Flow


def test_a_client_that_sends_more_than_is_taken_is_not_read_from(
    stream: S2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_session, "WAITING_BYTES_MAX", 1000)
    session = stream.append_session()
    session.send(bytes(400), settle=False)  # in flight
    session.send(bytes(400), settle=False)
    assert not session.upload.paused
    session.send(bytes(600), settle=False)
    assert session.upload.paused
    stream.settle()

    assert not session.upload.paused
    assert len(session.acks) == 3


def test_small_frames_that_unpack_to_much_are_unpacked_as_there_is_room(
    stream: S2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_session, "WAITING_BYTES_MAX", 2_000_000)
    stream.data.sessions.series_bytes_max = 2_000_000
    session = stream.append_session()
    packed = encode_frame(zstandard.compress(batch(bytes(1_000_000))), ZSTD)
    session.send_bytes(packed * 20, settle=False)
    assert stream.data.sessions.waiting_bytes < 3_000_100
    assert session.upload.paused
    session.end()

    assert len(session.acks) == 20
    assert session.ended
    assert stream.data.sessions.waiting_bytes == 0


def test_a_session_holds_so_many_batches_however_small(
    stream: S2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_session, "WAITING_BATCHES_MAX", 3)
    session = stream.append_session()
    for _ in range(4):
        session.send(b"", settle=False)
    assert session.upload.paused
    stream.settle()

    assert not session.upload.paused
    assert len(session.acks) == 4


def test_what_waits_in_all_sessions_together_is_bounded(
    stream: S2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_session, "SESSIONS_WAITING_BYTES_MAX", 200)
    sessions = [stream.append_session() for _ in range(4)]
    for session in sessions:
        for _ in range(5):
            session.send(bytes(92), settle=False)
    assert stream.data.sessions.waiting_bytes <= 200 + 100 * len(sessions)
    assert sessions[-1].upload.paused
    stream.settle()

    assert [len(session.acks) for session in sessions] == [5, 5, 5, 5]
    assert stream.data.sessions.waiting_bytes == 0


def test_many_sessions_that_wait_for_room_may_all_be_refused(
    stream: S2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_session, "SESSIONS_BYTES_MAX", 1)
    sessions = [stream.append_session() for _ in range(300)]
    for session in sessions:
        session.send(b"x", settle=False)
    monkeypatch.setattr(
        stream.engine, "append_series", lambda *_: refused(Overloaded("as much as there may be"))
    )
    stream.settle()

    assert all(session.ended for session in sessions[1:])
    assert {session.frames[-1].status for session in sessions[1:]} == {502}


def refused(error: Exception) -> Pending[SeriesAppended]:
    answer: Pending[SeriesAppended] = Pending()
    answer.fail(error)
    return answer


def test_a_client_that_does_not_read_its_acknowledgements_is_not_taken_from(
    stream: S2Server,
) -> None:
    session = stream.append_session(slow=True)
    session.send(b"a")
    session.send(b"b")
    assert stream.check_tail().tail == 1
    session.drain()

    assert stream.check_tail().tail == 2


def test_all_sessions_together_are_bounded(
    stream: S2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_session, "SESSIONS_BYTES_MAX", 100)
    sessions = [stream.append_session() for _ in range(4)]
    for session in sessions:
        session.send(bytes(100), settle=False)
    assert stream.data.sessions.submitted_bytes < 200
    stream.settle()

    assert [len(session.acks) for session in sessions] == [1, 1, 1, 1]
    assert stream.data.sessions.submitted_bytes == 0


def test_a_series_has_at_most_so_many_bytes(stream: S2Server) -> None:
    stream.data.sessions.series_bytes_max = 140
    session = stream.append_session()
    before = stream.engine.committer.figures.commits
    for _ in range(5):
        session.send(bytes(60), settle=False)
    stream.settle()

    assert len(session.acks) == 5
    assert stream.engine.committer.figures.commits - before == 3


def test_a_batch_larger_than_a_series_goes_by_itself(stream: S2Server) -> None:
    stream.data.sessions.series_bytes_max = 10
    session = stream.append_session()
    session.send(bytes(60), settle=False)
    session.send(bytes(60))

    assert len(session.acks) == 2


# -- Ends


def test_a_client_that_goes_away_leaves_what_was_submitted(stream: S2Server) -> None:
    session = stream.append_session()
    session.send(b"a", settle=False)
    session.send(b"b", settle=False)
    session.disconnect()

    assert bodies(stream) == ["a"]
    assert stream.data.sessions.submitted_bytes == 0


def test_a_cut_upload_leaves_what_was_submitted(stream: S2Server) -> None:
    session = stream.append_session()
    session.send(b"a", settle=False)
    session.abort()

    assert bodies(stream) == ["a"]


def test_a_session_that_waits_for_room_may_go_away(
    stream: S2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_session, "SESSIONS_BYTES_MAX", 1)
    one, other = stream.append_session(), stream.append_session()
    one.send(b"a", settle=False)
    other.send(b"b", settle=False)
    other.disconnect()
    stream.settle()

    assert one.acks == [(0, 1, 1)]
    assert bodies(stream) == ["a"]


def test_a_stream_that_is_deleted_ends_the_session_for_good(stream: S2Server) -> None:
    """A new stream of the same name is not the one that the session writes to."""
    session = stream.append_session()
    session.send(b"a")
    stream.submit(Delete(BASIN, "s", stream.clock.now_ms()))
    stream.make_stream("s")
    session.send(b"b")

    assert session.frames[-1].error["code"] == "stream_not_found"
    assert stream.check_tail().tail == 0


def test_a_basin_that_is_being_deleted_ends_the_session(server: S2Server) -> None:
    server.make_basin("doomed-basin")
    server.make_stream("s", basin="doomed-basin")
    session = server.append_session(s2_basin="doomed-basin")
    session.send(b"a")
    assert server.send("DELETE", "basins/doomed-basin").status == 202
    session.send(b"b")

    assert session.frames[-1].status == 409
    assert session.frames[-1].error["code"] == "basin_deletion_pending"
    assert session.ended


def test_a_closed_stream_ends_the_session(server: S2Server) -> None:
    server.make("x", content_type="application/octet-stream")
    session = server.append_session("x", s2_basin="durable-streams")
    session.send(b"a")
    server.close("x")
    session.send(b"b")

    assert session.frames[-1].error["code"] == "stream_closed"
    assert session.frames[-1].status == 409


def test_a_server_that_stops_answers_what_it_took_and_asks_to_move(stream: S2Server) -> None:
    session = stream.append_session()
    session.shut_down()
    session.shut_down()
    session.send(b"a")
    assert session.frames[-1].flag == RECONNECT
    assert not session.ended
    stream.advance(2.0)

    assert session.frames[-1].status == 503
    assert session.frames[-1].error["code"] == "server_draining"
    assert session.ended


def test_a_client_that_moves_as_it_is_asked_ends_its_session_cleanly(stream: S2Server) -> None:
    session = stream.append_session()
    session.shut_down()
    session.send(b"a")
    session.end()

    assert session.ended
    assert session.frames[-1].flag == RECONNECT


def test_a_slow_client_gets_the_failure_when_it_reads_again(stream: S2Server) -> None:
    session = stream.append_session(slow=True)
    session.send(b"a")
    session.send_bytes(b"\0\0\0\0")
    assert not session.ended
    session.drain()

    assert session.frames[-1].error["code"] == "bad_frame"
    assert session.ended


def test_a_failure_of_the_server_ends_the_session(
    stream: S2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = stream.append_session()

    def fail(command: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setitem(
        stream.engine.shard._apply,  # noqa: SLF001
        AppendSeries,
        fail,
    )
    session.send(b"a")

    assert session.frames[-1].error["code"] == "other"
    assert session.ended


# -- Making streams


def test_errors_before_the_session_are_ordinary(server: S2Server) -> None:
    path = "streams/s/records"
    assert server.fetch("POST", path, content_type="s2s/proto").code == "404 stream_not_found"
    reply = server.fetch("POST", path, content_type="s2s/proto", s2_basin="another-basin")
    assert reply.code == "404 basin_not_found"
    reply = server.fetch("POST", path, content_type="s2s/proto", s2_stream_config="{")
    assert reply.code == "400 bad_header"


def test_the_first_batch_makes_the_stream_where_the_basin_says_so(server: S2Server) -> None:
    server.make_basin("append-basin", create_on_append=True)
    config = json.dumps({"timestamping": {"mode": "arrival"}})
    session = server.append_session(s2_basin="append-basin", s2_stream_config=config)
    assert server.engine.shard.find("append-basin", "s") is None
    session.send(b"a", settle=False)
    session.send(b"b")

    assert session.acks == [(0, 1, 1), (1, 2, 2)]
    assert server.engine.open("append-basin", "s").state.timestamping == "arrival"


def test_a_batch_that_cannot_be_read_makes_no_stream(server: S2Server) -> None:
    server.make_basin("append-basin", create_on_append=True)
    for data in (encode_frame(b"\xff"), encode_frame(b""), b"\0\0\0\0"):
        session = server.append_session(s2_basin="append-basin")
        session.send_bytes(data)
        assert session.ended

    assert server.engine.shard.find("append-basin", "s") is None
