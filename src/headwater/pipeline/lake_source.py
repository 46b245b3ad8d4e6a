"""Lake tables as a data source of Spark: a sink that commits a batch once, and a reader.

Executors write Parquet files, which do not count yet; the driver commits those of a batch, all or
none. A batch that Spark repeats after a crash is found in the table, and skipped; what its tasks
wrote again counts for nothing and is cleaned later.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headwater.client import Client, Refused, StreamNotFound, StreamSummary
from headwater.client.records import read_batches
from headwater.lake import archive, archiving
from headwater.lake.columns import KINDS, Column, kinds_of, known_columns, settle
from headwater.lake.files import in_groups, read_file, write_file, write_files
from headwater.lake.locations import Folder
from headwater.lake.ranges import Range, add_ranges, read_ranges
from headwater.lake.tables import (
    COMMIT_TRIES,
    DataFile,
    LakeError,
    LakeTable,
    Layout,
    Mark,
    TableRef,
    open_table,
    reach_table,
)
from headwater.lake.types import plain_schema, plain_type
from headwater.pipeline.batches import read_batch
from headwater.spark import workers
from headwater.spark.writer import BATCH_ID, QUERY_ID, MissingIds

log = logging.getLogger("headwater.pipeline")

FORMAT = "headwater_lake"
FLUSH_BYTES = 64 * 1024 * 1024
"""A task writes what it has when it holds so much: its memory does not grow with the batch."""
PARTITION_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What is written where. Plain values: it travels to executors."""

    table: TableRef
    archive: bool
    json: bool
    trim: bool
    overwrite: bool
    endpoint: str
    token: str | None
    encryption_key: str | None
    ca_file: str | None
    checkpoint: str

    def client(self) -> Client:
        return Client(
            self.endpoint,
            token=self.token,
            encryption_key=self.encryption_key,
            ca_file=self.ca_file,
        )


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    query: str
    files: tuple[DataFile, ...]
    columns: tuple[Mapping[str, str], ...]
    """The kinds of the JSON columns of each file."""
    ranges: tuple[Range, ...]


class LakeDataSource(DataSource):
    """Tables of headwater.lake. The option `table` is an encoded TableRef."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def _ref(self) -> TableRef:
        return TableRef.decode(self.options["table"])

    def schema(self) -> StructType:
        schema = reach_table(self._ref()).schema()
        if schema is None:
            raise LakeError(f"there is no table at {self._ref().location}")
        return from_arrow_schema(schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return LakeReader(self._ref())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        given = self.options
        options = SinkOptions(
            table=self._ref(),
            archive=given.get("archive") == "true",
            json=given.get("json") == "true",
            trim=given.get("trim") == "true",
            overwrite=overwrite,
            endpoint=given.get("endpoint", ""),
            token=given.get("token") or None,
            encryption_key=given.get("encryptionKey") or None,
            ca_file=given.get("caFile") or None,
            checkpoint=given.get("checkpointLocation", ""),
        )
        wanted = archive.SCHEMA if options.archive else _arrow_schema(schema)
        _check_partitions(wanted, options.table)
        # Spark asks for a writer on the driver, anew for each batch: so it knows the columns that
        # the batch before has added, and executors need not open the table.
        table = reach_table(options.table)
        table.evolve(wanted)
        known = table.schema()
        assert known is not None
        _check_types(wanted, known)
        return LakeWriter(options, table.layout, wanted, known)


def _check_types(wanted: pa.Schema, known: pa.Schema) -> None:
    for field in wanted:
        if field.name not in known.names:
            raise LakeError(f"the table has {field.name} with other capitals; rename the column")
        has = plain_type(known.field(field.name).type)
        if not has.equals(field.type):
            raise LakeError(
                f"the table has {field.name} as {has}, and rows with {field.type} cannot go there; "
                "cast them, or use another table"
            )


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Nullable, and without Spark's own notes."""
    try:
        found = to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # PySpark 4.2 takes UTC without being told
        found = to_arrow_schema(schema)
    return plain_schema(found)


