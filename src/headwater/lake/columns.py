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
NAME_MAX = 255
"""Fields beyond this many, or with longer names, are in the value only."""

KINDS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
}

OTHER = "other"
"""What is none of them."""

_UNFIT = re.compile(r"[\x00-\x1f\x7f ,;{}()=.`]")
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
    places = Places(known)
    taken = {name.lower() for name in reserved}
    columns: dict[str, list[Any]] = {}
    for field, found in _gather(rows).items():
        if len(field) > NAME_MAX:
            continue
        name = column_name(field, taken)
        if {"long", "double"} <= found.keys() and places.kind_of(name) is None:
            found["double"] += found.pop("long")
        for kind in KINDS:
            column = places.find(name, kind) if kind in found else None
            if column is None:
                continue
            cells = columns.setdefault(column.name, [None] * len(rows))
            convert = float if column.kind == "double" else None
            for index, value in found[kind]:
                cells[index] = value if convert is None else convert(value)
    return {name: pa.array(cells, KINDS[places.kinds[name]]) for name, cells in columns.items()}


def _gather(
    rows: Sequence[Mapping[str, Any] | None],
) -> dict[str, dict[str, list[tuple[int, Any]]]]:
    """Values by field and kind."""
    found: dict[str, dict[str, list[tuple[int, Any]]]] = {}
    for index, row in enumerate(rows):
        for name, value in (row or {}).items():
            if value is None:
                continue
            kind, plain = _kind_of(value)
            found.setdefault(name, {}).setdefault(kind, []).append((index, plain))
    return found


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


class Column(NamedTuple):
    """A column of a table, or what a column of a file is to be."""

    name: str
    kind: str


class Places:
    """Where values go: the columns of a table, with those that are added."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self.kinds = dict(known)
        self._spelt = {name.lower(): name for name in known}
        """Names that differ in case alone are one."""

    def kind_of(self, name: str) -> str | None:
        return self.kinds.get(self._spelt.get(name.lower(), name))

    def find(self, name: str, kind: str) -> Column | None:
        """The column for values of this kind; noted when it is new. None if there is no room."""
        for wanted in (name, f"{name}__{kind}"):
            has = self.kind_of(wanted)
            if has is None:
                return self.add(wanted, kind)
            if has == kind or (has == "double" and kind == "long"):
                return Column(self._spelt[wanted.lower()], has)
        return None

    def add(self, name: str, kind: str) -> Column | None:
        if len(self.kinds) >= COLUMNS_MAX:
            return None
        self.kinds[name] = kind
        self._spelt[name.lower()] = name
        return Column(name, kind)


def kinds_of(schema: pa.Schema, reserved: Collection[str]) -> dict[str, str]:
    """The columns of a table that can be of JSON fields."""
    names = {kind: name for name, kind in KINDS.items()}
    return {
        field.name: names[field.type]
        for field in schema
        if field.name not in reserved and field.type in names
    }


def known_columns(schema: pa.Schema, reserved: Collection[str]) -> dict[str, str]:
    """The same, and those that somebody else has added with types that no JSON field gets: their
    names are taken."""
    others = {field.name: OTHER for field in schema if field.name not in reserved}
    return {**others, **kinds_of(schema, reserved)}


def settle(
    found: Sequence[Mapping[str, str]], known: Mapping[str, str]
) -> list[dict[str, Column | None]]:
    """One table's columns for several files, each inferred without the others.

    Where files gave a new column different kinds, it is as if one had seen all their rows. Returns,
    for each file, the columns that have to change; None for those that there is no room for.
    """
    places = Places(known)
    for name, kind in _widest(found).items():
        if places.kind_of(name) is None:
            places.add(name, kind)
    return [
        {
            name: target
            for name, kind in columns.items()
            if (target := places.find(name, kind)) != (name, kind)
        }
        for columns in found
    ]


def _widest(found: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Every column of some files, with the kind that gets its plain name."""
    kinds: dict[str, tuple[str, str]] = {}
    for columns in found:
        for name, kind in columns.items():
            spelt, has = kinds.get(name.lower(), (name, kind))
            kinds[name.lower()] = spelt, _wider(kind, has)
    return dict(kinds.values())


def _wider(one: str, other: str) -> str:
    if {one, other} == {"long", "double"}:
        return "double"
    return min(one, other, key=list(KINDS).index)
