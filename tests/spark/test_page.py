"""docs/spark.md says what the connector does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.spark import options
from headwater.spark.options import Option
from headwater.spark.schema import schema
from headwater.spark.targets import IGNORED, WRITTEN

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables that stand right under a heading."""
    text = re.split(r"^#+ ", PAGE.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.M)[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def shown(option: Option) -> list[str]:
    default = option.default
    if default and " " not in default:
        default = f"`{default}`"
    return [f"`{option.name}`", default, option.about]


@pytest.mark.parametrize(
    ("heading", "known"),
    [
        ("The connection", options.CONNECTION_OPTIONS),
        ("Reading", options.SOURCE_OPTIONS[len(options.CONNECTION_OPTIONS) :]),
        ("Writing", options.SINK_OPTIONS[len(options.CONNECTION_OPTIONS) :]),
    ],
)
def test_the_options_are_those_of_the_code(heading: str, known: tuple[Option, ...]) -> None:
    found = rows(heading)
    start = found.index(["Option", "Default", "Meaning"]) + 2
    assert found[start:] == [shown(option) for option in known]


def names(heading: str) -> list[str]:
    found = rows(heading)
    cells = [row[0] for row in found[2:] if not row[0].startswith(("Option", "---"))]
    end = next((at for at, row in enumerate(found) if row[0] == "Option"), len(found)) - 2
    return [name for cell in cells[:end] for name in re.findall(r"`(\w+)`", cell)]


def test_the_columns_are_those_of_the_code() -> None:
    assert names("Reading") == schema(headers=True, stream_ids=True).fieldNames()
    assert sorted(names("Writing")) == sorted((*WRITTEN, *IGNORED))
