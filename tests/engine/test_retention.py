"""What a stream forgets by itself: trimmed by its writers, too old, or empty for too long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.core.commands import Create, Reconfigure
from headwater.core.errors import StreamNotFound
from headwater.core.retention import Retention
from headwater.core.stream_config import StreamConfig
from headwater.core.types import TimestampMs
from headwater.engine.shard import TRIM_DELAY_MS
from headwater.engine.sweeper import EMPTY_LOOK_MS
from tests.support.builders import (
    BUCKET,
    append,
    append_records,
    create,
    fence,
    fork_of,
    provision,
    s2_append,
    trim_record,
)
from tests.support.clock import START_MS
from tests.support.engines import EngineRunner, small_sizes

DELAY_S = TRIM_DELAY_MS / 1000


@pytest.fixture
def runner() -> Iterator[EngineRunner]:
    with EngineRunner() as found:
        found.engine.start()
        yield found


def now(runner: EngineRunner) -> int:
    return runner.clock.now_ms()


def first_seq(runner: EngineRunner, name: str = "s") -> int:
    return runner.open(name).state.first_seq


def wait(runner: EngineRunner, seconds: float) -> None:
    """Time passes, and what happens by itself happens."""
    while seconds > 0:
        step = min(seconds, 1.0)
        runner.clock.advance(step)
        runner.settle()
        seconds -= step


def reopen(runner: EngineRunner) -> EngineRunner:
    """Another engine on the same store, at the same time."""
    runner.engine.sweeper.stop()
    reopened = EngineRunner(runner.store, runner.clock)
    reopened.engine.start()
    return reopened


def jump(runner: EngineRunner, seconds: float) -> None:
    runner.clock.advance(seconds)
    wait(runner, 2)


# -- trims


def test_a_trim_takes_effect_a_while_later(runner: EngineRunner) -> None:
    runner.create(create())
    runner.together(s2_append("s", b"a", b"b", b"c"), trim_record("s", 2))
    wait(runner, DELAY_S - 1)
    assert runner.content("s") == b"abc"
    wait(runner, 2)
    assert runner.content("s") == b"c"
    assert (first_seq(runner), runner.open("s").state.trims) == (2, [])


def test_everything_can_be_trimmed_the_trim_included(runner: EngineRunner) -> None:
    runner.create(create())
    runner.together(s2_append("s", b"a"), fence("s", "end"), trim_record("s", 2**64 - 1))
    wait(runner, DELAY_S + 1)
    state = runner.open("s").state
    assert (state.first, state.tail) == ((3, 1), (3, 1))
    runner.result(runner.engine.append(s2_append("s", b"b", fencing_token="end")))
    assert runner.content("s") == b"b"


def test_trims_one_after_the_other_each_wait_their_time(runner: EngineRunner) -> None:
    runner.create(create())
    runner.result(runner.engine.append(s2_append("s", *[b"x"] * 20)))
    found = []
    for second in range(14):
        if second < 8:
            runner.result(runner.engine.append(trim_record("s", second + 1, at_ms=now(runner))))
        found.append(first_seq(runner))
        wait(runner, 1)
    assert found == sorted(found)
    for second, first in enumerate(found):
        assert first <= max(0, second - DELAY_S + 1)
        assert first >= min(8, second - DELAY_S - 2)
    assert found[-1] == 8


def test_a_trim_survives_a_restart(runner: EngineRunner) -> None:
    runner.create(create())
    runner.together(s2_append("s", b"a", b"b"), trim_record("s", 1))
    with reopen(runner) as reopened:
        assert reopened.open("s").state.trims == [(1, START_MS)]
        wait(reopened, DELAY_S + 1)
        assert reopened.content("s") == b"b"


def test_a_trim_never_cuts_a_message(runner: EngineRunner) -> None:
    with small_sizes(record_bytes=16):
        runner.create(create())
        runner.append(append(body=b"a" * 20))
        runner.append(append(body=b"b" * 40))
        runner.result(runner.engine.append(trim_record("s", 3)))
        wait(runner, DELAY_S + 1)
        assert runner.content("s") == b"b" * 40
        assert first_seq(runner) == 2
        wait(runner, 5)
        runner.result(runner.engine.append(trim_record("s", 5)))
        jump(runner, DELAY_S)
        assert (runner.content("s"), first_seq(runner)) == (b"", 5)


# -- age


def test_age_counts_from_the_write_whatever_time_a_writer_gave(runner: EngineRunner) -> None:
    runner.create(Create(BUCKET, "s", TimestampMs(now(runner)), retention=Retention(age_s=100)))
    runner.result(runner.engine.append(append_records("s", [b"a", b"b"], at_ms=now(runner))))
    jump(runner, 50)
    for time_ms in (1, 2, None):
        command = s2_append("s", b"c", at_ms=now(runner), times=[time_ms])
        runner.result(runner.engine.append(command))
    assert runner.content("s") == b"abccc"
    jump(runner, 49)
    assert runner.content("s") == b"ccc", "the first two are 101 seconds old"
    jump(runner, 40)
    assert runner.content("s") == b"ccc"
    jump(runner, 10)
    assert runner.content("s") == b""


def test_times_that_a_stream_ignores_leave_no_marks(runner: EngineRunner) -> None:
    runner.result(runner.engine.put_bucket(BUCKET, None))
    config = StreamConfig(timestamping="arrival")
    runner.result(runner.engine.provision(provision(config=config)))
    runner.result(runner.engine.append(s2_append("s", b"a", times=[7])))
    state = runner.open("s").state
    assert (state.last_time_ms, state.client_times_from, state.written) == (START_MS, None, [])


def test_a_time_in_the_future_keeps_nothing_longer(runner: EngineRunner) -> None:
    runner.result(runner.engine.put_bucket(BUCKET, None))
    config = StreamConfig(age_s=100, uncapped=True)
    runner.result(runner.engine.provision(provision(config=config)))
    future = 2**63
    runner.result(runner.engine.append(s2_append("s", b"a", at_ms=now(runner), times=[future])))
    jump(runner, 50)
    runner.append(append(body=b"b", at_ms=now(runner)))
    assert runner.open("s").state.last_time_ms == future
    jump(runner, 52)
    assert runner.content("s") == b"b"
    jump(runner, 50)
    assert runner.content("s") == b""


def test_when_records_were_written_is_known_after_a_restart_and_packing(
    runner: EngineRunner,
) -> None:
    with small_sizes(run_bytes=64, runs_min=2):
        runner.create(
            Create(BUCKET, "s", TimestampMs(now(runner)), ttl_s=1000, retention=Retention(100))
        )
        for _ in range(6):
            jump(runner, 10)
            command = s2_append("s", *[b"x" * 15] * 9, at_ms=now(runner), times=[7] * 9)
            runner.result(runner.engine.append(command))
        live = runner.open("s").state
        assert live.client_times_from == 0
        with reopen(runner) as reopened:
            state = reopened.open("s").state
            assert state.written == live.written
            assert state.touched_at_ms == live.touched_at_ms == now(runner)
            jump(reopened, 43)
            assert first_seq(reopened) == 9
            jump(reopened, 200)
            assert first_seq(reopened) == 54


def test_a_fork_forgets_inherited_records_by_the_time_they_were_written(
    runner: EngineRunner,
) -> None:
    runner.create(Create(BUCKET, "s", TimestampMs(now(runner)), retention=Retention(100)))
    runner.result(runner.engine.append(s2_append("s", b"a", at_ms=now(runner), times=[1])))
    jump(runner, 50)
    fork = create("f", content_type=None, fork=fork_of("s"), body=b"b", at_ms=now(runner))
    runner.create(fork)
    jump(runner, 52)
    assert runner.content("f") == b"b"
    jump(runner, 50)
    assert runner.content("f") == b""


# -- delete on empty


def make_short_lived(runner: EngineRunner, min_age_s: int, *, age_s: int | None = None) -> None:
    runner.result(runner.engine.put_bucket(BUCKET, None))
    wanted = StreamConfig(delete_on_empty_s=min_age_s, age_s=age_s)
    runner.result(runner.engine.provision(provision(at_ms=now(runner), config=wanted)))


def gone(runner: EngineRunner) -> bool:
    try:
        runner.open("s")
    except StreamNotFound:
        return True
    return False


def test_a_stream_that_stays_empty_is_deleted(runner: EngineRunner) -> None:
    make_short_lived(runner, 60)
    jump(runner, 56)
    assert not gone(runner)
    jump(runner, 2)
    assert gone(runner)


def test_a_stream_is_deleted_when_its_records_are_trimmed_and_nothing_was_written(
    runner: EngineRunner,
) -> None:
    make_short_lived(runner, 3)
    runner.together(s2_append("s", b"a"), trim_record("s", 9))
    wait(runner, DELAY_S - 1)
    assert not gone(runner)
    wait(runner, 3)
    assert gone(runner)


def test_records_keep_a_stream_and_age_ends_them(runner: EngineRunner) -> None:
    make_short_lived(runner, 10, age_s=300)
    runner.result(runner.engine.append(s2_append("s", b"a", at_ms=now(runner))))
    jump(runner, 200)
    assert not gone(runner)
    jump(runner, 110 + EMPTY_LOOK_MS / 1000)
    assert gone(runner)


def test_a_write_keeps_an_empty_stream_even_at_the_last_moment(runner: EngineRunner) -> None:
    make_short_lived(runner, 60)
    runner.clock.advance(59.9)
    appending = runner.engine.append(s2_append("s", b"a", at_ms=now(runner)))
    runner.clock.advance(1)  # the sweeper, too, has something to submit
    runner.result(appending)
    wait(runner, 3)
    assert runner.content("s") == b"a"


def test_delete_on_empty_can_be_asked_for_later(runner: EngineRunner) -> None:
    runner.create(create())
    jump(runner, 100)
    command = Reconfigure(BUCKET, "s", TimestampMs(now(runner)), StreamConfig(delete_on_empty_s=50))
    runner.result(runner.engine.reconfigure(command))
    wait(runner, 2)
    assert gone(runner)
