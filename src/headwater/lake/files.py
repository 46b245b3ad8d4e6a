"""Parquet files of a table: written from Arrow, one per partition, and read back."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.lake.locations import Folder
from headwater.lake.tables import DataFile, Layout

if TYPE_CHECKING:
    from headwater.lake.tables import LakeTable

Sized = TypeVar("Sized", pa.Table, pa.RecordBatch)

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
READ_BYTES = 16 * 1024 * 1024
"""Of a file at once: the less of the two."""
GROUP_BYTES = 64 * 1024 * 1024
"""Of a joined file that are written at once. It can be a hundred times as large when it is read."""


def write_files(layout: Layout, rows: pa.Table, name: str) -> list[DataFile]:
    """One file for each partition that has rows. They do not count before they are committed.

    `name` is part of every file's name, and must be of nobody else.
    """
    folder = layout.open()
    written = []
    for number, (partition, part) in enumerate(_split(rows, layout.partition_by)):
        low, high = _bounds(part)
        path = _path(layout, partition, low, high, f"{name}-{number:05}")
        size = write_file(folder, path, part.drop_columns(_left_out(layout, partition)))
        written.append(DataFile(path, size, part.num_rows, partition, low, high))
    return written


def _path(
    layout: Layout,
    partition: Mapping[str, str | None],
    low: Mapping[str, int],
    high: Mapping[str, int],
    name: str,
) -> str:
    numbers = f"{low['offset']:020}-{high['offset']:020}-" if low else ""
    folders = _folders(partition) if layout.named_folders else "data/"
    return f"{folders}{layout.prefix}{numbers}{name}{layout.suffix}"


def write_file(folder: Folder, path: str, rows: pa.Table) -> int:
    """Returns its bytes."""
    odd = {name for name in _times(rows.schema) if not _has_dates(rows[name])}
    return write_tables(folder, path, [rows], rows.schema, odd)


def write_tables(
    folder: Folder, path: str, tables: Iterable[pa.Table], schema: pa.Schema, odd: Collection[str]
) -> int:
    """The same for rows that come bit by bit. `odd` are columns whose bounds the file must not say:
    pyiceberg reads them all, and has no times after the year 9999."""
    measured = [name for name in schema.names if name not in odd]
    with folder.open_output(path) as sink:
        with pq.ParquetWriter(
            sink,
            schema,
            compression=COMPRESSION,
            write_statistics=measured if odd else True,
        ) as writer:
            for table in tables:
                writer.write_table(table)
        size: int = sink.tell()
    return size


def _times(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if pa.types.is_timestamp(field.type)]


def _has_dates(times: pa.Array | pa.ChunkedArray) -> bool:
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
    keys = ordered.select(list(by))
    edges = [*_edges(keys), len(keys)]
    for first, end in pairwise(edges):
        (key,) = keys.slice(first, 1).to_pylist()
        partition = {column: _text(value) for column, value in key.items()}
        yield partition, ordered.slice(first, end - first)


def _edges(keys: pa.Table) -> list[int]:
    """Where rows begin that differ from the one before. (Arrow's group_by has its groups in no
    order when there are many.)"""
    changed = pa.repeat(False, max(0, len(keys) - 1))
    for column in keys.columns:
        codes = column.combine_chunks().dictionary_encode("encode").indices
        changed = pc.or_(changed, pc.not_equal(codes.slice(1), codes.slice(0, len(changed))))
    inner: list[int] = pc.add(pc.indices_nonzero(changed), 1).to_pylist()
    return [0, *inner] if len(keys) else []


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.isoformat(" ")  # as Delta has it
    return value.isoformat() if isinstance(value, date) else str(value)


def _folders(partition: Mapping[str, str | None]) -> str:
    return "".join(
        f"{column}={NULL_FOLDER if value is None else quote(folder_value(column, value), safe='')}/"
        for column, value in partition.items()
    )


def folder_value(column: str, value: str) -> str:
    """What a folder's name says of a partition: the value, or what stands for one that cannot be
    there."""
    short = len(f"{column}={quote(value, safe='')}") <= NAME_BYTES_MAX
    if short and value != NULL_FOLDER:
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
    folder: Folder,
    file: DataFile,
    schema: pa.Schema,
    where: pc.Expression | None = None,
    offsets: range | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file with all columns of the table, in the file's order; parts of it without
    any of some `offsets` are left out."""
    with _open(folder, file.path) as source:
        found = pq.ParquetFile(source)
        held = [name for name in found.schema_arrow.names if name in schema.names]
        groups = _groups(found.metadata, offsets)
        size = _rows_at_once(found.metadata)
        for batch in found.iter_batches(batch_size=size, row_groups=groups, columns=held):
            rows = conform(pa.Table.from_batches([batch]), schema, file.partition)
            if where is not None:
                rows = rows.filter(where)
            yield from rows.to_batches()


