"""RocksDB's log as a power cut leaves it: cut off at any byte, with real files.

The folder is copied while the engine runs, which is what a machine that stops leaves behind. Then
the newest log is cut: every commit before the cut must be there, none may be there in part.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.core.limits import KIB, MIB
from headwater.storage.rocks import RocksStore
from tests.support.builders import append, claim, create
from tests.support.engines import EngineRunner, small_sizes
from tests.support.histories import NAMES, Operation, draw_operation, replay
from tests.support.model import RECORD_BYTES, Model, view_of

pytestmark = [pytest.mark.crash, pytest.mark.timeout(60)]


class Commit(NamedTuple):
    """How much of the log and of the history one commit brought us to."""

    log_bytes: int
    operations: int


def newest_log(folder: Path) -> Path:
    return max(folder.glob("*.log"), key=lambda path: int(path.stem))


def open_copy(folder: Path, copy: Path, log: bytes) -> RocksStore:
    """A copy of a running database, with another newest log."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("LOCK"))
    newest_log(copy).write_bytes(log)
    return RocksStore(copy, cache_bytes=MIB)


def check(
    store: RocksStore, history: list[Operation], commits: list[Commit], log_bytes: int
) -> None:
    """What is in the store is what some commit left, and that commit is not too early."""
    with EngineRunner(store, packing_enabled=False) as reopened:
        found = view_of(reopened, NAMES)
    store.close()
    covered = max((c.operations for c in commits if c.log_bytes <= log_bytes), default=0)
    possible = {0, *(c.operations for c in commits)}
    assert any(replay(history[:count]).view() == found for count in possible if count >= covered), (
        covered,
        found,
    )


def write_history(
    runner: EngineRunner, folder: Path, data: st.DataObject, *, flush: bool
) -> tuple[list[Operation], list[Commit]]:
    """Commit random groups of commands. With `flush`, a memtable reaches disk on the way."""
    model = Model()
    history: list[Operation] = []
    commits = [Commit(0, 0)]
    for number in range(12):
        group = []
        for _ in range(data.draw(st.integers(1, 4))):
            operation = draw_operation(data, model)
            operation.act(model)
            group.append(operation)
        runner.together(*[operation.command for operation in group])
        runner.settle()
        model.settle()
        history += group
        if flush and number == 6:
            runner.store.compact()
            commits = [Commit(0, len(history))]  # in tables: no cut of the new log reaches it
        commits.append(Commit(newest_log(folder).stat().st_size, len(history)))
    return history, commits


@pytest.mark.parametrize("flush", [False, True], ids=["log only", "log and tables"])
def test_a_log_cut_anywhere_gives_a_prefix_of_the_commits(flush: bool) -> None:
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def cut(data: st.DataObject) -> None:
        with (
            tempfile.TemporaryDirectory() as scratch,
            small_sizes(record_bytes=RECORD_BYTES, runs_min=2),
        ):
            folder, copy = Path(scratch) / "db", Path(scratch) / "copy"
            store = RocksStore(folder, cache_bytes=MIB)
            with EngineRunner(store) as runner:
                history, commits = write_history(runner, folder, data, flush=flush)
                log = newest_log(folder).read_bytes()
                for length in data.draw(st.lists(st.integers(0, len(log)), max_size=10)):
                    check(open_copy(folder, copy, log[:length]), history, commits, length)
                check(open_copy(folder, copy, log), history, commits, len(log))
            store.close()

    cut()


def test_a_log_with_damage_is_refused_or_read_up_to_it(tmp_path: Path) -> None:
    """Zeros where a disk lost its last writes, or a flipped bit: never a commit in part."""
    folder, copy = tmp_path / "db", tmp_path / "copy"
    store = RocksStore(folder, cache_bytes=MIB)
    with EngineRunner(store) as runner:
        runner.create(create("a"))
        commits = []
        for number in range(30):
            runner.append(append("a", b"%d," % number * 20, producer=claim(seq=number)))
            commits.append(newest_log(folder).stat().st_size)
        log = newest_log(folder).read_bytes()
        refused = 0
        for at in range(commits[3], len(log), 397):
            for damaged in (
                log[:at] + bytes(len(log) - at),
                log[:at] + bytes([log[at] ^ 0x10]) + log[at + 1 :],
            ):
                try:
                    opened = open_copy(folder, copy, damaged)
                except Exception as error:
                    assert "Corruption" in str(error)
                    refused += 1
                    continue
                with EngineRunner(opened, packing_enabled=False) as reopened:
                    count = reopened.open("a").tail.seq
                    assert count >= sum(1 for end in commits if end <= at)
                    expected = b"".join(b"%d," % number * 20 for number in range(count))
                    assert reopened.content("a") == expected
                opened.close()
        assert refused, "otherwise this test says nothing"
    store.close()


def test_a_commit_of_many_blocks_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """RocksDB's log has blocks of 32 KiB; a commit may take many of them."""
    folder, copy = tmp_path / "db", tmp_path / "copy"
    store = RocksStore(folder, cache_bytes=MIB)
    with EngineRunner(store) as runner:
        runner.create(create("small", body=b"before"))
        runner.create(create("large"))
        before = newest_log(folder).stat().st_size
        runner.together(
            append("small", b"+after"),
            append("large", bytes(1500 * KIB), producer=claim()),
            append("small", close=True),
        )
        log = newest_log(folder).read_bytes()
        for length in (
            before,
            before + 1,
            before + 32 * KIB,
            before + 500 * KIB,
            len(log) - 1,
            len(log),
        ):
            opened = open_copy(folder, copy, log[:length])
            with EngineRunner(opened, packing_enabled=False) as reopened:
                whole = length == len(log)
                assert reopened.content("small") == (b"before+after" if whole else b"before")
                assert reopened.read("small").closed == whole
                assert len(reopened.content("large")) == (1500 * KIB if whole else 0)
                again = reopened.append(append("large", b"x", producer=claim()))
                assert again.repeat == whole
            opened.close()
    store.close()


def test_what_packing_did_may_be_lost_and_is_done_again(tmp_path: Path) -> None:
    """Packing skips the log: the copy has the runs, the running database has chunks."""
    folder, copy = tmp_path / "db", tmp_path / "copy"
    store = RocksStore(folder, cache_bytes=MIB)
    with small_sizes(chunk_bytes=4000), EngineRunner(store) as runner:
        runner.create(create("a"))
        for number in range(40):
            runner.append(append("a", b"%d," % number, producer=claim(seq=number)))
        runner.settle()
        packed = len(runner.keys(b"r"))
        opened = open_copy(folder, copy, newest_log(folder).read_bytes())
        with EngineRunner(opened) as reopened:
            assert len(reopened.keys(b"r")) == 40 > 2 * packed
            assert reopened.content("a") == runner.content("a")
            reopened.append(append("a", b"40,", producer=claim(seq=40)))
            reopened.settle()
            assert len(reopened.keys(b"r")) < 10
            assert reopened.content("a") == runner.content("a") + b"40,"
        opened.close()
    store.close()
