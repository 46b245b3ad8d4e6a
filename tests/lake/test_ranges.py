"""The ranges that were archived: they grow batch by batch, and a repeat adds nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.lake.errors import LakeError
from headwater.lake.locations import Folder
from headwater.lake.ranges import Range, add_ranges, join, read_own, read_ranges


def span(first: int, end: int, *, stream: str = "s", id: str = "1", batch: int = 0) -> Range:
    return Range("b", stream, id, first, end, batch)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path))


def extents(ranges: list[Range]) -> list[tuple[str, int, int]]:
    return [(each.stream_id, each.first, each.end) for each in ranges]


def test_a_stream_has_one_range_that_grows(folder: Folder) -> None:
    add_ranges(folder, "q", [span(5, 10, batch=0)])
    add_ranges(folder, "q", [span(10, 12, batch=1)])
    # 12 was a command, or the second part of a message: no row has its number.
    add_ranges(folder, "q", [span(13, 20, batch=2)])
    assert extents(read_ranges(folder)) == [("1", 5, 20)]


def test_batches_that_went_elsewhere_leave_a_gap(folder: Folder) -> None:
    add_ranges(folder, "q", [span(0, 10, batch=0), span(0, 5, stream="t", batch=0)])
    add_ranges(folder, "q", [span(5, 6, stream="t", batch=1)])
    own = add_ranges(folder, "q", [span(20, 30, batch=3), span(6, 9, stream="t", batch=3)])
    assert extents(read_ranges(folder)) == [("1", 0, 10), ("1", 20, 30), ("1", 0, 9)]
    assert [each.settled for each in own if each.stream == "s"] == [0, 20]
    add_ranges(folder, "q", [span(30, 31, batch=4)])
    assert extents(read_ranges(folder))[:2] == [("1", 0, 10), ("1", 20, 31)]


def test_a_repeat_changes_nothing(folder: Folder) -> None:
    add_ranges(folder, "q", [span(0, 10, batch=0)])
    once = add_ranges(folder, "q", [span(10, 20, batch=1)])
    assert add_ranges(folder, "q", [span(10, 20, batch=1)]) == once == read_own(folder, "q")


def test_a_batch_that_brings_more_when_it_is_repeated_is_refused(folder: Folder) -> None:
    """The table has it as it was. So its checkpoint was put back, and planned it anew."""
    add_ranges(folder, "q", [span(0, 10, batch=0)])
    known = add_ranges(folder, "q", [span(10, 20, batch=1)])
    assert add_ranges(folder, "q", [span(10, 15, batch=1)]) == known
    for more in (span(10, 30, batch=1), span(15, 21, batch=0), span(0, 1, stream="t", batch=1)):
        with pytest.raises(LakeError, match="the checkpoint is older than the table"):
            add_ranges(folder, "q", [more])
    assert read_own(folder, "q") == known


def test_ranges_of_a_table_that_was_dropped_are_not_of_the_next(folder: Folder) -> None:
    add_ranges(folder, "q", [span(0, 10, batch=0)], "first")
    assert extents(read_ranges(folder, "first")) == [("1", 0, 10)]
    assert read_ranges(folder, "second") == []
    add_ranges(folder, "q", [span(10, 20, batch=1)], "second")
    assert extents(read_ranges(folder, "second")) == [("1", 10, 20)]


def test_ranges_of_an_older_version_do_not_say_their_table(folder: Folder) -> None:
    add_ranges(folder, "q", [span(0, 10, batch=0)])
    assert extents(read_ranges(folder, "any")) == [("1", 0, 10)]


def test_what_is_settled_is_one_batch_behind(folder: Folder) -> None:
    (first,) = add_ranges(folder, "q", [span(0, 10, batch=0)])
    (second,) = add_ranges(folder, "q", [span(10, 20, batch=1)])
    assert (first.settled, second.settled) == (0, 10)


def test_a_stream_made_anew_has_its_own_range(folder: Folder) -> None:
    add_ranges(folder, "q", [span(0, 10), span(0, 3, id="2")])
    assert extents(read_ranges(folder)) == [("1", 0, 10), ("2", 0, 3)]


def test_ranges_of_several_queries_are_joined_where_they_touch(folder: Folder) -> None:
    add_ranges(folder, "one", [span(0, 10)])
    add_ranges(folder, "two", [span(10, 20), span(0, 5, stream="t")])
    add_ranges(folder, "three/with a name", [span(30, 40)])
    assert extents(read_ranges(folder)) == [("1", 0, 20), ("1", 30, 40), ("1", 0, 5)]


def test_ranges_within_ranges_go() -> None:
    assert extents(join([span(0, 10), span(2, 5), span(8, 12)])) == [("1", 0, 12)]


def test_without_an_archive_there_are_none(folder: Folder) -> None:
    assert read_ranges(folder) == []
