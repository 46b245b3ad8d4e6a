"""What buckets with a quota hold: counted in steps, whatever happens between them."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.buckets import BucketConfig
from headwater.core.commands import Command
from headwater.core.errors import TooManyRequests
from headwater.engine import buckets
from headwater.storage.memory import MemoryStore
from tests.support.builders import BUCKET, append, create, delete, fork_of, position, trim
from tests.support.engines import EngineRunner

NAMES = ("a", "b", "c", "d", "é")
LIMITED = BucketConfig(streams_max=100, bytes_max=10_000)

commands = st.one_of(
    st.builds(create, st.sampled_from(NAMES), body=st.binary(max_size=5)),
    st.builds(append, st.sampled_from(NAMES), st.binary(min_size=1, max_size=5)),
    st.builds(delete, st.sampled_from(NAMES)),
    st.builds(
        lambda name, source: create(name, content_type=None, fork=fork_of(source)),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
    ),
    st.sampled_from(NAMES).map(lambda name: trim(name, position(1, 1))),
)


def held(runner: EngineRunner) -> tuple[int, int]:
    """What the bucket holds, counted stream by stream."""
    shard = runner.engine.shard
    states = [
        stream.state
        for name in shard.names(BUCKET)
        if (stream := shard.find(BUCKET, name)) is not None
    ]
    return len(states), sum(state.tail_byte - state.first_byte for state in states)


def counted(runner: EngineRunner) -> tuple[int, int]:
    assert not runner.engine.shard.buckets.counting
    usage = runner.engine.shard.buckets.usage[BUCKET]
    return usage.streams, usage.bytes


def submit(runner: EngineRunner, command: Command) -> None:
    runner.submit(command).deliver(lambda _: None)


@settings(max_examples=200, deadline=None)
@given(
    before=st.lists(commands, max_size=8),
    meanwhile=st.lists(st.tuples(commands, st.integers(0, 3)), max_size=12),
)
def test_the_count_is_right_whatever_happens_while_it_goes_on(
    before: list[Command], meanwhile: list[tuple[Command, int]]
) -> None:
    with patch.object(buckets, "COUNTED_PER_STEP", 1), EngineRunner() as runner:
        for command in before:
            submit(runner, command)
        runner.settle()
        runner.engine.put_bucket(BUCKET, LIMITED).deliver(lambda _: None)
        for command, turns in meanwhile:
            submit(runner, command)
            runner.turn(turns)
        runner.settle()
        runner.turn(2 * len(NAMES))
        assert counted(runner) == held(runner)


def test_a_large_bucket_is_counted_in_steps_and_limited_then() -> None:
    with patch.object(buckets, "COUNTED_PER_STEP", 2), EngineRunner() as runner:
        for number in range(7):
            runner.create(create(str(number)))
        counting = runner.engine.shard.buckets.counting
        seen: list[set[str]] = []
        answer = runner.engine.put_bucket(BUCKET, BucketConfig(streams_max=7))
        answer.deliver(lambda _: seen.append(set(counting)))
        runner.settle()
        assert seen == [{BUCKET}]
        runner.turn(5)
        assert counted(runner) == (7, 0)
        assert isinstance(runner.outcome(runner.submit(create("more"))), TooManyRequests)


def test_it_goes_on_while_commits_do() -> None:
    with patch.object(buckets, "COUNTED_PER_STEP", 1), EngineRunner() as runner:
        for number in range(20):
            runner.create(create(str(number)))
        runner.result(runner.engine.put_bucket(BUCKET, LIMITED))
        for _ in range(30):
            runner.append(append("0", b"x"))
        assert counted(runner) == (20, 30)


def test_buckets_are_counted_anew_at_the_start() -> None:
    store = MemoryStore()
    with EngineRunner(store) as runner:
        for number in range(7):
            runner.create(create(str(number), body=b"xy"))
        runner.result(runner.engine.put_bucket(BUCKET, LIMITED))
    with patch.object(buckets, "COUNTED_PER_STEP", 2), EngineRunner(store) as runner:
        runner.engine.start()
        assert runner.engine.shard.buckets.counting == {BUCKET}
        runner.turn(5)
        assert counted(runner) == (7, 14)


def test_without_a_quota_nothing_is_counted_any_more() -> None:
    with patch.object(buckets, "COUNTED_PER_STEP", 1), EngineRunner() as runner:
        for number in range(5):
            runner.create(create(str(number)))
        runner.result(runner.engine.put_bucket(BUCKET, LIMITED))
        runner.result(runner.engine.put_bucket(BUCKET, BucketConfig()))
        runner.turn(5)
        assert runner.engine.shard.buckets.usage == {}
        assert not runner.engine.shard.buckets.counting


def test_names_that_somebody_makes_up_take_no_memory() -> None:
    with patch.object(buckets, "KNOWN_MAX", 5), EngineRunner() as runner:
        runner.create(create("a"))
        found = runner.engine.shard.buckets
        for number in range(20):
            assert found.find(f"none-{number}") is None
        assert len(found._known) <= 5  # noqa: SLF001
        runner.create(create("b"))  # what is known is dropped after a commit
        assert found.find(BUCKET) is not None
        assert BUCKET in found._known  # noqa: SLF001
