"""`headwater check`: what it says of a data folder, and how it ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headwater.cli import check
from headwater.cli.main import main
from headwater.core.types import SeqNum, StreamId
from headwater.storage import keys
from headwater.storage.rocks import RocksStore
from headwater.storage.store import SHARD_FOLDER
from tests.support.builders import BUCKET, append, create
from tests.support.engines import EngineRunner
from tests.support.server import ServerProcess


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with one stream of two records, closed in order."""
    store = RocksStore(tmp_path / SHARD_FOLDER)
    with EngineRunner(store) as runner:
        runner.create(create(body=b"a"))
        runner.append(append(body=b"b"))
        runner.settle()
    store.close()
    return tmp_path


def test_a_sound_folder_is_0(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(folder)]) == 0
    shown = capsys.readouterr()
    assert "streams    1\nrecords    2 in 2 runs" in shown.out
    assert shown.out.endswith("problems   none\n")
    assert shown.err == ""


def test_what_is_still_in_the_log_counts_and_nothing_is_changed(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "running" / SHARD_FOLDER)
    with EngineRunner(store) as runner:
        runner.create(create(body=b"a"))
        shutil.copytree(tmp_path / "running", tmp_path / "copy")
    store.close()
    before = contents(tmp_path / "copy")
    assert main(["check", str(tmp_path / "copy"), "--quiet"]) == 0
    after = contents(tmp_path / "copy")
    assert {name: after[name] for name in before if name != "LOG"} == {
        name: before[name] for name in before if name != "LOG"
    }


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / SHARD_FOLDER).iterdir()}


def test_progress_goes_to_stderr_unless_it_is_not_wanted(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "PROGRESS_BYTES", 1)
    assert main(["check", str(folder)]) == 0
    assert capsys.readouterr().err == "1 streams, 2 records, 0 MiB\n"
    assert main(["check", str(folder), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_what_nobody_can_reach_is_told_and_harmless(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RocksStore(folder / SHARD_FOLDER)
    batch = store.batch()
    batch.put(keys.run(StreamId(99), SeqNum(0)), b"left over")
    store.write(batch)
    store.close()
    assert main(["check", str(folder)]) == 0
    assert "unused     1 runs, 9 bytes: harmless" in capsys.readouterr().out


def test_a_problem_is_1_and_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = RocksStore(folder / SHARD_FOLDER)
    batch = store.batch()
    batch.delete(keys.name(BUCKET, "s"))
    store.write(batch)
    store.close()
    assert main(["check", str(folder)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("problem: bucket/s: no name leads to stream 1\n")
    assert shown.endswith("problems   1\n")


def test_a_file_that_is_damaged_is_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = RocksStore(folder / SHARD_FOLDER)
    store.compact()
    store.close()
    for table in (folder / SHARD_FOLDER).glob("*.sst"):
        data = bytearray(table.read_bytes())
        data[20] ^= 1
        table.write_bytes(data)
    assert main(["check", str(folder)]) == 1
    assert "cannot be" in capsys.readouterr().err


def test_a_folder_without_data_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path)]) == 1
    assert "headwater: there is no data here" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_running_server_is_in_the_way(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ServerProcess(folder) as server:
        assert main(["check", str(folder)]) == 1
        assert "a server uses this folder" in capsys.readouterr().err
        assert server.stop() == 0
    assert main(["check", str(folder)]) == 0
