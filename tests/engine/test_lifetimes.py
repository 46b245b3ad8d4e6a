"""Streams that end by themselves: sliding and fixed TTLs, deadlines, restarts. PROTOCOL §5.1."""

from __future__ import annotations

import pytest

from headwater.core.errors import StreamExists, StreamNotFound
from headwater.core.limits import TTL_TOUCH_FRACTION
from headwater.storage.memory import MemoryStore
from tests.support.builders import append, create, delete, fork_of
from tests.support.clock import FakeClock
from tests.support.engines import EngineRunner
from tests.support.stores import FaultyStore

TTL_S = 100


def alive(runner: EngineRunner, name: str = "s") -> bool:
    """Look without touching, as HEAD does."""
    try:
        runner.open(name)
    except StreamNotFound:
        return False
    return True


def read(runner: EngineRunner, name: str = "s") -> None:
    """Read as GET does: a sliding TTL starts anew."""
    runner.engine.touch(runner.open(name))
    runner.settle()


def now(runner: EngineRunner) -> int:
    return runner.clock.now_ms()


def test_a_stream_is_gone_when_its_ttl_is_over() -> None:
    with EngineRunner() as runner:
        runner.create(create(ttl_s=TTL_S, body=b"x"))
        runner.clock.advance(TTL_S - 0.001)
        assert alive(runner)
        runner.clock.advance(0.001)
        assert not alive(runner)
        with pytest.raises(StreamNotFound):
            runner.append(append(body=b"y", at_ms=now(runner)))
        with pytest.raises(StreamNotFound):
            runner.delete(delete(at_ms=now(runner)))


def test_looking_does_not_renew_a_ttl_but_reading_does() -> None:
    with EngineRunner() as runner:
        runner.create(create(ttl_s=TTL_S))
        for _ in range(10):
            runner.clock.advance(TTL_S * 0.9)
            assert alive(runner)
            read(runner)
        for _ in range(10):
            runner.clock.advance(TTL_S * 0.099)
            assert alive(runner)
        runner.clock.advance(TTL_S * 0.02)
        assert not alive(runner)


def test_reads_in_quick_succession_renew_it_each_time_without_a_write_each_time() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create(ttl_s=TTL_S))
        writes = store.writes
        for _ in range(200):
            runner.clock.advance(1)
            read(runner)
        assert store.writes - writes <= 200 / (TTL_S / TTL_TOUCH_FRACTION)
        runner.clock.advance(TTL_S - 0.001)
        assert alive(runner), "the last read counts although it is not on disk"
        runner.clock.advance(0.001)
        assert not alive(runner)


@pytest.mark.parametrize("write", ["append", "close"])
def test_writes_renew_a_ttl(write: str) -> None:
    with EngineRunner() as runner:
        runner.create(create(ttl_s=TTL_S))
        runner.clock.advance(TTL_S - 1)
        if write == "append":
            runner.append(append(body=b"x", at_ms=now(runner)))
        else:
            runner.append(append(close=True, at_ms=now(runner)))
        runner.clock.advance(TTL_S - 1)
        assert alive(runner)
        runner.clock.advance(1)
        assert not alive(runner)


def test_a_ttl_from_creation_and_a_deadline_never_move() -> None:
    with EngineRunner() as runner:
        runner.create(create("ttl", ttl_s=TTL_S, ttl_from_access=False))
        runner.create(create("deadline", expires_at_ms=now(runner) + TTL_S * 1000))
        for name in ("ttl", "deadline"):
            runner.append(append(name, b"x", at_ms=now(runner)))
        runner.clock.advance(TTL_S - 1)
        for name in ("ttl", "deadline"):
            read(runner, name)
            runner.append(append(name, b"x", at_ms=now(runner)))
        runner.clock.advance(1)
        assert not alive(runner, "ttl")
        assert not alive(runner, "deadline")


@pytest.mark.parametrize("lifetime", ["TTL 0", "past deadline"])
def test_a_stream_without_a_life_is_gone_at_once(lifetime: str) -> None:
    with EngineRunner() as runner:
        command = (
            create(ttl_s=0, body=b"x")
            if lifetime == "TTL 0"
            else create(expires_at_ms=now(runner) - 5, body=b"x")
        )
        assert runner.create(command).new
        assert not alive(runner)
        assert runner.create(command).new, "it never stands in the way"
        runner.engine.sweeper.sweep()
        runner.settle()
        runner.engine.sweeper.sweep()
        assert [runner.keys(prefix) for prefix in (b"n", b"s", b"r", b"g")] == [[], [], [], []]


def test_an_expired_name_can_be_used_again_and_shows_nothing_of_the_old_stream() -> None:
    with EngineRunner() as runner:
        first = runner.create(create(ttl_s=TTL_S, body=b"old"))
        runner.clock.advance(TTL_S)
        again = runner.create(create(ttl_s=TTL_S, at_ms=now(runner)))
        assert again.new and again.id != first.id
        assert runner.content("s") == b""


