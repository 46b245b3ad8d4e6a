"""Packing in the background: what is read stays the same, and old checkpoints never win."""

from __future__ import annotations

import pytest

from headwater.core.errors import StreamNotFound
from headwater.engine import packer
from headwater.engine.committer import BUSY_RETRY_S
from headwater.storage.packing import CHUNK_BYTES, RUNS_MIN
from tests.support.builders import JSON, append, claim, create, delete, fork_of, position, trim
from tests.support.engines import EngineRunner, body, small_sizes
from tests.support.stores import FaultyStore


def test_small_appends_become_few_chunks_that_read_the_same() -> None:
    with EngineRunner() as packed, EngineRunner(packing_enabled=False) as plain:
        for runner in (packed, plain):
            runner.create(create(content_type=JSON))
            for number in range(20 * RUNS_MIN):
                runner.append(append(body=b'{"n":%d}' % number))
            runner.settle()
        assert len(plain.keys(b"r")) == 20 * RUNS_MIN
        assert len(packed.keys(b"r")) < 2 * RUNS_MIN
        start = position(0, 0)
        while True:
            one, other = (runner.read("s", start, 1000) for runner in (packed, plain))
            assert (body(one), one.end) == (body(other), other.end)
            if one.at_tail:
                break
            start = one.end


