"""Upkeep as it is run by hand: of a table whose partitions nobody names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.cli.main import main
from headwater.lake.tables import FORMATS, open_table
from tests.lake.others import seen_by_others
from tests.lake.tables import add, make, offsets, rows

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize("format", FORMATS)
def test_joined_files_stay_in_their_partitions(format: str, tmp_path: Path) -> None:
    table = make(tmp_path, format)
    for batch in range(3):
        add(table, pa.concat_tables([rows(batch), rows(batch, stream="x y/ü", day=2)]), batch)
    before = {tuple(file.partition.items()) for file in table.files()}
    assert main(["pipeline", "maintain", table.ref.location, "--format", format]) == 0
    assert len(table.files()) == 2
    assert {tuple(file.partition.items()) for file in table.files()} == before
    add(table, rows(3), 3)
    assert offsets(table) == [0, 1, 2, 3, 0, 1, 2]
    assert seen_by_others(table.ref)["offset"].to_pylist() == [0, 1, 2, 3, 0, 1, 2]


@pytest.mark.parametrize("flags", [["--keep-hours", "-1"], ["--target-mib", "0"]])
def test_numbers_that_make_no_sense_are_refused(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = make(tmp_path, "parquet")
    arguments = ["pipeline", "maintain", table.ref.location, "--format", "parquet"]
    assert main([*arguments, *flags]) == 1
    assert "old ones kept for 0 hours or more" in capsys.readouterr().err


@pytest.mark.parametrize("format", FORMATS)
def test_two_at_once_do_not_both_join_files(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = make(tmp_path, format)
    for batch in range(3):
        add(table, rows(batch), batch)
    arguments = ["pipeline", "maintain", table.ref.location, "--format", format]
    kind = type(table)
    compact = kind.compact

    def late(self: Any, target_bytes: int, name: str) -> int:
        monkeypatch.setattr(kind, "compact", compact)
        assert main(arguments) == 1
        return int(compact(self, target_bytes, name))

    monkeypatch.setattr(kind, "compact", late)
    assert main(arguments) == 0
    assert "somebody else does this to the table" in capsys.readouterr().err
    assert offsets(open_table(table.ref)) == [0, 1, 2]
