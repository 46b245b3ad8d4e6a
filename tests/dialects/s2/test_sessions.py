"""Read sessions of S2S frames: catching up, following, bounds, ends. S2 API: sessions."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
import s2_sdk._generated.s2.v1.s2_pb2 as pb
import zstandard

from headwater.core.commands import Delete
from headwater.wire.http import Response
from tests.support.durable import NOW_MS
from tests.support.s2 import (
    BASIN,
    GZIP,
    RECONNECT,
    TERMINAL,
    ZSTD,
    S2Server,
    Session,
    trim,
)


@pytest.fixture
def filled(server: S2Server) -> S2Server:
    """Records 0 to 4, a second apart."""
    server.make_stream("s")
    server.fill("s", "a", "b", "c", "d", "e", seconds=1.0)
    return server


def refused(server: S2Server, query: str) -> Response:
    answer = server.ask("GET", "streams/s/records", query, content_type="s2s/proto")
    response: Response = server.runner.result(answer)
    return response


# -- Waiting at the tail


@pytest.mark.parametrize("bound", ["count=9", "bytes=9999", f"until={NOW_MS * 2}"])
def test_a_session_with_a_bound_stops_at_the_tail_by_default(filled: S2Server, bound: str) -> None:
    session = filled.session(f"seq_num=3&{bound}")

    assert session.numbers == [3, 4]
    assert session.ended


@pytest.mark.parametrize(
    ("bound", "numbers"),
    [("count=2", [0, 1]), ("bytes=27", [0, 1, 2]), (f"until={NOW_MS + 1000}", [0])],
)
def test_a_session_stops_when_a_bound_is_reached(
    filled: S2Server, bound: str, numbers: list[int]
) -> None:
    for wait in ("", "&wait=30"):
        session = filled.session(f"seq_num=0&{bound}{wait}")
        assert session.numbers == numbers
        assert session.ended


def test_a_session_without_bounds_follows_the_stream_for_ever(filled: S2Server) -> None:
    session = filled.session("seq_num=3")
    filled.clock.advance(3600.0)
    filled.fill("s", "f", "g")

    assert session.numbers == [3, 4, 5, 6]
    assert not session.ended


def test_a_session_with_wait_0_reads_to_the_tail_and_ends(filled: S2Server) -> None:
    session = filled.session("seq_num=0&wait=0")

    assert session.numbers == [0, 1, 2, 3, 4]
    assert session.ended
    assert session.heartbeats == 0


def test_wait_is_how_long_a_session_stays_without_records(filled: S2Server) -> None:
    session = filled.session("seq_num=5&wait=3")
    filled.advance(2.5)
    filled.fill("s", "f")
    filled.advance(2.5)
    assert not session.ended
    filled.advance(1.0)

    assert session.numbers == [5]
    assert session.ended
    assert filled.engine.followers == 0


def test_heartbeats_do_not_extend_the_wait(filled: S2Server) -> None:
    session = filled.session("seq_num=5&wait=40")
    filled.advance(39.0)
    assert session.heartbeats > 2
    assert not session.ended
    filled.advance(1.5)

    assert session.ended


def test_wait_is_counted_from_when_the_tail_is_reached(filled: S2Server) -> None:
    session = filled.session("seq_num=0&wait=5", slow=True)
    filled.advance(20.0)
    assert not session.ended
    session.writer.slow = False
    session.drain()
    filled.advance(4.5)
    assert not session.ended
    filled.advance(1.0)

    assert session.ended


def test_a_session_that_waits_keeps_to_its_bounds_throughout(filled: S2Server) -> None:
    session = filled.session("seq_num=3&count=4&wait=30")
    filled.fill("s", "f")
    assert not session.ended
    filled.fill("s", "g", "h")

    assert session.numbers == [3, 4, 5, 6]
    assert session.ended


def test_bytes_bounds_the_whole_session(filled: S2Server) -> None:
    session = filled.session("seq_num=3&bytes=26&wait=30")
    assert not session.ended
    filled.fill("s", "f")

    assert session.numbers == [3, 4]
    assert session.ended


def test_until_ends_a_session_as_soon_as_nothing_can_come(filled: S2Server) -> None:
    session = filled.session(f"seq_num=3&until={NOW_MS + 5500}&wait=30")
    filled.fill("s", "f")
    assert session.numbers == [3, 4, 5]
    assert not session.ended
    filled.advance(1.0)
    filled.fill("s", "g")

    assert session.numbers == [3, 4, 5]
    assert session.ended


# -- Starts that have no record


@pytest.mark.parametrize(
    "query",
    [
        "seq_num=6",
        f"timestamp={NOW_MS * 2}",
        "seq_num=5&wait=0",
        "seq_num=5&count=1",
        "wait=0",
        "count=5",
        "seq_num=9&clamp=true&wait=0",
        "seq_num=9&wait=5",
    ],
)
def test_416_is_an_ordinary_answer_before_the_session(filled: S2Server, query: str) -> None:
    response = refused(filled, query)

    assert response.status == 416
    assert b'{"tail":{"seq_num":5' in bytes(response.body)  # type: ignore[arg-type]


@pytest.mark.parametrize("query", ["", "seq_num=5", "seq_num=9&clamp=true", "count=1&wait=5"])
def test_a_session_may_begin_at_the_tail(filled: S2Server, query: str) -> None:
    session = filled.session(query)
    filled.fill("s", "f")

    assert session.numbers == [5]


@pytest.mark.parametrize("query", ["count=0", "bytes=0", "seq_num=0&bytes=8", "seq_num=0&until=0"])
def test_a_bound_that_allows_nothing_gives_a_session_without_records(
    filled: S2Server, query: str
) -> None:
    session = filled.session(query if "seq_num" in query else f"{query}&seq_num=0")

    assert session.frames == []
    assert session.ended


def test_errors_before_the_session_are_ordinary(server: S2Server) -> None:
    assert refused(server, "").status == 404
    server.make_stream("s")
    assert refused(server, "seq_num=x").status == 400
    assert refused(server, "timestamp=5&until=5").status == 422


# -- Frames


def test_the_head_says_that_frames_follow(filled: S2Server) -> None:
    session = filled.session("seq_num=0")

    assert session.reply.status == 200
    assert session.reply.headers["content-type"] == "s2s/proto"
    assert session.reply.headers["cache-control"] == "no-cache, no-transform"
    assert "content-encoding" not in session.reply.headers


def test_a_batch_that_reaches_the_tail_tells_it(filled: S2Server) -> None:
    session = filled.session("seq_num=0")
    filled.fill("s", "f")

    caught_up, beat, live = (frame.batch for frame in session.frames)
    assert (caught_up.tail.seq_num, caught_up.tail.timestamp) == (5, NOW_MS + 4000)
    assert (beat.tail.seq_num, beat.tail.timestamp) == (5, NOW_MS + 4000)
    assert (live.tail.seq_num, live.tail.timestamp) == (6, NOW_MS + 5000)


def test_a_batch_before_the_tail_does_not_tell_it(filled: S2Server) -> None:
    batch = filled.session("seq_num=0&count=3").frames[0].batch

    assert not batch.HasField("tail")


def test_batches_have_at_most_1000_records_and_1_mib(server: S2Server) -> None:
    server.make_stream("s")
    for _ in range(3):
        server.add("s", *["x"] * 1000)
    for _ in range(10):
        server.add("s", "y" * 300_000)

    session = server.session("seq_num=0&wait=0")

    assert session.numbers == list(range(3010))
    for frame in session.frames:
        assert 1 <= len(frame.batch.records) <= 1000
        assert sum(8 + len(record.body) for record in frame.batch.records) <= 1024 * 1024


def test_a_heartbeat_comes_at_once_and_after_5_to_15_seconds_of_silence(
    filled: S2Server,
) -> None:
    session = filled.session("seq_num=5")
    assert session.heartbeats == 1
    for _ in range(20):
        before = session.heartbeats
        filled.advance(4.0)
        assert session.heartbeats == before or session.heartbeats == before + 1
        filled.advance(11.0)
        assert session.heartbeats > before

    filled.fill("s", "f")
    before = session.heartbeats
    filled.advance(4.9)
    assert session.heartbeats == before


def test_heartbeats_come_at_different_times(filled: S2Server) -> None:
    sessions = [filled.session("seq_num=5") for _ in range(20)]
    filled.advance(10.0)

    assert {session.heartbeats for session in sessions} > {1, 2} or {1, 2} <= {
        session.heartbeats for session in sessions
    }


@pytest.mark.parametrize(
    ("accept", "flag"),
    [
        ("zstd", ZSTD),
        ("gzip, zstd", ZSTD),
        ("gzip;q=0.5", GZIP),
        ("br, GZIP", GZIP),
        ("br", 0),
        ("", 0),
    ],
)
def test_a_frame_of_1_kib_is_compressed_for_who_takes_it(
    server: S2Server, accept: str, flag: int
) -> None:
    server.make_stream("s")
    server.add("s", "x" * 2000)
    server.add("s", "small")

    session = server.session("seq_num=0&count=1", accept_encoding=accept)
    frame = session.frames[0]
    assert frame.flag == flag
    unpackers: dict[int, Any] = {ZSTD: zstandard.decompress, GZIP: gzip.decompress, 0: bytes}
    batch = pb.ReadBatch.FromString(unpackers[flag](frame.body))
    assert batch.records[0].body == b"x" * 2000
    assert server.session("seq_num=1&count=1", accept_encoding=accept).frames[0].flag == 0


# -- Slow clients, many clients


def test_a_slow_client_reads_on_from_the_store_and_misses_nothing(filled: S2Server) -> None:
    session = filled.session("seq_num=0", slow=True)
    written = len(session.writer.writes)
    for number in range(50):
        filled.add("s", str(number))
    assert len(session.writer.writes) == written

    session.writer.slow = False
    session.drain()
    assert session.numbers == list(range(55))


def test_what_one_session_rendered_serves_all_at_the_same_place(filled: S2Server) -> None:
    sessions = [filled.session("seq_num=5") for _ in range(3)]
    filled.fill("s", "f")

    written = {id(session.writer.writes[-1]) for session in sessions}
    assert len(written) == 1


def test_sessions_of_different_forms_and_bounds_do_not_mix(filled: S2Server) -> None:
    plain = filled.session("seq_num=5")
    packed = filled.session("seq_num=5", accept_encoding="zstd")
    bounded = filled.session("seq_num=5&count=1&wait=30")
    events = filled.events("seq_num=5")
    filled.add("s", "x" * 2000, "y")

    assert plain.numbers == [5, 6]
    assert packed.frames[-1].flag == ZSTD
    assert bounded.numbers == [5] and bounded.ended
    assert b"id: 6,2,2017\n" in events.received


def test_a_client_that_goes_away_is_forgotten(filled: S2Server) -> None:
    timers = filled.clock.timers
    session = filled.session("seq_num=0&wait=100")
    assert filled.engine.followers == 1
    session.disconnect()
    filled.fill("s", "f")

    assert filled.engine.followers == 0
    assert filled.clock.timers == timers
    assert session.numbers == [0, 1, 2, 3, 4]


def test_a_client_that_goes_away_while_catching_up_is_forgotten(server: S2Server) -> None:
    server.make_stream("s")
    for _ in range(6):
        server.add("s", *["x" * 1000] * 500)
    session = server.session("seq_num=0", slow=True)
    received = len(session.numbers)
    session.disconnect()
    server.settle()

    assert len(session.numbers) == received < 3000
    assert server.engine.followers == 0


def test_there_may_be_so_many_live_readers() -> None:
    with S2Server(followers_max=1) as server:
        server.make_stream("s")
        server.session("seq_num=0")
        response = refused(server, "seq_num=0")
        assert response.status == 429
        assert dict(response.headers)[b"retry-after-ms"] == b"1000"
        assert server.wait("seq_num=0&wait=5").found.code == "429 rate_limited"


# -- What happens to the stream


def test_trimmed_records_are_skipped(filled: S2Server) -> None:
    session = filled.session("seq_num=0", slow=True)
    filled.add("s", trim(4), format="base64")
    filled.add("s", *["x"] * 3)
    filled.advance(10.0)
    filled.fill("s", "y")
    session.writer.slow = False
    session.drain()

    assert session.numbers[-5:] == [5, 6, 7, 8, 9]


def test_a_live_reader_sees_what_is_trimmed_in_the_same_breath(server: S2Server) -> None:
    server.make_stream("s")
    session = server.session("seq_num=0")
    server.add("s", {"body": "bGFzdA=="}, trim(2), format="base64")

    assert session.numbers == [0, 1]


def test_a_closed_stream_ends_its_sessions_after_the_last_record(server: S2Server) -> None:
    server.make("x/y", b"one")
    session = server.session("seq_num=0", name="x%2Fy", s2_basin="durable-streams")
    assert not session.ended
    server.close("x/y")

    assert session.numbers == [0]
    assert session.ended
    assert session.frames[-1].flag == 0
    assert server.session("seq_num=0", name="x%2Fy", s2_basin="durable-streams").ended
    reply = server.add("x%2Fy", "two", basin="durable-streams")
    assert reply.code == "409 stream_closed"


def test_a_read_that_waits_ends_when_the_stream_is_closed(server: S2Server) -> None:
    server.make("x", b"one")
    poll = server.wait("seq_num=1&wait=50", name="x", s2_basin="durable-streams")
    server.close("x")

    assert poll.found.records == []


def delete(server: S2Server) -> None:
    server.submit(Delete(BASIN, "s", server.clock.now_ms()))


def test_a_deleted_stream_ends_its_sessions_with_an_error(filled: S2Server) -> None:
    session = filled.session("seq_num=0")
    delete(filled)

    assert session.ended
    assert session.frames[-1].status == 404
    assert session.frames[-1].error["code"] == "stream_not_found"


def test_a_read_that_waits_fails_when_the_stream_is_deleted(filled: S2Server) -> None:
    poll = filled.wait("seq_num=5&wait=50")
    delete(filled)

    assert poll.found.code == "404 stream_not_found"


def test_a_slow_client_gets_the_error_when_it_reads_again(filled: S2Server) -> None:
    session = filled.session("seq_num=0", slow=True)
    delete(filled)
    filled.advance(20.0)
    assert not session.ended
    session.drain()

    assert session.numbers == [0, 1, 2, 3, 4]
    assert session.frames[-1].flag == TERMINAL
    assert session.ended


# -- Draining


def test_a_server_that_stops_asks_its_clients_to_move_and_then_ends(filled: S2Server) -> None:
    session = filled.session("seq_num=0")
    session.shut_down()
    session.shut_down()
    advice = session.frames[-1]
    assert advice.flag == RECONNECT
    assert advice.batch.tail.seq_num == 5
    filled.fill("s", "f")
    assert session.frames[-1].flag == RECONNECT
    assert [record.seq_num for record in session.frames[-1].batch.records] == [5]
    assert not session.ended
    filled.advance(2.0)

    assert session.frames[-1].status == 503
    assert session.frames[-1].error["code"] == "server_draining"
    assert session.ended


def test_a_slow_client_is_told_to_move_when_it_reads_again(filled: S2Server) -> None:
    session = filled.session("seq_num=0", slow=True)
    session.shut_down()
    filled.fill("s", "f")
    session.writer.slow = False
    session.drain()

    assert session.frames[-1].flag == RECONNECT


def test_a_slow_client_of_a_server_that_stops_reads_what_it_has_first(filled: S2Server) -> None:
    session = filled.session("seq_num=0", slow=True)
    session.shut_down()
    filled.advance(5.0)
    assert not session.ended
    session.drain()

    assert session.numbers == [0, 1, 2, 3, 4]
    assert session.frames[-1].error["code"] == "server_draining"
    assert session.ended
    assert filled.engine.followers == 0


def test_compressed_frames_can_ask_to_move_too(server: S2Server) -> None:
    server.make_stream("s")
    session = server.session("seq_num=0", accept_encoding="zstd")
    session.shut_down()
    server.add("s", "x" * 2000)

    assert session.frames[-1].flag == RECONNECT | ZSTD


def test_damage_ends_a_session_with_an_error(
    filled: S2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Session = filled.session("seq_num=0")

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(filled.engine.shard, "read_runs", fail)
    filled.fill("s", "f")

    assert session.frames[-1].error["code"] == "other"
    assert session.ended
