"""Many SSE readers: what they share, and what a slow or broken one does to the others. Nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import Corruption
from headwater.dialects.durable import live
from headwater.engine.engine import Engine
from tests.support.durable import DurableServer, Follower


def test_a_hundred_readers_are_sent_the_very_same_bytes(server: DurableServer) -> None:
    server.make("s", b"hello")
    followers = [server.follow() for _ in range(100)]
    server.append("s", b"world")
    assert {follower.text for follower in followers} == {"world"}
    assert len({id(follower.writer.writes[-1]) for follower in followers}) == 1


def test_what_is_sent_to_many_is_read_once(
    server: DurableServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also to readers that came back, which echo cursors of their own."""
    server.make("s", b"hello")
    current = server.poll("s", "-1").reply.cursor
    followers = [server.follow("s", "now", cursor=current + n % 4) for n in range(20)]
    reads = []
    read_now = Engine.read_now

    def counted(engine: Engine, *args: object) -> object:
        reads.append(args)
        return read_now(engine, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Engine, "read_now", counted)
    server.append("s", b"world")
    assert [follower.data for follower in followers] == [["world"]] * 20
    assert len(reads) == 1


def test_readers_at_different_places_get_what_they_lack(server: DurableServer) -> None:
    server.make("s", b"one ")
    early = server.follow("s", "-1")
    early.writer.slow = True
    server.append("s", b"two ")
    late = server.follow("s", "now")
    server.append("s", b"three ")
    early.writer.slow = False
    early.drain()
    server.append("s", b"four")
    assert (early.text, late.text) == ("one two three four", "three four")


def test_readers_woken_together_at_different_places_are_not_mixed_up(
    server: DurableServer,
) -> None:
    """One of them waits before half a character, the other asked to begin in the middle of it."""
    euro = "€".encode()
    server.make("s", euro[:1])
    before, inside = server.follow("s", "-1"), server.follow("s", "now")
    server.append("s", euro[1:])
    assert (before.text, inside.text) == ("€", "\ufffd\ufffd")


def test_a_slow_reader_is_left_alone_until_it_has_drained(server: DurableServer) -> None:
    server.make("s", b"0")
    follower = server.follow()
    follower.writer.slow = True
    server.append("s", b"1")
    for number in range(2, 6):
        server.append("s", b"%d" % number)
    server.advance(30)
    assert (follower.text, follower.comments) == ("1", [])
    follower.writer.slow = False
    follower.drain()
    assert follower.text == "12345"
    assert follower.data == ["1", "2345"], "it catches up from the store"
    assert follower.controls[-1]["streamNextOffset"] == server.head().next


def test_a_slow_reader_that_drains_at_the_tail_is_sent_nothing(server: DurableServer) -> None:
    server.make("s", b"0")
    follower = server.follow()
    follower.writer.slow = True
    server.append("s", b"1")
    follower.writer.slow = False
    follower.drain()
    assert follower.text == "1"
    server.append("s", b"2")
    assert follower.text == "12"


def test_a_slow_reader_still_hears_of_the_end(server: DurableServer) -> None:
    server.make("s", b"0")
    follower = server.follow()
    follower.writer.slow = True
    server.append("s", b"1")
    server.append("s", b"2", stream_closed="true")
    assert not follower.ended
    follower.drain()
    assert follower.text == "12"
    assert follower.controls[-1]["streamClosed"] and follower.ended


def test_a_slow_reader_of_a_deleted_stream_is_let_go(server: DurableServer) -> None:
    server.make("s", b"0")
    follower = server.follow()
    follower.writer.slow = True
    server.append("s", b"1")
    server.delete()
    server.advance(2)
    follower.drain()
    assert follower.ended
    assert server.engine.followers == 0


def test_a_slow_reader_is_recycled_like_the_others(server: DurableServer) -> None:
    server.make("s", b"0")
    follower = server.follow()
    follower.writer.slow = True
    server.append("s", b"1")
    server.advance(76)
    assert follower.ended
    assert server.engine.followers == 0


def test_a_heartbeat_may_find_the_reader_slow(server: DurableServer) -> None:
    server.make("s", b"0")
    follower = server.follow()
    follower.writer.slow = True
    server.advance(15)
    server.append("s", b"1")
    server.advance(15)
    assert (len(follower.comments), follower.text) == (1, "")
    follower.writer.slow = False
    follower.drain()
    assert follower.text == "1"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 30)),
        st.tuples(st.sampled_from(["slow", "drain", "join"]), st.integers(0, 5)),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, event_bytes=st.integers(1, 40))
def test_no_reader_ever_skips_or_repeats(steps: list[tuple[str, int]], event_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch, DurableServer() as server:
        patch.setattr(live, "EVENT_BYTES", event_bytes)
        server.make("s")
        written = ""
        followers: list[tuple[Follower, int]] = [(server.follow("s", "-1"), 0)]
        for step, value in steps:
            follower, _ = followers[value % len(followers)]
            if step == "append":
                text = "".join(chr(97 + (len(written) + i) % 26) for i in range(value))
                written += text
                server.append("s", text.encode())
            elif step == "slow":
                follower.writer.slow = True
            elif step == "join":
                followers.append((server.follow("s", "now"), len(written)))
            elif follower.writer.full:
                follower.writer.slow = False
                follower.drain()
        for follower, joined in followers:
            follower.writer.slow = False
            if follower.writer.full:
                follower.drain()
            assert follower.text == written[joined:]
            assert follower.controls[-1]["streamNextOffset"] == server.head().next


# -- readers that break


def test_a_reader_whose_connection_fails_does_not_disturb_the_others(
    server: DurableServer,
) -> None:
    server.make("s", b"hello")
    followers = [server.follow() for _ in range(5)]
    followers[2].writer.broken = True
    server.append("s", b"world")
    others = [follower.text for follower in followers if not follower.writer.broken]
    assert others == ["world"] * 4
    assert followers[2].writer.aborted
    assert server.engine.followers == 4


def test_a_heartbeat_that_fails_does_not_stop_the_others(server: DurableServer) -> None:
    server.make("s", b"hello")
    followers = [server.follow() for _ in range(3)]
    followers[0].writer.broken = True
    server.advance(30)
    assert [len(follower.comments) for follower in followers] == [0, 2, 2]


def test_data_that_cannot_be_read_cuts_the_response(
    server: DurableServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ending it properly would tell the client that there is nothing more."""
    server.make("s", b"hello")
    follower = server.follow()

    def corrupt(*_: object) -> None:
        raise Corruption("the test says so")

    monkeypatch.setattr(Engine, "read_now", corrupt)
    server.append("s", b"world")
    assert (follower.writer.aborted, follower.ended) == (True, False)
    assert server.engine.followers == 0
