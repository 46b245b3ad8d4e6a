"""Byte positions found exactly: compared with what reading every message shows."""

from __future__ import annotations

import pytest

from headwater.core.errors import InvalidOffset, OffsetTrimmed
from headwater.core.limits import RECORD_BODY_BYTES_MAX
from headwater.engine import search, seek
from tests.support.durable import DurableServer

LONG = RECORD_BODY_BYTES_MAX


def boundaries(server: DurableServer, name: str, near: range) -> dict[int, int]:
    """Byte position -> record, for those of `near` that are found."""
    stream = server.engine.open("durable-streams", name)
    found: dict[int, int] = {}
    for byte in near:
        try:
            position = seek.find_boundary(server.engine.shard, stream, byte)
        except InvalidOffset:
            continue
        assert position.byte == byte
        found[byte] = position.seq
    return found


@pytest.fixture
def server() -> DurableServer:
    return DurableServer()


def test_only_the_starts_of_messages_and_the_tail_are_boundaries(server: DurableServer) -> None:
    with server:
        server.make("s", b"ab", b"c", b"defg", b"h")
        assert boundaries(server, "s", range(12)) == {0: 0, 2: 1, 3: 2, 7: 3, 8: 4}


def test_the_parts_of_a_long_message_are_none(server: DurableServer) -> None:
    with server:
        server.make("s", b"a", b"x" * (LONG + 2), b"b")
        near = range(LONG - 2, LONG + 6)
        assert boundaries(server, "s", near) == {LONG + 3: 3, LONG + 4: 4}


def test_a_fork_has_those_it_inherited_and_its_own(server: DurableServer) -> None:
    with server:
        server.make("s", b"ab", b"cd", b"ef")
        server.fork("f", stream_fork_offset="0000000000000002_0000000000000004")
        server.append("s", b"longer")
        server.append("f", b"xyz", b"w")
        assert boundaries(server, "f", range(12)) == {0: 0, 2: 1, 4: 2, 7: 3, 8: 4}
        server.fork("g", "f", stream_fork_offset="0000000000000003_0000000000000007")
        server.append("g", b"!")
        assert boundaries(server, "g", range(12)) == {0: 0, 2: 1, 4: 2, 7: 3, 8: 4}


def test_what_is_trimmed_is_told_apart(server: DurableServer) -> None:
    with server:
        server.make("s", b"ab", b"cd", b"ef", stream_retention="records=1")
        server.advance(2)
        stream = server.engine.open("durable-streams", "s")
        for byte in (0, 1, 2, 3):
            with pytest.raises(OffsetTrimmed):
                seek.find_boundary(server.engine.shard, stream, byte)
        assert boundaries(server, "s", range(4, 8)) == {4: 2, 6: 3}


def test_packed_records_have_the_same_boundaries(server: DurableServer) -> None:
    with server:
        bodies = [b"x" * (1 + number % 7) for number in range(300)]
        server.make("s", *bodies)
        for _ in range(50):
            server.settle()
        ends, at = {0: 0}, 0
        for number, body in enumerate(bodies, 1):
            at += len(body)
            ends[at] = number
        assert boundaries(server, "s", range(at + 3)) == ends
        stream = server.engine.open("durable-streams", "s")
        assert search.run_of(server.engine.shard, stream.state, stream.state.first_seq).first == 0
