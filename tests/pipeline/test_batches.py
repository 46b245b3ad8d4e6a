"""What a micro-batch of an archive has read: as far as Spark noted, or nothing is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.lake.ranges import Range
from headwater.pipeline.batches import read_batch
from headwater.spark.offsets import Cut, Mark, Offset, encode


def note(folder: Path, batch: int, **marks: Mark) -> None:
    """As Spark does."""
    offset = encode(Offset({f"b/{name}": mark for name, mark in marks.items()}, Cut(100, 1)))
    write(folder, batch, "v1", '{"batchWatermarkMs":0}', json.dumps(offset))


def write(folder: Path, batch: int, *lines: str) -> None:
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "offsets" / str(batch)).write_text("\n".join(lines))


def test_a_batch_has_what_is_between_two_offsets(tmp_path: Path) -> None:
    note(tmp_path, 0, s=Mark("1", 5, 2), t=Mark("2", 3, 3))
    note(tmp_path, 1, s=Mark("1", 9), t=Mark("2", 3, 3), u=Mark("3", 4, 0))
    assert read_batch(str(tmp_path), {}, 0) == [Range("b", "s", "1", 2, 5, 0)]
    assert read_batch(str(tmp_path), {}, 1) == [
        Range("b", "s", "1", 5, 9, 1),
        Range("b", "u", "3", 0, 4, 1),
    ]


def test_streams_that_did_not_move_are_left_out(tmp_path: Path) -> None:
    """The query may have written them into another table."""
    note(tmp_path, 6, s=Mark("1", 5, 0))
    note(tmp_path, 7, s=Mark("1", 5, 0))
    assert read_batch(str(tmp_path), {}, 7) == []


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(("v1", "{}", "{}", "{}"), id="two sources"),
        pytest.param(("v2", "{}", '{"cut": [1, 1]}'), id="another version"),
        pytest.param(("v1", "{}", '{"other": 1}'), id="another source"),
    ],
)
def test_of_what_is_not_known_nothing_is_said(tmp_path: Path, lines: tuple[str, ...]) -> None:
    write(tmp_path, 0, *lines)
    assert read_batch(str(tmp_path), {}, 0) is None


def test_a_checkpoint_may_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    note(tmp_path, 0, s=Mark("1", 5, 0))
    assert read_batch("", {}, 0) is None
    (tmp_path / "offsets" / "0").unlink()
    note(tmp_path, 1, s=Mark("1", 9))
    assert read_batch(str(tmp_path), {}, 1) is None  # the one before is missing
    assert read_batch("hdfs://somewhere/checkpoint", {}, 0) is None
