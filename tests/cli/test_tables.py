"""Rows are printed so that people can read them, and programs lose nothing of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal

import pytest

from headwater.cli import tables
from headwater.cli.tables import fit_last, show

Shown = Callable[..., list[str]]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    def lines(columns: list[str], *rows: list[object], form: str = "table") -> list[str]:
        show(columns, rows, form)
        return capsys.readouterr().out.splitlines()

    return lines


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "terminal_width", lambda: 30)


def test_rows_in_every_form(shown: Shown) -> None:
    columns, rows = ["a", "b"], ([1, b"x,y"], [None, "long " * 30])
    table = shown(columns, *rows)
    assert table[0] == "a  b" and table[2] == "1  x,y" and table[3].endswith("…")
    assert json.loads(shown(columns, *rows, form="json")[0]) == {"a": 1, "b": "x,y"}
    assert shown(columns, *rows, form="csv")[:2] == ["a,b", '1,"x,y"']


def test_numbers_stand_right_and_wide_letters_count_twice(shown: Shown) -> None:
    table = shown(["n", "word", "d"], [1, "日本", Decimal("1.5")], [200, "été", None])
    assert table == [
        "  n  word    d",
        "---  ----  ---",
        "  1  日本  1.5",
        "200  été",
        "(2 rows)",
    ]


def test_what_a_stream_holds_does_nothing_to_a_terminal(shown: Shown) -> None:
    assert shown(["a"], ["\x1b[31mred\x07\nnext"])[2] == "�[31mred� next"


def test_bytes_that_are_no_text_are_told_by_their_numbers(shown: Shown) -> None:
    assert json.loads(shown(["a"], [b"\xff\x00ok"], form="json")[0]) == {"a": "\\xff\x00ok"}


def test_json_holds_what_it_can(shown: Shown) -> None:
    row: list[object] = [float("nan"), float("-inf"), Decimal("1.50"), datetime(2030, 1, 31), [1]]
    (line,) = shown(["a", "b", "c", "d", "e"], row, form="json")
    expected = {"a": "NaN", "b": "-Infinity", "c": "1.50", "d": "2030-01-31T00:00:00", "e": [1]}
    assert json.loads(line, parse_constant=pytest.fail) == expected


@pytest.mark.usefixtures("narrow")
def test_a_table_too_wide_for_the_terminal_goes_down_instead(shown: Shown) -> None:
    assert shown(["first", "b"], ["x" * 20, "y" * 20]) == [
        "-- 1 --",
        f"first  {'x' * 20}",
        f"b      {'y' * 20}",
        "(1 row)",
    ]


@pytest.mark.usefixtures("narrow")
def test_the_last_column_gives_way_to_the_others() -> None:
    assert fit_last(["a", "error"], [["x" * 5, "e" * 50]]) == [["x" * 5, "e" * 22 + "…"]]