def test_a_stream_kept_alive_by_unsaved_reads_takes_writes_creates_and_forks() -> None:
    """Core knows the read only from the touch that goes before."""
    with EngineRunner() as runner:
        for name in ("a", "b", "c", "d"):
            runner.create(create(name, ttl_s=TTL_S, body=b"x"))
        runner.clock.advance(TTL_S / TTL_TOUCH_FRACTION - 1)
        for name in ("a", "b", "c", "d"):
            read(runner, name)
        runner.clock.advance(TTL_S - 1)
        runner.append(append("a", b"y", at_ms=now(runner)))
        assert runner.content("a") == b"xy"
        assert not runner.create(create("b", ttl_s=TTL_S, at_ms=now(runner))).new
        fork = create("fork", content_type=None, fork=fork_of("c"), at_ms=now(runner))
        assert runner.create(fork).new
        runner.delete(delete("d", at_ms=now(runner)))


def test_sweeping_removes_expired_streams_and_their_data() -> None:
    with EngineRunner() as runner:
        runner.engine.start()
        runner.create(create("short", ttl_s=3, body=b"x"))
        runner.create(create("long", ttl_s=1000, body=b"x"))
        for _ in range(6):
            runner.clock.advance(1)
            runner.settle()
        assert [len(runner.keys(prefix)) for prefix in (b"n", b"s", b"r", b"g", b"e")] == [
            1,
            1,
            1,
            0,
            1,
        ]


def test_sweeping_moves_on_the_deadline_of_a_stream_that_was_read() -> None:
    with EngineRunner() as runner:
        runner.engine.start()
        runner.create(create(ttl_s=10, body=b"x"))
        for _ in range(30):
            runner.clock.advance(1)
            read(runner)
        assert alive(runner)
        for _ in range(12):
            runner.clock.advance(1)
            runner.settle()
        assert runner.keys(b"s") == []
        assert runner.keys(b"e") == []


def test_after_a_restart_nothing_expires_early_and_nothing_lives_much_longer() -> None:
    store, clock = MemoryStore(), FakeClock()
    with EngineRunner(store, clock) as runner:
        runner.create(create(ttl_s=TTL_S, body=b"x"))
        clock.advance(TTL_S / TTL_TOUCH_FRACTION - 0.001)
        read(runner)
    with EngineRunner(store, clock) as runner:
        clock.advance(TTL_S - 0.001)
        runner.engine.sweeper.sweep()
        runner.settle()
        assert alive(runner)
        clock.advance(TTL_S / TTL_TOUCH_FRACTION)
        assert not alive(runner)


def test_a_stream_that_memory_forgot_does_not_expire_early_either() -> None:
    with EngineRunner(hot_streams_max=1) as runner:
        runner.create(create(ttl_s=TTL_S, body=b"x"))
        runner.clock.advance(TTL_S / TTL_TOUCH_FRACTION - 0.001)
        read(runner)
        runner.create(create("other"))
        runner.clock.advance(TTL_S - 0.001)
        runner.engine.sweeper.sweep()
        runner.settle()
        assert alive(runner)


def test_a_renewed_ttl_is_still_renewed_after_a_restart() -> None:
    store, clock = MemoryStore(), FakeClock()
    with EngineRunner(store, clock) as runner:
        runner.create(create(ttl_s=TTL_S, body=b"x"))
        clock.advance(TTL_S * 0.9)
        read(runner)
    with EngineRunner(store, clock) as runner:
        clock.advance(TTL_S * 0.9)
        assert alive(runner)


def test_an_append_renews_it_over_a_restart_too() -> None:
    store, clock = MemoryStore(), FakeClock()
    with EngineRunner(store, clock) as runner:
        runner.create(create(ttl_s=TTL_S))
        clock.advance(TTL_S * 0.9)
        runner.append(append(body=b"x", at_ms=now(runner)))
    with EngineRunner(store, clock) as runner:
        clock.advance(TTL_S * 0.9)
        assert alive(runner)


def test_a_ttl_beyond_all_measure_is_kept_over_a_restart() -> None:
    store, clock = MemoryStore(), FakeClock()
    with EngineRunner(store, clock) as runner:
        runner.create(create(ttl_s=10**18 - 1))
        read(runner)
    with EngineRunner(store, clock) as runner:
        read(runner)
        runner.engine.sweeper.sweep()
        runner.append(append(body=b"x", at_ms=now(runner)))
        with pytest.raises(StreamExists):
            runner.create(create())


def test_an_expiry_that_comes_late_does_not_touch_a_stream_that_was_renewed() -> None:
    with EngineRunner() as runner:
        runner.create(create(ttl_s=2, body=b"x"))
        runner.clock.advance(1)
        runner.append(append(body=b"y", at_ms=now(runner)))
        runner.clock.advance(1.5)
        runner.engine.sweeper.sweep()
        runner.settle()
        assert alive(runner)