def test_a_stream_of_large_appends_is_packed_into_chunks_of_their_size() -> None:
    with EngineRunner() as runner:
        runner.create(create())
        for number in range(40):
            runner.append(append(body=b"%d" % (number % 10) * (CHUNK_BYTES // 8)))
        runner.settle()
        assert len(runner.keys(b"r")) <= 8
        assert len(runner.content("s")) == 40 * CHUNK_BYTES // 8


def test_packing_keeps_producers_sequence_and_state() -> None:
    with small_sizes(), EngineRunner() as runner:
        runner.create(create())
        for number in range(30):
            runner.append(
                append(
                    body=b"x",
                    producer=claim(f"p{number % 3}", seq=number // 3),
                    stream_seq=f"{number:02}",
                )
            )
        runner.append(append(body=b"x", close=True, producer=claim("p0", seq=10)))
        runner.settle()
        assert len(runner.keys(b"r")) < 30
        with EngineRunner(runner.store) as reopened:
            one, other = runner.open("s").state, reopened.open("s").state
            assert (one.producers, one.stream_seq, one.closed, one.closed_by, one.tail) == (
                other.producers,
                other.stream_seq,
                other.closed,
                other.closed_by,
                other.tail,
            )


def test_what_is_packed_while_the_stream_goes_on_is_complete_at_every_step() -> None:
    with small_sizes(), EngineRunner() as runner:
        runner.create(create())
        runner.engine.packer.enabled = False
        written = b""
        for number in range(60):
            data = b"%d," % number
            runner.append(append(body=data, producer=claim(seq=number)))
            written += data
            if number % 4 == 3:
                runner.engine.packer.enabled = True
                runner.engine.packer.consider(runner.open("s"))
                runner.engine.packer.enabled = False
            if number % 7 == 0:
                runner.engine.packer.step()
            with EngineRunner(runner.store) as crashed:
                assert crashed.content("s") == written
                assert crashed.append(append(body=data, producer=claim(seq=number))).repeat


@pytest.mark.parametrize("runs_per_job", [2, 3, 5])
def test_very_many_runs_are_packed_in_several_jobs_and_complete_after_each(
    runs_per_job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk must not reach over the checkpoint on disk: what follows would not be found."""
    monkeypatch.setattr(packer, "JOB_RUNS_MAX", runs_per_job)
    with small_sizes(chunk_bytes=2000), EngineRunner() as runner:
        runner.create(create())
        for number in range(4):
            runner.append(append(body=b"%d," % number, producer=claim(seq=number)))
        runner.settle()
        packing = runner.engine.packer
        packing.enabled = False
        for number in range(4, 20):
            runner.append(append(body=b"%d," % number, producer=claim(seq=number)))
        packing.enabled = True
        packing.consider(runner.open("s"))
        packing.enabled = False
        expected = b"".join(b"%d," % number for number in range(20))
        while packing.has_work:
            packing.step()
            with EngineRunner(runner.store, packing_enabled=False) as crashed:
                assert crashed.content("s") == expected
                assert crashed.append(append(body=b"x", producer=claim(seq=19))).repeat
        assert len(runner.keys(b"r")) < 14


def test_a_checkpoint_that_packing_took_never_replaces_a_later_one() -> None:
    with small_sizes(), EngineRunner() as runner:
        runner.create(create())
        packing = runner.engine.packer
        packing.enabled = False
        for _ in range(4):
            runner.append(append(body=b"x"))
        packing.enabled = True
        packing.consider(runner.open("s"))
        packing.enabled = False
        runner.append(append(close=True))
        packing.step()
        with EngineRunner(runner.store) as reopened:
            assert reopened.read("s").closed


def test_a_job_for_a_stream_that_was_deleted_writes_nothing() -> None:
    with small_sizes(), EngineRunner() as runner:
        runner.create(create())
        packing = runner.engine.packer
        packing.enabled = False
        for _ in range(4):
            runner.append(append(body=b"x"))
        packing.enabled = True
        packing.consider(runner.open("s"))
        packing.enabled = False
        runner.delete(delete())
        runner.engine.sweeper.sweep()
        packing.step()
        assert not packing.has_work
        assert [runner.keys(prefix) for prefix in (b"n", b"s", b"r", b"g")] == [[], [], [], []]
        with pytest.raises(StreamNotFound):
            runner.open("s")


def test_a_source_packed_after_its_fork_reads_the_same_through_the_fork() -> None:
    with small_sizes(), EngineRunner() as runner:
        runner.create(create("source"))
        for number in range(3):
            runner.append(append("source", b"%d" % number))
        runner.create(create("fork", content_type=None, fork=fork_of("source"), body=b"!"))
        for number in range(3, 20):
            runner.append(append("source", b"%d" % number))
        runner.settle()
        assert len(runner.keys(b"r")) < 15
        assert runner.content("fork") == b"012!"
        with EngineRunner(runner.store) as reopened:
            assert reopened.content("fork") == b"012!"


def test_packing_a_busy_store_is_put_off() -> None:
    store = FaultyStore()
    with small_sizes(), EngineRunner(store) as runner:
        runner.create(create())
        store.busy_unlogged_writes = 3
        for number in range(8):
            runner.append(append(body=b"%d" % number))
        runner.settle()
        assert not runner.engine.packer.has_work
        assert runner.engine.packer.debt_runs == 0
        assert runner.engine.packer.chunks_total > 0
        assert runner.content("s") == b"01234567"


def test_runs_left_by_a_crash_are_packed_when_the_stream_is_written_again() -> None:
    with small_sizes(), EngineRunner(packing_enabled=False) as runner:
        runner.create(create())
        for number in range(10):
            runner.append(append(body=b"%d" % number))
        with EngineRunner(runner.store) as reopened:
            reopened.append(append(body=b"!"))
            reopened.settle()
            assert len(reopened.keys(b"r")) <= 3
            assert reopened.content("s") == b"0123456789!"


def test_packing_while_the_store_is_too_busy_to_trim_loses_nothing_that_is_retained() -> None:
    store = FaultyStore()
    with small_sizes(chunk_bytes=2000), EngineRunner(store) as runner:
        runner.create(create())
        packing = runner.engine.packer
        packing.enabled = False
        for number in range(6):
            runner.append(append(body=b"%d" % number))
        packing.enabled = True
        packing.consider(runner.open("s"))
        packing.enabled = False
        store.busy_writes = 1
        runner.submit(trim("s", position(3, 3)))
        runner.turn(3)
        packing.step()
        runner.clock.advance(BUSY_RETRY_S)
        runner.settle()
        assert runner.content("s") == b"345"
        with EngineRunner(store.inner) as reopened:
            assert reopened.content("s") == b"345"