def _rows_at_once(metadata: Any) -> int:
    size = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    fitting: int = READ_BYTES * metadata.num_rows // max(size, 1)
    return max(1, min(READ_ROWS, fitting))


def _groups(metadata: Any, offsets: range | None) -> list[int]:
    """The parts of a file that can have some of these offsets."""
    numbers = list(range(metadata.num_row_groups))
    names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    if offsets is None or "offset" not in names:
        return numbers
    at = names.index("offset")
    bounds = [metadata.row_group(number).column(at).statistics for number in numbers]
    return [
        number
        for number, found in zip(numbers, bounds, strict=True)
        if found is None
        or not found.has_min_max
        or (found.min < offsets.stop and found.max >= offsets.start)
    ]


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
    schema, folder, layout = table.schema(), table.folder, table.layout
    assert schema is not None
    return [
        Joined(_join(folder, layout, schema, old, f"{name}-{number:05}"), old)
        for number, old in enumerate(_small(files, target_bytes))
    ]


def _join(
    folder: Folder, layout: Layout, schema: pa.Schema, old: Sequence[DataFile], name: str
) -> DataFile:
    """One file with the rows of some, which are of one partition. Holds a part of them at once."""
    partition = old[0].partition  # whoever maintains a table need not know how it is partitioned
    low, high = _span(old)
    with _open(folder, old[0].path) as source:
        left_out = partition.keys() - set(pq.read_schema(source).names)
    kept = pa.schema([field for field in schema if field.name not in left_out])
    rows = 0

    def parts() -> Iterator[pa.Table]:
        nonlocal rows
        batches = (batch for file in old for batch in read_file(folder, file, schema))
        for group in in_groups(batches, GROUP_BYTES):
            table = pa.Table.from_batches(group, schema).select(kept.names)
            rows += table.num_rows
            yield table

    path = _path(layout, partition, low, high, name)
    size = write_tables(folder, path, parts(), kept, _odd_times(folder, old, schema))
    return DataFile(path, size, rows, partition, low, high)


def _span(files: Sequence[DataFile]) -> tuple[dict[str, int], dict[str, int]]:
    if not all("offset" in file.low and "offset" in file.high for file in files):
        return {}, {}
    low, high = (file.low["offset"] for file in files), (file.high["offset"] for file in files)
    return {"offset": min(low)}, {"offset": max(high)}


def _odd_times(folder: Folder, files: Sequence[DataFile], schema: pa.Schema) -> set[str]:
    """See write_tables."""
    times = pa.schema([schema.field(name) for name in _times(schema)])
    odd: set[str] = set()
    for file in files if len(times) else ():
        for batch in read_file(folder, file, times):
            odd |= {name for name in times.names if not _has_dates(batch[name])}
    return odd


def in_groups(parts: Iterable[Sized], size: int) -> Iterator[list[Sized]]:
    """Tables or batches that together have so many bytes."""
    waiting: list[Sized] = []
    held = 0
    for part in parts:
        if not part.num_rows:
            continue
        waiting.append(part)
        held += part.nbytes
        if held >= size:
            yield waiting
            waiting, held = [], 0
    if waiting:
        yield waiting


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
