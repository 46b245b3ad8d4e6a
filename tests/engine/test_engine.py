"""The operations that dialects call: followers, formats, opening and closing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.core.errors import StreamNotFound
from headwater.core.limits import MIB
from headwater.engine.streams import Stream
from headwater.storage import keys
from headwater.storage.memory import MemoryStore
from headwater.storage.rocks import RocksStore
from tests.support.builders import append, claim, create, delete, fork_of, position
from tests.support.clock import FakeClock
from tests.support.engines import EngineRunner
from tests.support.stores import FaultyStore


class Follower:
    """Notes the durable tail at each wake-up."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bool, bool]] = []
        self.shared: list[dict[Any, Any]] = []

    def __call__(self, stream: Stream, shared: dict[Any, Any]) -> None:
        self.seen.append((stream.tail.seq, stream.tail_closed, stream.gone))
        self.shared.append(shared)


def test_followers_are_woken_once_for_each_commit_and_share_what_they_render() -> None:
    with EngineRunner() as runner:
        runner.create(create())
        stream = runner.open("s")
        followers = [Follower(), Follower()]
        for follower in followers:
            runner.engine.follow(stream, follower)
            runner.engine.follow(stream, follower)
        assert runner.engine.followers == 2
        runner.together(append(body=b"a"), append(body=b"b"))
        runner.append(append(close=True))
        for follower in followers:
            assert follower.seen == [(2, False, False), (2, True, False)]
        assert followers[0].shared[0] is followers[1].shared[0]
        assert followers[0].shared[0] is not followers[0].shared[1]


def test_followers_wake_only_when_the_data_is_durable() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create())
        follower = Follower()
        runner.engine.follow(runner.open("s"), follower)
        store.hold_syncs()
        runner.submit(append(body=b"a"))
        runner.turn(3)
        runner.submit(append(body=b"b"))
        runner.turn(3)
        assert follower.seen == []
        store.release_syncs()
        runner.settle()
        assert [tail for tail, _, _ in follower.seen] == [1, 2]


def test_a_follower_that_fails_does_not_disturb_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(stream: Stream, shared: dict[Any, Any]) -> None:
        raise ConnectionResetError

    with EngineRunner() as runner:
        runner.create(create())
        stream, follower = runner.open("s"), Follower()
        runner.engine.follow(stream, broken)
        runner.engine.follow(stream, follower)
        runner.append(append(body=b"a"))
        assert len(follower.seen) == 1
    assert "a follower failed" in caplog.text


def test_who_stopped_following_is_not_woken() -> None:
    with EngineRunner() as runner:
        runner.create(create())
        stream, follower = runner.open("s"), Follower()
        runner.engine.follow(stream, follower)
        runner.engine.unfollow(stream, follower)
        runner.engine.unfollow(stream, follower)
        runner.append(append(body=b"a"))
        assert follower.seen == []
        assert runner.engine.followers == 0


def test_followers_learn_that_their_stream_is_gone() -> None:
    with EngineRunner() as runner:
        runner.create(create())
        follower = Follower()
        runner.engine.follow(runner.open("s"), follower)
        runner.delete(delete())
        assert follower.seen[-1] == (0, False, True)


def test_a_followed_stream_is_never_forgotten() -> None:
    with EngineRunner(hot_streams_max=1) as runner:
        runner.create(create())
        stream, follower = runner.open("s"), Follower()
        runner.engine.follow(stream, follower)
        for number in range(5):
            runner.create(create(f"other{number}"))
        runner.append(append(body=b"a"))
        assert [tail for tail, _, _ in follower.seen] == [1]


def test_appending_to_a_source_does_not_wake_the_followers_of_its_fork() -> None:
    with EngineRunner() as runner:
        runner.create(create("source", body=b"x"))
        runner.create(create("fork", content_type=None, fork=fork_of("source")))
        follower = Follower()
        runner.engine.follow(runner.open("fork"), follower)
        runner.append(append("source", b"y"))
        runner.append(append("source", close=True))
        assert follower.seen == []


def test_observers_see_every_stream_that_changed() -> None:
    changed: list[set[str]] = []
    with EngineRunner() as runner:
        runner.engine.observers.append(
            lambda streams: changed.append({stream.state.name for stream in streams})
        )
        runner.together(create("a", body=b"x"), create("b"))
        runner.append(append("a", b"y"))
        runner.delete(delete("b"))
        assert changed == [{"a", "b"}, {"a"}, {"b"}]


def test_a_new_store_gets_a_tag_that_stays() -> None:
    store, clock = MemoryStore(), FakeClock()
    with EngineRunner(store, clock) as runner:
        tag = runner.engine.store_tag
    with EngineRunner(store, clock) as runner:
        assert runner.engine.store_tag == tag
    with EngineRunner(MemoryStore(), clock) as runner:
        assert runner.engine.store_tag != tag


def test_a_store_of_another_format_is_refused() -> None:
    store = MemoryStore()
    batch = store.batch()
    batch.put(keys.FORMAT, b"99")
    store.write(batch)
    with pytest.raises(RuntimeError, match="format '99'"):
        EngineRunner(store)


def test_everything_is_there_after_a_clean_close_of_rocksdb(tmp_path: Path) -> None:
    runner = EngineRunner(RocksStore(tmp_path, cache_bytes=MIB))
    runner.create(create("source", body=b"one", producer=claim()))
    runner.create(create("fork", content_type=None, fork=fork_of("source"), body=b"two"))
    runner.create(create("gone", body=b"x"))
    runner.delete(delete("gone"))
    runner.append(append("source", close=True))
    runner.close()
    runner = EngineRunner(RocksStore(tmp_path, cache_bytes=MIB))
    assert runner.content("source") == b"one"
    assert runner.content("fork") == b"onetwo"
    assert runner.read("source").closed
    assert runner.append(append("fork", b"!")).tail == position(3, 7)
    with pytest.raises(StreamNotFound):
        runner.open("gone")
    runner.close()


def test_appends_and_their_bytes_are_counted() -> None:
    with EngineRunner() as runner:
        runner.create(create())
        runner.append(append(body=b"abc"))
        runner.append(append(body=b"de"))
        assert (runner.engine.shard.appends_total, runner.engine.shard.append_bytes_total) == (2, 5)