def _check_partitions(schema: pa.Schema, table: TableRef) -> None:
    if table.format != "iceberg" and set(schema.names) <= set(table.partition_by):
        raise LakeError("partition_by names all columns, and rows need one that it does not")
    for name in table.partition_by:
        if name not in schema.names:
            raise LakeError(f"partition_by names {name}; the rows have {', '.join(schema.names)}")
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind):
            raise LakeError(f"{name} is {kind}, which cannot be in the name of a partition")
        if table.format == "parquet" and set(name) & set("/="):
            raise LakeError(f"{name!r} cannot be in the name of a folder; rename the column")


# -- writing


class LakeWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches into one table."""

    def __init__(
        self, options: SinkOptions, layout: Layout, schema: pa.Schema, known: pa.Schema
    ) -> None:
        self.options = options
        self.layout = layout
        self.schema = schema
        self.known = known

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        workers.settle()
        query, batch, task = _ids()
        files: list[DataFile] = []
        columns: list[Mapping[str, str]] = []
        ranges: list[Range] = []

        def converted() -> Iterator[pa.Table]:
            for part in iterator:
                rows = pa.Table.from_batches([part])
                if self.options.archive:
                    ranges.extend(archiving.ranges_of(rows, batch))
                    yield archiving.to_rows(rows, self.known, json=self.options.json)
                else:
                    yield rows.cast(self.schema)

        for number, tables in enumerate(in_groups(converted(), FLUSH_BYTES)):
            rows = (
                archiving.join_rows(tables, self.known)
                if self.options.archive
                else pa.concat_tables(tables)
            )
            written = write_files(self.layout, rows, f"{query}-{batch}-{task}-{number}")
            files += written
            columns += [kinds_of(rows.schema, self.schema.names)] * len(written)
        return Written(query, tuple(files), tuple(columns), tuple(_joined(ranges)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = [message for message in messages if isinstance(message, Written)]
        if not written:
            return
        mark = Mark(written[0].query, batchId)
        table = open_table(self.options.table)
        # Should the machine lose its power: a commit must not be there without its files, nor
        # without Spark's note of what this batch is, or another would be taken for it.
        os.sync()
        if not table.committed(mark):
            files = self._settled(table, written)
            if files or self.options.overwrite:
                table.commit(files, mark, overwrite=self.options.overwrite)
        ranges = self._note_ranges(table, written, mark) if self.options.archive else []
        table.folder.sync()  # before Spark notes that it is done, and the server forgets its copy
        if self.options.trim:
            archived = read_ranges(table.folder, table.identity)
            with self.options.client() as client:
                trim_settled(client, ranges, batchId, archived)

    def _note_ranges(self, table: LakeTable, written: Sequence[Written], mark: Mark) -> list[Range]:
        added = read_batch(self.options.checkpoint, self.options.table.storage, mark.batch)
        if added is None:
            added = _joined([each for message in written for each in message.ranges])
        return add_ranges(table.folder, mark.query, added, table.identity)

    def _settled(self, table: LakeTable, written: Sequence[Written]) -> list[DataFile]:
        """The files, under names of columns that they and the table agree on."""
        files = [file for message in written for file in message.files]
        columns = [kinds for message in written for kinds in message.columns]
        changes = self._agree(table, columns)
        return [
            _rewrite(table, file, changed) if changed else file
            for file, changed in zip(files, changes, strict=True)
        ]

    def _agree(
        self, table: LakeTable, columns: Sequence[Mapping[str, str]]
    ) -> list[dict[str, Column | None]]:
        """How the columns of files have to change. The table has those that they add then, with
        the same kinds: another query may add some at the same moment, so it is looked at again."""
        for _ in range(COMMIT_TRIES):
            schema = table.schema()
            assert schema is not None
            known = known_columns(schema, self.schema.names)
            changes = settle(columns, known)
            wanted = dict(
                column
                for kinds, changed in zip(columns, changes, strict=True)
                for name, kind in kinds.items()
                if (column := changed.get(name, Column(name, kind))) is not None
            )
            if wanted.items() <= known.items():
                return changes
            added = [(name, KINDS[kind]) for name, kind in wanted.items()]
            table.evolve(pa.schema([*self.schema, *added]))
        raise LakeError(f"others change the columns of {table.ref.location} all the time")


def _ids() -> tuple[str, int, str]:
    """The query, the batch, and a name that no other attempt of any task has."""
    context = TaskContext.get()
    query = context and context.getLocalProperty(QUERY_ID)
    batch = context and context.getLocalProperty(BATCH_ID)
    if context is None or not query or not batch:
        raise MissingIds("Spark supplied no query id or no batch id, so rows could be added twice")
    task = f"{context.partitionId()}-{context.taskAttemptId()}-{os.urandom(4).hex()}"
    return query, int(batch), task


def _joined(ranges: Sequence[Range]) -> list[Range]:
    """One range for each stream: the tasks of a batch share it without gaps."""
    found: dict[tuple[str, str, str], Range] = {}
    for each in ranges:
        known = found.get(each.key, each)
        first, end = min(known.first, each.first), max(known.end, each.end)
        found[each.key] = replace(each, first=first, end=end)
    return list(found.values())


def _rewrite(table: LakeTable, file: DataFile, changed: Mapping[str, Column | None]) -> DataFile:
    """The same rows with other names or kinds of columns. Rare: tasks disagreed about new ones."""
    with table.folder.open_input(file.path) as source:
        rows = pq.read_table(source)
    rows = archiving.change_columns(rows, changed)
    suffix = table.layout.suffix
    path = f"{file.path.removesuffix(suffix)}-settled{suffix}"
    return replace(file, path=path, bytes=write_file(table.folder, path, rows))


def trim_settled(
    client: Client, ranges: Sequence[Range], batch: int | None, archived: Sequence[Range]
) -> int:
    """Have the server forget what is archived and will not be asked for again.

    That is all before the last batch, since Spark may still repeat that one; everything when
    `batch` is None, because the query has ended in order. `ranges` are those of the query,
    `archived` all that the table has. Returns how many streams were trimmed.
    """
    trimmed = 0
    for each in ranges:
        if batch is not None and each.batch < batch - 1:
            continue  # done already
        to = each.settled if each.batch == batch else each.end
        try:
            if _nothing_is_lost(client, each, to, archived):
                client.trim(each.bucket, each.stream, to, stream_id=each.stream_id)
                trimmed += 1
        except StreamNotFound:
            continue
    return trimmed


def _nothing_is_lost(client: Client, each: Range, to: int, archived: Sequence[Range]) -> bool:
    """Whether the server has records before `to`, and the table has all of them."""
    now = client.stream(each.bucket, each.stream)
    if now is None or now.id != each.stream_id or to <= now.first:
        return False
    covering = [one.first for one in archived if one.key == each.key and one.first < to <= one.end]
    first = min(covering, default=to)
    if first <= now.first or not _has_messages(client, now, first):
        return True
    log.warning(
        "%s/%s is not trimmed: the table has its records from %d on, and not those from %d",
        each.bucket,
        each.stream,
        first,
        now.first,
    )
    return False


def _has_messages(client: Client, stream: StreamSummary, end: int) -> bool:
    """Whether there is anything before `end` that an archive takes: it has no commands."""
    batches = read_batches(
        client,
        stream.bucket,
        stream.name,
        first=stream.first,
        end=end,
        stream_id=stream.id,
    )
    try:
        return next(batches, None) is not None
    except Refused:
        return True  # what cannot be read is not known to be a command
    finally:
        client.close()  # the rest of the answer is not wanted


# -- reading


class LakeReader(DataSourceReader):
    """Reads a table as it is when the query is planned."""

    def __init__(self, ref: TableRef) -> None:
        self.ref = ref

    def partitions(self) -> Sequence[InputPartition]:
        table = open_table(self.ref)
        schema = table.schema()
        assert schema is not None
        folder = table.folder
        return [
            InputPartition((folder.location, folder.storage, schema, group))
            for group in _packed(table.files())
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is None:
            return  # Spark asks for one partition of a table that has none
        location, storage, schema, files = partition.value
        folder = Folder(location, storage)
        for file in files:
            yield from read_file(folder, file, schema)


def _packed(files: Sequence[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    group: list[DataFile] = []
    for file in files:
        if group and sum(each.bytes for each in group) + file.bytes > PARTITION_BYTES:
            yield tuple(group)
            group = []
        group.append(file)
    if group:
        yield tuple(group)
