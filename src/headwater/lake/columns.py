"""The fields of JSON values as columns: found, typed and added as they appear.

A column keeps the type it got first: long, double, boolean or string. Objects and arrays are kept
as their JSON text. A value of another type goes to a second column, named with its type, such as
`amount__string`: columns are only ever added, and the value itself is in the table as it came.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

COLUMNS_MAX = 500
"""Fields beyond this many are in the value only."""

KINDS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
}

_UNFIT = re.compile(r"[ ,;{}()\n\t=.`]")
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def parse_objects(values: Iterable[bytes | None]) -> list[dict[str, Any] | None]:
    """Each value as an object; None for what is not one."""
    decode = msgspec.json.Decoder().decode
    found: list[dict[str, Any] | None] = []
    for value in values:
        parsed = None
        if value is not None and value[:1] not in b'["0123456789-tfn':
            try:
                parsed = decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                parsed = None
        found.append(parsed if isinstance(parsed, dict) else None)
    return found


def infer(
    rows: Sequence[Mapping[str, Any] | None],
    known: Mapping[str, str],
    reserved: Collection[str],
) -> dict[str, pa.Array]:
    """Columns for the fields of some rows.

    `known` has the kinds of the columns that the table has already; `reserved` the names of those
    that are not of JSON fields.
    """
    placed: dict[str, str] = {name.lower(): name for name in known}
    kinds = dict(known)
    taken = {name.lower() for name in reserved}
    columns: dict[str, list[Any]] = {}
    for name, found in _gather(rows).items():
        for kind, values in found.items():
            column = _place(name, kind, kinds, placed, taken)
            if column is None:
                continue
            cells = columns.setdefault(column, [None] * len(rows))
            convert = float if kinds[column] == "double" else None
            for index, value in values:
                cells[index] = value if convert is None else convert(value)
    return {name: pa.array(cells, KINDS[kinds[name]]) for name, cells in columns.items()}


def _gather(
    rows: Sequence[Mapping[str, Any] | None],
) -> dict[str, dict[str, list[tuple[int, Any]]]]:
    """Values by field and kind, the kinds of each field in the order of KINDS."""
    found: dict[str, dict[str, list[tuple[int, Any]]]] = {}
    for index, row in enumerate(rows):
        for name, value in (row or {}).items():
            if value is None:
                continue
            kind, plain = _kind_of(value)
            found.setdefault(name, {}).setdefault(kind, []).append((index, plain))
    for kinds in found.values():
        if "long" in kinds and "double" in kinds:
            kinds["double"] += kinds.pop("long")
    return {
        name: {kind: kinds[kind] for kind in KINDS if kind in kinds}
        for name, kinds in found.items()
    }


def _kind_of(value: Any) -> tuple[str, Any]:
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, int) and _LONG_MIN <= value <= _LONG_MAX:
        return "long", value
    if isinstance(value, float):
        return "double", value
    if isinstance(value, str):
        return "string", value
    return "string", msgspec.json.encode(value).decode()


def column_name(field: str, taken: Collection[str]) -> str:
    """What the column of a field is called; `taken` has other columns, in lower case."""
    plain = _UNFIT.sub("_", field) or "_"
    while plain.lower() in taken:
        plain += "_"
    return plain


def _place(
    name: str, kind: str, kinds: dict[str, str], placed: dict[str, str], taken: set[str]
) -> str | None:
    """The column for values of this kind; notes it when it is new. None when there are too many."""
    plain = column_name(name, taken)
    for column in (plain, f"{plain}__{kind}"):
        column = placed.get(column.lower(), column)
        has = kinds.get(column)
        if has is None:
            if len(kinds) >= COLUMNS_MAX:
                return None
            kinds[column] = kind
            placed[column.lower()] = column
            return column
        if has == kind or (has == "double" and kind == "long"):
            return column
    return None


def kinds_of(schema: pa.Schema, reserved: Collection[str]) -> dict[str, str]:
    """The columns of a table that can be of JSON fields."""
    names = {kind: name for name, kind in KINDS.items()}
    return {
        field.name: names[field.type]
        for field in schema
        if field.name not in reserved and field.type in names
    }


class Column(NamedTuple):
    """What a column of a file is to be."""

    name: str
    kind: str


def settle(found: Sequence[Mapping[str, str]], known: Mapping[str, str]) -> list[dict[str, Column]]:
    """One table's columns for several files, each inferred without the others.

    Where files gave a new column different kinds, it is as if one had seen all their rows. Returns,
    for each file, the columns that have to change.
    """
    spelt = {name.lower(): name for name in known}
    kinds = dict(known)
    for columns in found:
        for name, kind in columns.items():
            own = spelt.setdefault(name.lower(), name)
            if own not in known:
                kinds[own] = _wider(kind, kinds.get(own, kind))
    return [
        {
            name: target
            for name, kind in columns.items()
            if (target := _settled(spelt[name.lower()], kind, kinds)) != (name, kind)
        }
        for columns in found
    ]


def _wider(one: str, other: str) -> str:
    """The kind that gets the plain name."""
    if {one, other} == {"long", "double"}:
        return "double"
    return min(one, other, key=list(KINDS).index)


def _settled(name: str, kind: str, kinds: Mapping[str, str]) -> Column:
    if kinds[name] == kind or (kinds[name] == "double" and kind == "long"):
        return Column(name, kinds[name])
    return Column(f"{name}__{kind}", kind)
