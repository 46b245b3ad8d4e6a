"""Forks: where they may leave their source, and what deleting does to families. PROTOCOL §4.2."""

from __future__ import annotations

import pytest

from headwater.core.errors import (
    ForkRefused,
    HeadwaterError,
    InvalidOffset,
    InvalidRequest,
    StreamExists,
    StreamGone,
    StreamNotFound,
)
from headwater.core.types import Position, SeqNum
from headwater.storage import keys
from headwater.storage.check import check_store
from tests.support.builders import (
    JSON,
    append,
    claim,
    create,
    delete,
    fork_of,
    position,
    s2_append,
    trim,
)
from tests.support.clock import START_MS
from tests.support.engines import EngineRunner, small_sizes


@pytest.mark.parametrize(
    ("at", "sub_offset", "expected"),
    [
        pytest.param(None, 0, b"onetwothree", id="at the tail"),
        pytest.param(position(3, 11), 0, b"onetwothree", id="at the tail, named"),
        pytest.param(position(0, 0), 0, b"", id="at the start"),
        pytest.param(position(1, 3), 0, b"one", id="after the first"),
        pytest.param(position(1, 3), 1, b"onet", id="a byte more"),
        pytest.param(position(1, 3), 3, b"onetwo", id="the whole next message"),
        pytest.param(position(0, 0), 2, b"on", id="two bytes of the first"),
        pytest.param(position(2, 6), 5, b"onetwothree", id="up to the tail"),
        pytest.param(position(1, 3), 4, InvalidRequest, id="past the next message"),
        pytest.param(position(3, 11), 1, InvalidRequest, id="past the tail"),
        pytest.param(position(2, 6), 6, InvalidRequest, id="past the last message"),
        pytest.param(position(4, 20), 0, InvalidOffset, id="beyond the tail"),
        pytest.param(position(3, 10), 0, InvalidOffset, id="beside the tail"),
        pytest.param(position(1, 4), 0, InvalidOffset, id="no boundary"),
    ],
)
def test_a_fork_of_bytes_leaves_at_an_offset_and_some_bytes(
    at: Position | None, sub_offset: int, expected: bytes | type[HeadwaterError]
) -> None:
    with EngineRunner() as runner:
        runner.together(create("source", body=b"one"), append("source", b"two"))
        runner.append(append("source", b"three"))
        command = create("fork", content_type=None, fork=fork_of("source", at, sub_offset))
        if isinstance(expected, bytes):
            assert runner.create(command).tail.byte == len(expected)
            assert runner.content("fork") == expected
        else:
            with pytest.raises(expected):
                runner.create(command)


@pytest.mark.parametrize(
    ("at", "sub_offset", "expected"),
    [
        pytest.param(position(0, 0), 2, b"[1,2]", id="two messages"),
        pytest.param(position(0, 0), 3, b"[1,2,3]", id="the whole append"),
        pytest.param(position(0, 0), 4, InvalidRequest, id="past the append"),
        pytest.param(position(1, 1), 2, b"[1,2,3]", id="from inside the append"),
        pytest.param(position(1, 1), 3, InvalidRequest, id="past it from inside"),
        pytest.param(position(3, 3), 1, b"[1,2,3,4]", id="the next append"),
        pytest.param(position(4, 4), 1, InvalidRequest, id="past the tail"),
    ],
)
def test_a_fork_of_json_leaves_at_an_offset_and_some_messages(
    at: Position, sub_offset: int, expected: bytes | type[HeadwaterError]
) -> None:
    with EngineRunner() as runner:
        runner.create(create("source", content_type=JSON, body=b"[1,2,3]"))
        runner.append(append("source", b"4"))
        command = create("fork", content_type=None, fork=fork_of("source", at, sub_offset))
        if isinstance(expected, bytes):
            runner.create(command)
            assert runner.content("fork") == expected
        else:
            with pytest.raises(expected):
                runner.create(command)


