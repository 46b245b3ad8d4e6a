"""What a lake table is to us, whichever format it has, and how one is opened.

A table is a folder of Parquet files and a list of those that count. Tasks write files on their
own; `commit` makes all of a batch's files count at once, and only once per query and batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Self, TypeVar

import pyarrow as pa

from headwater.lake.errors import LakeError as LakeError
from headwater.lake.locations import Folder, is_url
from headwater.lake.stores import advice

T = TypeVar("T")

FORMATS = ("delta", "iceberg", "parquet")

ORPHAN_S = 24 * 60 * 60
"""Files that no commit names may be of a task that still runs: they are kept for this at least."""


COMMIT_TRIES = 5
"""Others may write to the table at the same moment: upkeep, or another query."""


@dataclass(frozen=True, slots=True)
class TableRef:
    """Where a table is: plain values, so that it can travel to executors. What may hold keys is
    not shown when it is printed."""

    format: str
    location: str
    """A folder, as a path or a URL. With a `catalog`: the table's name in it, `namespace.table`."""
    partition_by: tuple[str, ...] = ()
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Iceberg only: the properties of a catalog, as pyiceberg has them."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of an object store, by the names of its environment variables: see stores.py."""
    version: str | None = None
    """Read the table as it was then; None for the latest."""

    def encode(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> Self:
        values = json.loads(text)
        return cls(**{**values, "partition_by": tuple(values["partition_by"])})


@dataclass(frozen=True, slots=True)
class Mark:
    """Which batch of which query a commit is of."""

    query: str
    batch: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table."""

    path: str
    """Below the table's folder."""
    bytes: int
    rows: int
    partition: Mapping[str, str | None]
    """Values of the partition columns as text."""
    low: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[str, int] = field(default_factory=dict)
    """The least and the greatest value of `offset`, if the table has it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the files of a table are written: all that an executor has to know about it."""

    location: str
    storage: Mapping[str, str]
    partition_by: tuple[str, ...]
    prefix: str = ""
    suffix: str = ".parquet"
    """How the names of new files begin and end, until they count."""
    stores_partitions: bool = False
    """Whether the files hold the partition columns too."""
    named_folders: bool = False
    """Whether the folders of a file say which partition it is of."""

    def open(self) -> Folder:
        return Folder(self.location, self.storage)


def matches(file: DataFile, where: Mapping[str, str] | None) -> bool:
    """Whether a file can have rows with these values of partition columns."""
    wanted = where or {}
    return all(file.partition.get(name, value) == value for name, value in wanted.items())


class LakeTable(Protocol):
    """A table of any format."""

    ref: TableRef

    @property
    def layout(self) -> Layout:
        """Raises FileNotFoundError when there is no table yet."""

    @property
    def folder(self) -> Folder:
        """Where its files are. Raises FileNotFoundError when that is not known yet."""

    def check(self) -> None:
        """Raises OSError when the place of its files cannot be used; see Folder.check."""

    @property
    def identity(self) -> str:
        """Tells it from others that were in its place. Raises FileNotFoundError when there is no
        table yet."""

    def schema(self) -> pa.Schema | None:
        """The columns, partitions included; None when there is no table yet."""

    def evolve(self, schema: pa.Schema) -> None:
        """Create the table, or add the columns that it does not have. Raises LakeError if it has
        other partitions than `ref` says."""

    def committed(self, mark: Mark) -> bool:
        """Whether this batch is in the table already."""

    def commit(self, files: Sequence[DataFile], mark: Mark, *, overwrite: bool = False) -> None:
        """Add the files, all or none; with `overwrite` they replace what was there. Nothing happens
        if the batch is in the table already."""

    def files(self, where: Mapping[str, str] | None = None) -> list[DataFile]:
        """The files that count, of the partitions with these values."""

    def current_version(self) -> str:
        """Names the table's present state; see `TableRef.version`."""

    def compact(self, target_bytes: int, name: str) -> int:
        """Join small files; `name` is part of the new names. Returns how many files went."""

    def clean(self, older_than_s: int, now_s: float) -> int:
        """Remove files that no longer count and are older, and those that never did and are older
        than ORPHAN_S too. Returns how many."""


def missing_from(known: pa.Schema, wanted: pa.Schema) -> list[pa.Field]:
    """The columns that a table does not have. Names that differ in case alone are one."""
    names = {name.lower() for name in known.names}
    return [field for field in wanted if field.name.lower() not in names]


def check_partitions(ref: TableRef, found: Sequence[str]) -> None:
    """Raises LakeError: files of other partitions would be read with wrong values by others."""
    if tuple(found) != ref.partition_by:
        has, asked = (", ".join(by) or "nothing" for by in (found, ref.partition_by))
        raise LakeError(
            f"the table {ref.location} is partitioned by {has}, not by {asked}; leave partition_by "
            "as it was, or use another table"
        )


def retried(act: Callable[[], T], races: tuple[type[Exception], ...]) -> T:
    """Do something that fails when somebody else changes the table first, and can be done again."""
    for _ in range(COMMIT_TRIES - 1):
        with suppress(*races):
            return act()
    return act()


def changed_meanwhile(ref: TableRef) -> LakeError:
    return LakeError(
        f"others changed the table {ref.location} while its files were joined; run this again when "
        "fewer write to it"
    )


def open_table(ref: TableRef) -> LakeTable:
    """Raises LakeError when the format is unknown or its library is missing."""
    opener: Any
    try:
        if ref.format == "delta":
            from headwater.lake.delta import DeltaLake as opener
        elif ref.format == "iceberg":
            from headwater.lake.iceberg import IcebergLake as opener
        elif ref.format == "parquet":
            from headwater.lake.parquet import ParquetLake as opener
        else:
            raise LakeError(f"format is one of {', '.join(FORMATS)}. received={ref.format!r}")
    except ImportError as error:
        raise LakeError(
            f'{ref.format} tables need more: pip install "headwater[spark]" (missing: {error.name})'
        ) from error
    table: LakeTable = opener(ref)
    return table


def reach_table(ref: TableRef) -> LakeTable:
    """Opens a table whose place can be used. Raises LakeError that says what to set if not.

    The libraries themselves say so late, or try for minutes.
    """
    place = str(ref.catalog.get("warehouse", "")) if ref.catalog else ref.location
    try:
        table = open_table(ref)
        table.check()
    except OSError as error:
        reason = str(error).partition(" (Request ID")[0]
        hint = f"; {advice(place)}" if is_url(place) else ""
        raise LakeError(f"cannot reach {place or ref.location}: {reason}{hint}") from error
    return table
