"""Parquet files of a table: written from Arrow, one per partition, and read back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
        prefix = f"{low['offset']:020}-{high['offset']:020}-" if low else ""
        folders = "".join(f"{column}={_folder(value)}/" for column, value in partition.items())
        if not layout.named_folders:
            folders = "data/"
        path = f"{folders}{prefix}{name}-{number:05}{layout.suffix}"
        kept = part if layout.stores_partitions else part.drop_columns(list(partition))
        size = write_file(folder, path, kept)
        written.append(DataFile(path, size, part.num_rows, partition, low, high))
    return written


def write_file(folder: Folder, path: str, rows: pa.Table) -> int:
    """Returns its bytes."""
    with folder.open_output(path) as sink:
        pq.write_table(rows, sink, compression=COMPRESSION)
        size: int = sink.tell()
    return size


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


def _folder(value: str | None) -> str:
    return NULL_FOLDER if value is None else quote(value, safe="")


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
    with folder.open_input(file.path) as source:
        for batch in pq.ParquetFile(source).iter_batches(batch_size=READ_ROWS):
            rows = conform(pa.Table.from_batches([batch]), schema, file.partition)
            if where is not None:
                rows = rows.filter(where)
            yield from rows.to_batches()


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


def join_files(table: LakeTable, target_bytes: int, name: str) -> list[Joined]:
    """Write small files of each partition anew, as one. It does not count before it is committed.

    Rows keep the order of their offsets, if they have any.
    """
    schema, folder = table.schema(), table.folder
    assert schema is not None
    joined = []
    for number, old in enumerate(_small(table.files(), target_bytes)):
        batches = [batch for file in old for batch in read_file(folder, file, schema)]
        rows = pa.Table.from_batches(batches, schema)
        (new,) = write_files(table.layout, rows, f"{name}-{number:05}")
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