@pytest.mark.parametrize("sub_offset", [1, 15, 16, 17, 32, 39, 40])
def test_a_fork_may_leave_anywhere_inside_a_long_message(sub_offset: int) -> None:
    """At the end of a record that goes on, too: the message ends there for the fork."""
    text = bytes(range(40))
    with small_sizes(record_bytes=16), EngineRunner() as runner:
        runner.create(create("source", body=text))
        runner.create(
            create("fork", content_type=None, fork=fork_of("source", position(0, 0), sub_offset))
        )
        assert runner.content("fork") == text[:sub_offset]
        runner.append(append("fork", b"own"))
        runner.create(create("child", content_type=None, fork=fork_of("fork")))
        tail = runner.open("child").state
        assert (tail.tail_message, tail.tail_byte) == (2, sub_offset + 3)
        for name in ("fork", "child"):
            first = runner.read(name, size_max=1)
            assert first.end == position(-(-sub_offset // 16), sub_offset)
            assert runner.read(name, first.end).end == tail.tail
            assert runner.content(name) == text[:sub_offset] + b"own"


@pytest.mark.parametrize(("sub_offset", "expected"), [(2, b"ab"), (3, b"abc"), (4, b"abcd")])
def test_command_records_have_no_bytes_to_leave_in(sub_offset: int, expected: bytes) -> None:
    with EngineRunner() as runner:
        runner.create(create("source"))
        headers = [[], [(b"", b"fence")], []]
        runner.together(s2_append("source", b"ab", b"a token", b"cd", headers=headers))
        fork = fork_of("source", position(0, 0), sub_offset)
        runner.create(create("fork", content_type=None, fork=fork))
        assert runner.content("fork") == expected


def test_a_fork_cannot_leave_where_a_record_continues_a_message() -> None:
    with small_sizes(record_bytes=16), EngineRunner() as runner:
        runner.create(create("source", body=bytes(40)))
        with pytest.raises(InvalidOffset):
            runner.create(
                create("fork", content_type=None, fork=fork_of("source", position(1, 16)))
            )


def test_forks_share_offsets_with_their_source_and_then_go_their_own_way() -> None:
    with EngineRunner() as runner:
        runner.create(create("source", body=b"aa"))
        runner.append(append("source", b"bb"))
        runner.create(
            create("fork", content_type=None, fork=fork_of("source", position(1, 2)), body=b"F")
        )
        runner.append(append("source", b"cc"))
        runner.append(append("source", close=True))
        runner.append(append("fork", b"G"))
        assert runner.content("source") == b"aabbcc"
        assert runner.content("fork") == b"aaFG"
        assert runner.read("fork", position(1, 2)).end == position(3, 4)
        assert not runner.read("fork").closed
        with pytest.raises(InvalidOffset):
            runner.read("fork", position(2, 4))


def test_writer_state_is_not_inherited() -> None:
    with EngineRunner() as runner:
        runner.create(create("source", body=b"0", producer=claim(seq=0), stream_seq="z"))
        runner.create(create("fork", content_type=None, fork=fork_of("source")))
        assert not runner.append(append("fork", b"1", producer=claim(seq=0), stream_seq="a")).repeat


def test_a_chain_of_forks_reads_through_all_of_them_after_a_restart() -> None:
    with EngineRunner() as runner:
        runner.create(create("f0", body=b"0"))
        for number in range(1, 12):
            runner.create(
                create(
                    f"f{number}",
                    content_type=None,
                    fork=fork_of(f"f{number - 1}"),
                    body=b"%x" % number,
                )
            )
        with EngineRunner(runner.store, hot_streams_max=1) as reopened:
            assert reopened.content("f11") == b"0123456789ab"
            assert reopened.content("f5") == b"012345"


# -- deleting


def test_a_source_with_forks_is_kept_for_them_and_its_name_stays_taken() -> None:
    with EngineRunner() as runner:
        runner.create(create("source", body=b"data"))
        runner.create(create("fork", content_type=None, fork=fork_of("source"), body=b"!"))
        runner.delete(delete("source"))
        with pytest.raises(StreamGone):
            runner.open("source")
        for command, error in (
            (append("source", b"x"), StreamGone),
            (delete("source"), StreamGone),
            (create("source"), StreamExists),
            (create("other", content_type=None, fork=fork_of("source")), ForkRefused),
        ):
            assert type(runner.outcome(runner.submit(command))) is error
        with EngineRunner(runner.store) as reopened:
            assert reopened.content("fork") == b"data!"
            with pytest.raises(StreamGone):
                reopened.open("source")


def test_the_last_fork_takes_the_deleted_source_with_it() -> None:
    with EngineRunner() as runner:
        runner.create(create("source", body=b"data"))
        for name in ("f1", "f2"):
            runner.create(create(name, content_type=None, fork=fork_of("source")))
        runner.delete(delete("source"))
        runner.delete(delete("f1"))
        assert runner.content("f2") == b"data"
        runner.delete(delete("f2"))
        with pytest.raises(StreamNotFound):
            runner.open("source")
        assert runner.create(create("source", body=b"new")).new
        assert runner.content("source") == b"new"


def test_a_deleted_middle_keeps_the_chain_and_falls_with_its_end() -> None:
    with EngineRunner() as runner:
        runner.create(create("a", body=b"a"))
        runner.create(create("b", content_type=None, fork=fork_of("a"), body=b"b"))
        runner.create(create("c", content_type=None, fork=fork_of("b"), body=b"c"))
        runner.delete(delete("b"))
        assert runner.content("c") == b"abc"
        runner.delete(delete("a"))
        assert runner.content("c") == b"abc"
        with EngineRunner(runner.store, hot_streams_max=1) as reopened:
            assert reopened.content("c") == b"abc"
            reopened.delete(delete("c"))
            for name in ("a", "b", "c"):
                with pytest.raises(StreamNotFound):
                    reopened.open(name)
            assert left_over(reopened) == []


def test_deleting_the_end_of_a_chain_leaves_what_is_alive() -> None:
    with EngineRunner() as runner:
        runner.create(create("a", body=b"a"))
        runner.create(create("b", content_type=None, fork=fork_of("a"), body=b"b"))
        runner.create(create("c", content_type=None, fork=fork_of("b"), body=b"c"))
        runner.delete(delete("a"))
        runner.delete(delete("c"))
        assert runner.content("b") == b"ab"
        runner.delete(delete("b"))
        assert left_over(runner) == []


def test_what_only_a_fork_still_read_goes_with_it() -> None:
    with EngineRunner() as runner:
        runner.create(create("source", body=b"a"))
        for body in (b"b", b"c"):
            runner.append(append("source", body))
        for name in ("one", "two"):
            runner.create(create(name, content_type=None, fork=fork_of("source")))
        runner.result(runner.submit(trim("source", position(2, 2))))
        source = runner.open("source").state.id
        runner.delete(delete("one"))
        assert len(list(runner.store.scan(keys.run(source, SeqNum(0)), keys.run_end(source)))) == 3
        assert runner.content("two") == b"abc"
        runner.delete(delete("two"))
        assert len(list(runner.store.scan(keys.run(source, SeqNum(0)), keys.run_end(source)))) == 1
        assert runner.content("source") == b"c"
        assert check_store(runner.store).problems == []


def test_a_fork_that_inherits_nothing_still_keeps_the_name_of_its_source_taken() -> None:
    with EngineRunner() as runner:
        runner.create(create("source", body=b"data"))
        runner.create(create("fork", content_type=None, fork=fork_of("source", position(0, 0))))
        runner.delete(delete("source"))
        with pytest.raises(StreamExists):
            runner.create(create("source"))
        runner.delete(delete("fork"))
        assert left_over(runner) == []


@pytest.mark.parametrize("swept", [False, True], ids=["not looked at yet", "swept"])
def test_an_expired_source_cannot_be_created_anew_under_its_forks(swept: bool) -> None:
    """Every official server gets this wrong: the fork then reads what it never inherited."""
    with EngineRunner() as runner:
        runner.create(create("source", body=b"AAAA", ttl_s=1))
        runner.create(create("fork", content_type=None, fork=fork_of("source"), ttl_s=1000))
        runner.clock.advance(5)
        later_ms = START_MS + 5000
        if swept:
            runner.engine.sweeper.sweep()
            runner.settle()
        with pytest.raises(StreamExists):
            runner.create(create("source", body=b"BBBB", ttl_s=1, at_ms=later_ms))
        with pytest.raises(StreamGone):
            runner.open("source")
        with pytest.raises(ForkRefused):
            runner.create(
                create("other", content_type=None, fork=fork_of("source"), at_ms=later_ms)
            )
        assert runner.content("fork") == b"AAAA"
        runner.delete(delete("fork", at_ms=later_ms))
        runner.settle()
        assert runner.create(create("source", body=b"BBBB", ttl_s=1, at_ms=later_ms)).new
        assert runner.content("source") == b"BBBB"


def test_an_expired_fork_is_collected_with_its_deleted_source() -> None:
    with EngineRunner() as runner:
        runner.engine.start()
        runner.create(create("source", body=b"AAAA"))
        runner.create(create("fork", content_type=None, fork=fork_of("source"), ttl_s=1))
        runner.delete(delete("source"))
        for _ in range(4):
            runner.clock.advance(1)
            runner.settle()
        assert left_over(runner) == []


def left_over(runner: EngineRunner) -> list[bytes]:
    """Keys of streams that are still on disk after a sweep."""
    runner.settle()
    runner.engine.sweeper.sweep()
    return [key for prefix in (b"n", b"s", b"r", b"g") for key in runner.keys(prefix)]
