"""JSON fields become columns: by what they hold, and in the same way wherever they are found."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.lake import columns
from headwater.lake.columns import infer, kinds_of, parse_objects, settle


def inferred(
    *rows: dict[str, Any] | None, known: dict[str, str] | None = None
) -> dict[str, list[Any]]:
    found = infer(rows, known or {}, ("offset", "value"))
    return {name: column.to_pylist() for name, column in found.items()}


@pytest.mark.parametrize(
    ("values", "column"),
    [
        pytest.param([1, None, 3], pa.array([1, None, 3], pa.int64()), id="whole numbers"),
        pytest.param([1, 2.5], pa.array([1.0, 2.5]), id="a fraction among them"),
        pytest.param([True], pa.array([True]), id="truth"),
        pytest.param(["a"], pa.array(["a"]), id="text"),
        pytest.param([{"b": [1]}], pa.array(['{"b":[1]}']), id="objects as their text"),
        pytest.param([2**70], pa.array([str(2**70)]), id="numbers too large"),
    ],
)
def test_a_column_has_the_type_of_its_values(values: list[Any], column: pa.Array) -> None:
    assert infer([{"a": value} for value in values], {}, ())["a"].equals(column)


def test_values_of_another_type_get_a_column_of_their_own() -> None:
    rows = ({"a": "x"}, {"a": 1}, {"b": 1})
    assert inferred(*rows) == {
        "a": [None, 1, None],
        "a__string": ["x", None, None],
        "b": [None, None, 1],
    }
    assert inferred(*reversed(rows)).keys() == {"a", "a__string", "b"}


def test_a_column_keeps_the_type_it_has() -> None:
    assert inferred({"a": 1}, known={"a": "string"}) == {"a__long": [1]}
    assert inferred({"a": 1}, known={"a": "double"}) == {"a": [1.0]}
    assert inferred({"a": 1.5}, known={"a": "long"}) == {"a__double": [1.5]}


def test_names_that_are_taken_or_unfit_are_changed() -> None:
    found = inferred({"offset": 1, "a b": 2, "": 3})
    assert found == {"offset_": [1], "a_b": [2], "_": [3]}


def test_names_that_differ_in_case_alone_are_one() -> None:
    assert inferred({"Name": "x"}, {"name": "y"}) == {"Name": ["x", "y"]}
    assert inferred({"NAME": "x"}, known={"name": "string"}) == {"name": ["x"]}


def test_rows_that_are_no_objects_have_no_columns() -> None:
    values = [b"1", b"[1]", b'"x"', b"null", b"not json", b'{"a"', None, b' {"a": 1}']
    assert parse_objects(values) == [None] * 7 + [{"a": 1}]
    assert inferred(None, {"a": None}) == {}


@pytest.mark.parametrize("value", [b'{"\x8e":1}', b'{"a":"\xff"}', b" {\x00", b'{"a":' * 5000])
def test_bytes_that_only_look_like_an_object_are_none(value: bytes) -> None:
    assert parse_objects([value, b'{"a":1}']) == [None, {"a": 1}]


def test_there_are_not_too_many_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "COLUMNS_MAX", 2)
    assert list(inferred({"a": 1, "b": 2, "c": 3})) == ["a", "b"]


def test_the_kinds_of_a_table_are_those_of_its_types() -> None:
    schema = pa.schema([("value", pa.binary()), ("a", pa.int64()), ("when", pa.date32())])
    assert kinds_of(schema, ("value",)) == {"a": "long"}


def test_files_that_disagree_about_a_new_column_are_settled() -> None:
    files = [{"a": "string", "b": "long"}, {"a": "long"}, {"A": "long"}]
    assert settle(files, {}) == [{"a": ("a__string", "string")}, {}, {"A": ("a", "long")}]
    assert settle(files, {"a": "double"}) == [
        {"a": ("a__string", "string")},
        {"a": ("a", "double")},
        {"A": ("a", "double")},
    ]


def test_whole_numbers_and_fractions_are_one_column() -> None:
    assert settle([{"a": "long"}, {"a": "double"}], {}) == [{"a": ("a", "double")}, {}]
    assert settle([{"a": "double"}], {"a": "long"}) == [{"a": ("a__double", "double")}]
