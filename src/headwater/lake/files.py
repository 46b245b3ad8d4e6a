"""Parquet files of a table: written from Arrow, one per partition, and read back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.lake.locations import Folder
from headwater.lake.tables import DataFile, Layout

if TYPE_CHECKING:
    from headwater.lake.tables import LakeTable

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""As Hive has it, and after it everybody who reads such folders."""

HIDDEN, RETIRED = "_", ".old"
"""How names of files begin that others do not read, and end when their rows are elsewhere."""

NAME_BYTES_MAX = 255
"""Of a folder, on most file systems."""
LONG_VALUE_KEPT = 16
"""Characters at the start of a value that is too long for a folder's name, for whoever looks."""

COMPRESSION = "zstd"
READ_ROWS = 10_000


def write_files(layout: Layout, rows: pa.Table, name: str) -> list[DataFile]:
    """One file for each partition that has rows. They do not count before they are committed.

    `name` is part of every file's name, and must be of nobody else.
    """
    folder = layout.open()
    written = []
    for number, (partition, part) in enumerate(_split(rows, layout.partition_by)):
        low, high = _bounds(part)
        numbers = f"{low['offset']:020}-{high['offset']:020}-" if low else ""
        folders = _folders(partition) if layout.named_folders else "data/"
        path = f"{folders}{layout.prefix}{numbers}{name}-{number:05}{layout.suffix}"
        size = write_file(folder, path, part.drop_columns(_left_out(layout, partition)))
        written.append(DataFile(path, size, part.num_rows, partition, low, high))
    return written


def write_file(folder: Folder, path: str, rows: pa.Table) -> int:
    """Returns its bytes."""
    with folder.open_output(path) as sink:
        pq.write_table(rows, sink, compression=COMPRESSION, write_statistics=_measured(rows))
        size: int = sink.tell()
    return size


def _measured(rows: pa.Table) -> bool | list[str]:
    """The columns whose bounds a file may say. pyiceberg reads them all, and has no times after the
    year 9999."""
    times = [field.name for field in rows.schema if pa.types.is_timestamp(field.type)]
    odd = {name for name in times if not _has_dates(rows[name])}
    return [name for name in rows.column_names if name not in odd] if odd else True


def _has_dates(times: pa.ChunkedArray) -> bool:
    try:
        pc.min_max(times).as_py()
    except (OverflowError, ValueError):
        return False
    return True


def _split(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    if not by:
        yield {}, rows
        return
    order = pc.sort_indices(rows, sort_keys=[(column, "ascending") for column in by])  # stable
    ordered = rows.take(order)
    groups = ordered.select(list(by)).group_by(list(by), use_threads=False)
    at = 0
    for key in groups.aggregate([([], "count_all")]).to_pylist():
        count = key.pop("count_all")
        yield {column: _text(value) for column, value in key.items()}, ordered.slice(at, count)
        at += count


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.isoformat() if isinstance(value, date) else str(value)


def _folders(partition: Mapping[str, str | None]) -> str:
    return "".join(
        f"{column}={NULL_FOLDER if value is None else quote(folder_value(column, value), safe='')}/"
        for column, value in partition.items()
    )


def folder_value(column: str, value: str) -> str:
    """What a folder's name says of a partition: the value, or what stands for a long one."""
    if len(f"{column}={quote(value, safe='')}") <= NAME_BYTES_MAX:
        return value
    digest = hashlib.sha256(value.encode()).hexdigest()[:32]
    return f"{value[:LONG_VALUE_KEPT]}~{digest}"


def _left_out(layout: Layout, partition: Mapping[str, str | None]) -> list[str]:
    """The columns that the files need not hold: something else says what is in them."""
    if layout.stores_partitions:
        return []
    if not layout.named_folders:
        return list(partition)
    return [
        column
        for column, value in partition.items()
        if value is None or folder_value(column, value) == value
    ]


def _bounds(rows: pa.Table) -> tuple[dict[str, int], dict[str, int]]:
    if "offset" not in rows.column_names or not pa.types.is_integer(
        rows.schema.field("offset").type
    ):
        return {}, {}
    bounds = pc.min_max(rows["offset"]).as_py()
    if bounds["min"] is None:
        return {}, {}
    return {"offset": bounds["min"]}, {"offset": bounds["max"]}


# -- reading


def read_file(
    folder: Folder, file: DataFile, schema: pa.Schema, where: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file with all columns of the table, in the file's order."""
    with _open(folder, file.path) as source:
        found = pq.ParquetFile(source)
        held = [name for name in found.schema_arrow.names if name in schema.names]
        for batch in found.iter_batches(batch_size=READ_ROWS, columns=held):
            rows = conform(pa.Table.from_batches([batch]), schema, file.partition)
            if where is not None:
                rows = rows.filter(where)
            yield from rows.to_batches()


def _open(folder: Folder, path: str) -> Any:
    try:
        return folder.open_input(path)
    except FileNotFoundError:  # it may have been joined with others since it was listed
        if not folder.exists(retired(path)):
            raise
        return folder.open_input(retired(path))


def retired(path: str) -> str:
    """The name that a file of plain Parquet is kept under when another has its rows."""
    parent, slash, name = path.rpartition("/")
    return f"{parent}{slash}{HIDDEN}{name}{RETIRED}"


def conform(rows: pa.Table, schema: pa.Schema, partition: Mapping[str, str | None]) -> pa.Table:
    """The same rows with the columns of a schema: missing ones are null."""
    columns = []
    for field in schema:
        if field.name in rows.column_names:
            columns.append(rows[field.name].cast(field.type))
        elif partition.get(field.name) is not None:
            value = pa.scalar(partition[field.name]).cast(field.type)
            columns.append(pa.repeat(value, rows.num_rows))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


# -- compaction


class Joined(NamedTuple):
    """A new file, and those whose rows it has."""

    new: DataFile
    old: list[DataFile]


def join_files(
    table: LakeTable, files: Sequence[DataFile], target_bytes: int, name: str
) -> list[Joined]:
    """Write small ones of a table's files anew, those of a partition as one. It does not count
    before it is committed.

    Rows keep the order of their offsets, if they have any.
    """
    schema, folder = table.schema(), table.folder
    assert schema is not None
    joined = []
    for number, old in enumerate(_small(files, target_bytes)):
        batches = [batch for file in old for batch in read_file(folder, file, schema)]
        rows = pa.Table.from_batches(batches, schema)
        # Where the old ones are: whoever maintains a table need not know its partitions.
        layout = replace(table.layout, partition_by=tuple(old[0].partition))
        (new,) = write_files(layout, rows, f"{name}-{number:05}")
        joined.append(Joined(new, old))
    return joined


def _small(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Files of one partition that together are about as large as one should be."""
    groups: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = {}
    for file in sorted(files, key=lambda file: (file.low.get("offset", 0), file.path)):
        if file.bytes < target_bytes // 2:
            groups.setdefault(tuple(sorted(file.partition.items())), []).append(file)
    for group in groups.values():
        bin_: list[DataFile] = []
        for file in group:
            if bin_ and sum(each.bytes for each in bin_) + file.bytes > target_bytes:
                if len(bin_) > 1:
                    yield bin_
                bin_ = []
            bin_.append(file)
        if len(bin_) > 1:
            yield bin_
