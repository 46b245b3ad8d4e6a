"""POST trim: records that are kept elsewhere are forgotten here, and nothing else is."""

from __future__ import annotations

import pytest

from headwater.core.commands import Trim
from headwater.core.limits import RECORD_BODY_BYTES_MAX
from headwater.core.types import ByteOffset, Position, SeqNum, StreamId
from tests.support.log import LogReply, LogServer


def trim(server: LogServer, query: str, name: str = "s") -> LogReply:
    reply = server.fetch(f"trim/durable-streams/{name}", query, method="POST")
    server.settle()
    return reply


def kept(server: LogServer, name: str = "s") -> list[int]:
    return [line["seq_num"] for line in server.records(name).lines]


def test_records_before_a_number_are_forgotten(server: LogServer) -> None:
    server.make("s", b"a", b"bb", b"ccc", b"d")
    assert trim(server, "to=2").json == {
        "first": {"seq_num": 2, "byte": 3, "offset": "0000000000000002_0000000000000003"}
    }
    assert kept(server) == [2, 3]
    assert server.records("s", "from=1").status == 410
    assert server.info()["first"]["seq_num"] == 2


def test_a_trim_survives_a_restart(server: LogServer) -> None:
    server.make("s", b"a", b"b", b"c")
    trim(server, "to=2")
    with LogServer(server.engine.store, server.clock) as restarted:
        assert kept(restarted) == [2]


@pytest.mark.parametrize("to", [0, 1, 2])
def test_to_trim_again_changes_nothing(server: LogServer, to: int) -> None:
    server.make("s", b"a", b"b", b"c")
    trim(server, "to=2")
    assert trim(server, f"to={to}").json["first"]["seq_num"] == 2
    assert kept(server) == [2]


def test_all_may_go_and_the_numbers_go_on(server: LogServer) -> None:
    server.make("s", b"a", b"b")
    assert trim(server, "to=2").status == 200
    assert kept(server) == []
    server.add("s", [b"c"])
    assert kept(server) == [2]


def test_a_message_is_kept_whole(server: LogServer) -> None:
    server.make("s", b"a")
    server.add("s", [b"x" * (RECORD_BODY_BYTES_MAX + 1)])
    assert trim(server, "to=2").json["first"]["seq_num"] == 1
    assert kept(server) == [1, 2]


def test_a_fork_keeps_what_it_inherited(server: LogServer) -> None:
    server.make("s", b"a", b"b")
    server.fork("f", "s")
    trim(server, "to=2")
    assert kept(server) == []
    assert kept(server, "f") == [0, 1]


def test_only_the_stream_that_was_meant(server: LogServer) -> None:
    server.make("s", b"a", b"b")
    known = server.info()["id"]
    server.delete("s")
    server.make("s", b"c", b"d")
    refused = trim(server, f"to=1&id={known}")
    assert (refused.status, refused.error) == (404, "stream_not_found")
    assert trim(server, f"to=1&id={server.info()['id']}").status == 200
    assert kept(server) == [1]


def test_a_stream_made_anew_before_the_trim_is_applied_is_left_alone(server: LogServer) -> None:
    server.make("s", b"a", b"b")
    old = StreamId(int(server.info()["id"], 16))
    server.delete("s")
    server.make("s", b"c", b"d")
    now = server.clock.now_ms()
    server.submit(Trim("durable-streams", "s", now, Position(SeqNum(1), ByteOffset(1)), old))
    assert kept(server) == [0, 1]


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        pytest.param("", 400, "to is missing", id="no number"),
        pytest.param("to=x", 400, "to is a whole number", id="not a number"),
        pytest.param("to=3", 416, "to is past the tail. to=3 tail=2", id="past the tail"),
        pytest.param("to=1&until=2", 400, "'until' is not known here; known: to, id", id="unknown"),
    ],
)
def test_what_is_refused(server: LogServer, query: str, status: int, words: str) -> None:
    server.make("s", b"a", b"b")
    refused = trim(server, query)
    assert refused.status == status
    assert words in refused.message
    assert kept(server) == [0, 1]


def test_there_must_be_a_stream(server: LogServer) -> None:
    assert trim(server, "to=0", "none").status == 404


def test_a_server_for_reading_trims_nothing() -> None:
    with LogServer(read_only=True) as server:
        refused = trim(server, "to=0")
    assert (refused.status, refused.error) == (405, "read_only")


def test_it_is_for_post_only(server: LogServer) -> None:
    reply = server.fetch("trim/durable-streams/s", "to=0")
    assert (reply.status, reply.headers["allow"]) == (405, "POST, OPTIONS")
