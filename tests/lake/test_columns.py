"""JSON fields become columns: by what they hold, and in the same way wherever they are found."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.lake import columns
from headwater.lake.archiving import change_columns
from headwater.lake.columns import KINDS, infer, kinds_of, parse_objects, settle


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
    both = inferred({"a": 1}, {"a": 1.5}, known={"a": "long"})
    assert both == {"a": [1, None], "a__double": [None, 1.5]}


def test_names_that_are_taken_or_unfit_are_changed() -> None:
    found = inferred({"offset": 1, "a b": 2, "": 3, "a\x00b\r": 4})
    assert found == {"offset_": [1], "a_b": [2], "_": [3], "a_b_": [4]}


def test_names_that_are_very_long_have_no_column() -> None:
    assert list(inferred({"n" * 255: 1, "n" * 256: 2})) == ["n" * 255]


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


def test_files_share_the_room_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "COLUMNS_MAX", 3)
    assert settle([{"a": "long", "b": "long"}, {"c": "long", "d": "long"}], {}) == [{}, {"d": None}]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param([{"a": "string"}, {"a": "long", "a__string": "long"}], id="a name of ours"),
        pytest.param([{"a": "string", "a__string": "string"}, {"a": "long"}], id="there already"),
        pytest.param(
            [{"A": "long"}, {"a": "string"}, {"a": "long", "a__string": "string"}], id="case"
        ),
    ],
)
def test_fields_may_be_called_as_our_columns_are(files: list[dict[str, str]]) -> None:
    assert_fit(files, {})


_NAMES = st.sampled_from(["a", "A", "a__string", "A__STRING", "a__long", "a__string__long", "b"])
_KINDS = st.dictionaries(_NAMES, st.sampled_from(list(KINDS)), max_size=5)


@given(files=st.lists(_KINDS, max_size=4), known=_KINDS)
def test_files_fit_their_table_whatever_they_have(
    files: list[dict[str, str]], known: dict[str, str]
) -> None:
    assert_fit([_one_case(file) for file in files], _one_case(known))


def _one_case(kinds: dict[str, str]) -> dict[str, str]:
    """No file has columns that differ in case alone."""
    return dict({name.lower(): (name, kind) for name, kind in kinds.items()}.values())


def assert_fit(files: list[dict[str, str]], known: dict[str, str]) -> None:
    """All files have columns that one table can have, beside those that it has."""
    table = dict(known)
    for file, changed in zip(files, settle(files, known), strict=True):
        rows = pa.table({name: pa.nulls(1, KINDS[kind]) for name, kind in file.items()})
        schema = change_columns(rows, changed).schema
        assert len({name.lower() for name in schema.names}) == len(schema.names)
        for name, kind in kinds_of(schema, ()).items():
            assert table.setdefault(name, kind) == kind
    assert len({name.lower() for name in table}) == len(table)
