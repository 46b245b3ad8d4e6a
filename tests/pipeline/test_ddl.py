"""Schemas are read without Spark, well enough to find mistakes."""

from __future__ import annotations

import pytest

from headwater.pipeline.ddl import DdlError, columns_of


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a int", ["a"]),
        ("a: int, `b c` STRING NOT NULL", ["a", "b c"]),
        ("a array<struct<x: int, y: map<string, double>>>, b decimal(10, 2)", ["a", "b"]),
        ("at timestamp,\n  day date", ["at", "day"]),
    ],
)
def test_a_schema_has_columns(text: str, names: list[str]) -> None:
    assert list(columns_of(text)) == names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected the name of a column"),
        ("a", "column a has no type"),
        ("a int b int", "expected a comma after a"),
        ("a int,", "expected the name"),
        ("a array<int", "expected '>'"),
        ("a map<int>", "expected ','"),
        ("a struct<>", "expected the name"),
        ("a txt", "no type 'txt'"),
        ("a int, A string", "twice"),
        ("a int; b int", "cannot read"),
    ],
)
def test_what_is_no_schema(text: str, said: str) -> None:
    with pytest.raises(DdlError, match=said):
        columns_of(text)
