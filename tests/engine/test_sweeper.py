"""What happens by itself: garbage is collected in bounded steps, a full disk is noticed."""

from __future__ import annotations

import pytest

from headwater.core.append import Appended
from headwater.core.errors import DiskFull
from headwater.engine import sweeper
from headwater.engine.sweeper import SWEEP_INTERVAL_S
from tests.support.builders import append, create, delete
from tests.support.engines import EngineRunner
from tests.support.stores import DiskError, FaultyStore


def test_the_data_of_deleted_streams_goes_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "GARBAGE_STREAMS_PER_SWEEP_MAX", 2)
    monkeypatch.setattr(sweeper, "GARBAGE_KEYS_PER_SWEEP_MAX", 5)
    with EngineRunner(packing_enabled=False) as runner:
        for name, runs in (("a", 2), ("b", 2), ("c", 20), ("d", 3)):
            runner.create(create(name))
            for _ in range(runs):
                runner.append(append(name, b"x"))
        runner.together(*[delete(name) for name in "abcd"])
        left = []
        for _ in range(4):
            left.append((len(runner.keys(b"g")), len(runner.keys(b"r"))))
            runner.engine.sweeper.sweep()
        assert left == [(4, 27), (2, 23), (1, 3), (0, 0)]


def test_garbage_survives_a_restart() -> None:
    with EngineRunner() as runner:
        runner.create(create(body=b"x"))
        runner.delete(delete())
        with EngineRunner(runner.store) as reopened:
            reopened.engine.sweeper.sweep()
            assert reopened.keys(b"r") == []


def test_only_so_many_streams_expire_in_one_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "EXPIRIES_PER_SWEEP_MAX", 3)
    with EngineRunner() as runner:
        for number in range(7):
            runner.create(create(f"s{number}", ttl_s=1))
        runner.clock.advance(2)
        left = []
        for _ in range(3):
            runner.engine.sweeper.sweep()
            runner.settle()
            left.append(len(runner.keys(b"n")))
        assert left == [4, 1, 0]


def test_a_low_disk_refuses_writes_and_recovers_by_itself() -> None:
    free = [1000]
    with EngineRunner(free_bytes=lambda: free[0], disk_reserve_bytes=100) as runner:
        runner.engine.start()
        runner.create(create(body=b"x"))
        free[0] = 99
        runner.clock.advance(SWEEP_INTERVAL_S)
        for command in (append(body=b"y"), create("new")):
            assert isinstance(runner.outcome(runner.submit(command)), DiskFull)
        assert runner.content("s") == b"x"
        free[0] = 100
        runner.clock.advance(SWEEP_INTERVAL_S)
        assert isinstance(runner.outcome(runner.submit(append(body=b"y"))), Appended)
        assert runner.content("s") == b"xy"


def test_a_low_disk_still_allows_deleting() -> None:
    with EngineRunner(free_bytes=lambda: 0, disk_reserve_bytes=100) as runner:
        runner.create(create(body=b"x"))
        runner.engine.start()
        assert isinstance(runner.outcome(runner.submit(append(body=b"y"))), DiskFull)
        runner.delete(delete())
        runner.clock.advance(SWEEP_INTERVAL_S)
        assert runner.keys(b"r") == []


def test_a_low_disk_at_the_start_is_noticed_before_the_first_write() -> None:
    with EngineRunner(free_bytes=lambda: 0, disk_reserve_bytes=1) as runner:
        runner.engine.start()
        assert isinstance(runner.outcome(runner.submit(create())), DiskFull)


def test_a_sweep_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.engine.start()
        runner.create(create(body=b"x"))
        runner.delete(delete())
        store.write_error = DiskError("for a moment")
        runner.clock.advance(SWEEP_INTERVAL_S)
        assert runner.keys(b"r") != []
        store.write_error = None
        store.busy_writes = 1
        runner.clock.advance(SWEEP_INTERVAL_S)
        assert runner.keys(b"r") != []
        runner.clock.advance(SWEEP_INTERVAL_S)
        assert runner.keys(b"r") == []
    assert "a sweep failed" in caplog.text


def test_an_engine_that_is_closed_sweeps_no_more() -> None:
    runner = EngineRunner()
    runner.engine.start()
    runner.close()
    assert runner.clock.timers == 0
