"""`headwater recover`: a log whose end is garbage, dropped only when that is asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headwater.cli.main import main
from headwater.storage.rocks import RocksStore
from headwater.storage.store import SHARD_FOLDER
from tests.support.builders import append, claim, create
from tests.support.engines import EngineRunner

APPENDS = 20


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A data folder whose log has garbage after about half of its commits."""
    store = RocksStore(tmp_path / "running" / SHARD_FOLDER)
    with EngineRunner(store) as runner:
        runner.create(create())
        for number in range(APPENDS):
            runner.append(append(body=b"%02d," % number, producer=claim(seq=number)))
        shutil.copytree(
            tmp_path / "running", tmp_path / "data", ignore=shutil.ignore_patterns("LOCK")
        )
    store.close()
    folder = tmp_path / "data" / SHARD_FOLDER
    log = max(folder.glob("*.log"), key=lambda path: int(path.stem))
    data = log.read_bytes()
    middle = len(data) // 2
    log.write_bytes(data[:middle] + b"\xa5" * 64 + data[middle + 64 :])
    return tmp_path / "data"


def test_what_is_before_the_damage_is_there_afterwards(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Exception, match="Corruption"):
        RocksStore(damaged / SHARD_FOLDER)
    assert main(["check", str(damaged)]) == 1
    assert "see headwater recover" in capsys.readouterr().err
    assert main(["recover", str(damaged), "--drop-damaged-tail"]) == 0
    assert capsys.readouterr().out.endswith("problems   none\n")
    store = RocksStore(damaged / SHARD_FOLDER)
    with EngineRunner(store) as runner:
        found = runner.content("s")
        kept = len(found) // 3
        assert 5 < kept < APPENDS
        assert found == b"".join(b"%02d," % number for number in range(kept))
        assert runner.append(append(body=b"on", producer=claim(seq=kept))).added
    store.close()


def test_it_must_be_asked_for(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in (damaged / SHARD_FOLDER).iterdir()}
    assert main(["recover", str(damaged)]) == 2
    assert "--drop-damaged-tail" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (damaged / SHARD_FOLDER).iterdir()} == before


def test_a_folder_without_data_stays_so(tmp_path: Path) -> None:
    assert main(["recover", str(tmp_path), "--drop-damaged-tail"]) == 1
    assert not list(tmp_path.iterdir())
