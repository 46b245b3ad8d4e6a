"""Delta tables through delta-rs. A batch is recorded as a transaction of its query."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from headwater.lake.files import folder_value
from headwater.lake.locations import Folder, is_url
from headwater.lake.stores import delta_options, own_identity
from headwater.lake.tables import (
    ORPHAN_S,
    DataFile,
    LakeError,
    Layout,
    Mark,
    TableRef,
    changed_meanwhile,
    check_partitions,
    matches,
    missing_from,
    retried,
)

_RACES = (CommitFailedError,)
"""Somebody else was first."""

_FEATURES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Of readers, that do not change which rows a file has, or under which names."""


class DeltaLake:
    """See LakeTable."""

    def __init__(self, ref: TableRef) -> None:
        self.ref = ref
        self._folder = Folder(ref.location, ref.storage)
        self._table: DeltaTable | None = None

    def check(self) -> None:
        self.folder.check()

    @property
    def folder(self) -> Folder:
        return self._folder

    @property
    def layout(self) -> Layout:
        return Layout(self.folder.location, self.ref.storage, self.ref.partition_by)

    @property
    def _options(self) -> dict[str, str]:
        location = self.folder.location
        return delta_options(location, self.ref.storage) if is_url(location) else {}

    def _open(self) -> DeltaTable | None:
        if self._table is None:
            version = None if self.ref.version is None else int(self.ref.version)
            try:
                with own_identity(self.ref.storage):
                    self._table = DeltaTable(
                        self.folder.location, version=version, storage_options=self._options
                    )
            except TableNotFoundError:
                return None
        elif self.ref.version is None:
            self._table.update_incremental()
        return self._table

    def _existing(self) -> DeltaTable:
        table = self._open()
        if table is None:
            raise FileNotFoundError(f"there is no Delta table at {self.folder.location}")
        return table

    @property
    def identity(self) -> str:
        return str(self._existing().metadata().id)

    def schema(self) -> pa.Schema | None:
        table = self._open()
        return None if table is None else pa.schema(table.schema().to_arrow())

    def evolve(self, schema: pa.Schema) -> None:
        retried(lambda: self._evolve(schema), _RACES)

    def _evolve(self, schema: pa.Schema) -> None:
        table = self._open()
        if table is None:
            with own_identity(self.ref.storage):
                DeltaTable.create(
                    self.folder.location,
                    Schema.from_arrow(schema),
                    mode="ignore",
                    partition_by=list(self.ref.partition_by),
                    storage_options=self._options,
                )
            return
        check_partitions(self.ref, table.metadata().partition_columns)
        missing = missing_from(pa.schema(table.schema().to_arrow()), schema)
        if missing:
            table.alter.add_columns(list(Schema.from_arrow(pa.schema(missing)).fields))

    def committed(self, mark: Mark) -> bool:
        return _has(self._existing(), mark)

    def commit(self, files: Sequence[DataFile], mark: Mark, *, overwrite: bool = False) -> None:
        retried(lambda: self._commit(files, mark, overwrite), _RACES)

    def _commit(self, files: Sequence[DataFile], mark: Mark, overwrite: bool) -> None:
        table = self._existing()  # once: who commits this batch after that look is in conflict
        if _has(table, mark):
            return
        table.create_write_transaction(
            [_add(file) for file in files],
            mode="overwrite" if overwrite else "append",
            schema=table.schema(),
            partition_by=list(self.ref.partition_by),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(mark.query, mark.batch)],
                custom_metadata={"headwater.query": mark.query, "headwater.batch": str(mark.batch)},
            ),
        )

    def files(self, where: Mapping[str, str] | None = None) -> list[DataFile]:
        table = self._existing()
        self._check_features(table)
        actions = pa.table(table.get_add_actions(flatten=True))
        for name, value in (where or {}).items():  # at once: there may be very many
            column = f"partition.{name}"
            if column in actions.column_names and pa.types.is_string(actions[column].type):
                actions = actions.filter(pc.field(column) == value)
        found = [_file(row) for row in actions.to_pylist()]
        return [file for file in found if matches(file, where)]

    def _check_features(self, table: DeltaTable) -> None:
        protocol = table.protocol()
        features = set(protocol.reader_features or ())
        if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            features.add("columnMapping")  # older tables have it without saying so
        if unknown := sorted(features - _FEATURES):
            raise LakeError(
                f"the table {self.ref.location} has {', '.join(unknown)}, which cannot be read "
                "here; have the engine that made it rewrite it without"
            )

    def current_version(self) -> str:
        return str(self._existing().version())

    def compact(self, target_bytes: int, name: str) -> int:
        """delta-rs puts joined files into folders that are named after their partition, so those of
        values that are too long for that are left as they are."""
        table = self._existing()
        long = {
            (column, value)
            for file in self.files()
            for column, value in file.partition.items()
            if value is not None and folder_value(column, value) != value
        }
        others = [(column, "!=", value) for column, value in sorted(long)]
        try:
            metrics = table.optimize.compact(others or None, target_size=target_bytes)
        except _RACES as error:
            raise changed_meanwhile(self.ref) from error
        return int(metrics["numFilesRemoved"])

    def clean(self, older_than_s: int, now_s: float) -> int:
        table = self._existing()
        removed = self._vacuum(max(older_than_s, ORPHAN_S), full=True)
        if older_than_s < ORPHAN_S:
            removed += self._vacuum(older_than_s, full=False)
        table.create_checkpoint()
        table.cleanup_metadata()
        return removed

    def _vacuum(self, older_than_s: int, *, full: bool) -> int:
        """What the log says was removed; with `full`, also all that the log does not know."""
        there = {file.path for file in self.folder.walk()}
        listed = self._existing().vacuum(
            retention_hours=older_than_s // 3600,
            dry_run=False,
            enforce_retention_duration=False,
            full=full,
        )
        return len(there.intersection(unquote(path) for path in listed))


def _has(table: DeltaTable, mark: Mark) -> bool:
    last = table.transaction_version(mark.query)
    return last is not None and last >= mark.batch


def _add(file: DataFile) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": dict(file.low),
        "maxValues": dict(file.high),
        "nullCount": {},
    }
    return AddAction(file.path, file.bytes, dict(file.partition), 0, True, json.dumps(stats))


def _file(row: Mapping[str, Any]) -> DataFile:
    partition = {
        name.removeprefix("partition."): None if value is None else str(value)
        for name, value in row.items()
        if name.startswith("partition.")
    }
    low, high = row.get("min.offset"), row.get("max.offset")
    return DataFile(
        path=unquote(row["path"]),  # the log has it as part of a URL
        bytes=row["size_bytes"],
        rows=row["num_records"],
        partition=partition,
        low={} if low is None else {"offset": low},
        high={} if high is None else {"offset": high},
    )
