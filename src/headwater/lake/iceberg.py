"""Iceberg tables through pyiceberg, in any of its catalogs. A batch is recorded in its snapshot.

A table that is given as a folder is in a catalog of its own: an SQLite file beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue, And, EqualTo
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.schema import index_name_by_id
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, LongType
from pyiceberg.utils.datetime import days_to_date
from sqlalchemy.exc import IntegrityError, OperationalError

from headwater.lake.files import join_files
from headwater.lake.locations import Folder, absolute, is_url
from headwater.lake.stores import from_iceberg, iceberg_properties
from headwater.lake.tables import (
    COMMIT_TRIES,
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
from headwater.lake.types import plain_schema

CATALOG_FILE = "iceberg.db"
"""The catalog of the tables that are given as folders, in the folder above them."""

_RACES = (CommitFailedException, TableAlreadyExistsError, ValidationException, IntegrityError)
"""Somebody else was first."""

_QUERY, _BATCH = "headwater.query", "headwater.batch"
_MARK = "headwater.mark."
"""Table properties: the last batch of each query. They outlive the snapshots."""

_LIBRARY_RETRIES = "commit.retry.num-retries"
"""pyiceberg repeats a commit that was not first. We do so ourselves, and look at the marks again:
it may be this very batch that was."""


class IcebergLake:
    """See LakeTable."""

    def __init__(self, ref: TableRef) -> None:
        self.ref = ref
        self._catalog, self._name = _locate(ref)
        self._table = self._load()

    def _load(self) -> Table | None:
        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        if not self.ref.catalog:
            _check_folder(table, self.ref.location)
        return table

    def _existing(self) -> Table:
        if self._table is None:
            self._table = self._load()
        if self._table is None:
            raise FileNotFoundError(f"there is no Iceberg table {self.ref.location}")
        self._table.refresh()
        self._table.metadata.properties[_LIBRARY_RETRIES] = "0"  # here alone, not in the catalog
        return self._table

    @property
    def folder(self) -> Folder:
        return self._folder_of(self._existing())

    def _folder_of(self, table: Table) -> Folder:
        return self._at(table.location(), table.io.properties)

    def _at(self, location: str, properties: Mapping[str, Any]) -> Folder:
        """A catalog may itself say how to get at a table, so its word comes first."""
        return Folder(location, {**self.ref.storage, **from_iceberg(properties)})

    def check(self) -> None:
        if self._table is not None:
            self.folder.check()
            return
        properties = self._catalog.properties
        warehouse = str(properties.get("warehouse", ""))
        if is_url(warehouse):
            self._at(warehouse, properties).check()

    @property
    def layout(self) -> Layout:
        folder, by = self.folder, self.ref.partition_by
        return Layout(folder.location, folder.storage, by, stores_partitions=True)

    @property
    def identity(self) -> str:
        return str(self._existing().metadata.table_uuid)

    def schema(self) -> pa.Schema | None:
        if self._table is None:
            self._table = self._load()
        return None if self._table is None else plain_schema(self._existing().schema().as_arrow())

    def evolve(self, schema: pa.Schema) -> None:
        retried(lambda: self._evolve(schema), _RACES)

    def _evolve(self, schema: pa.Schema) -> None:
        known = self.schema()
        if known is None:
            self._create(schema)
            return
        fields = self._existing().spec().fields
        if all(isinstance(field.transform, IdentityTransform) for field in fields):
            check_partitions(self.ref, [field.name for field in fields])
        missing = missing_from(known, schema)
        if missing:
            with self._existing().update_schema() as update:
                update.union_by_name(pa.schema(missing))

    def _create(self, schema: pa.Schema) -> None:
        namespace = self._name.rpartition(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        location = None if self.ref.catalog else self.ref.location
        with self._catalog.create_table_transaction(
            self._name, schema, location=location if location is None else absolute(location)
        ) as transaction:
            if self.ref.partition_by:
                with transaction.update_spec() as update:
                    for column in self.ref.partition_by:
                        update.add_identity(column)

    def committed(self, mark: Mark) -> bool:
        return _has(self._existing(), mark)

    def commit(self, files: Sequence[DataFile], mark: Mark, *, overwrite: bool = False) -> None:
        retried(lambda: self._commit(files, mark, overwrite), _RACES)

    def _commit(self, files: Sequence[DataFile], mark: Mark, overwrite: bool) -> None:
        table = self._existing()  # once: who commits this batch after that look is in conflict
        if _has(table, mark):
            return
        old = self._scan(table) if overwrite else []
        with table.transaction() as transaction:
            transaction.set_properties({_MARK + mark.query: str(mark.batch)})
            self._exchange(table, transaction, files, old, mark)

    def _exchange(
        self,
        table: Table,
        transaction: Transaction,
        new: Sequence[DataFile],
        old: Sequence[IcebergFile],
        mark: Mark,
    ) -> None:
        properties = {_QUERY: mark.query, _BATCH: str(mark.batch)}
        folder = self._folder_of(table)
        paths = [folder.url(file.path) for file in new]
        if old:
            with transaction.update_snapshot(properties).overwrite() as update:
                for gone in old:
                    update.delete_data_file(gone)
                for added in _describe(transaction, table, paths):
                    update.append_data_file(added)
        elif paths:
            transaction.add_files(paths, properties, check_duplicate_files=False)

    def _scan(self, table: Table, where: Mapping[str, str] | None = None) -> list[IcebergFile]:
        """All files, or at least those of the partitions with these values."""
        version = self.ref.version
        snapshot = None if version is None else int(version)
        if snapshot is not None and table.snapshot_by_id(snapshot) is None:
            raise LakeError(f"no such version of the table. version={version}")  # else no rows
        found = []
        for task in table.scan(_equal(table, where or {}), snapshot_id=snapshot).plan_files():
            if task.delete_files:
                raise LakeError(
                    "the table has deletes of single rows, which cannot be read here; "
                    "have the engine that made them rewrite its files"
                )
            found.append(task.file)
        return found

    def files(self, where: Mapping[str, str] | None = None) -> list[DataFile]:
        table = self._existing()  # once: each time it is asked for, it is read anew
        self._check_columns(table)
        found = [_file(table, file) for file in self._scan(table, where)]
        return [file for file in found if matches(file, where)]

    def _check_columns(self, table: Table) -> None:
        """Files are read by the names of their columns, which may be those of another time."""
        now = index_name_by_id(table.schema())
        for schema in table.schemas().values():
            then = index_name_by_id(schema)
            ids = {name: id for id, name in then.items()}
            for id, name in now.items():
                if then.get(id, name) != name or ids.get(name, id) != id:
                    raise LakeError(
                        f"the column {name} of the table {self.ref.location} was renamed, or took "
                        "the name of another, which cannot be read here; have the engine that did "
                        "so write the table anew"
                    )

    def current_version(self) -> str:
        snapshot = self._existing().current_snapshot()
        if snapshot is None:
            raise LakeError(f"the table {self.ref.location} has no rows yet")
        return str(snapshot.snapshot_id)

    def compact(self, target_bytes: int, name: str) -> int:
        joined = join_files(self, self.files(), target_bytes, name)
        if not joined:
            return 0
        new = [each.new for each in joined]
        paths = {file.path for each in joined for file in each.old}
        for _ in range(COMMIT_TRIES):
            table = self._existing()
            old = [file for file in self._scan(table) if _path(table, file) in paths]
            if len(old) < len(paths):
                break  # somebody has overwritten or joined them meanwhile
            try:
                with table.transaction() as transaction:
                    self._exchange(table, transaction, new, old, Mark("maintenance", 0))
                return len(old)
            except _RACES:
                continue
        raise changed_meanwhile(self.ref)

    def clean(self, older_than_s: int, now_s: float) -> int:
        """Snapshots that are older go, then the files that no snapshot has, of rows and of
        metadata."""
        table = self._existing()
        counted = _all_paths(table)
        oldest = datetime.fromtimestamp(now_s - older_than_s, UTC).replace(tzinfo=None)
        table.maintenance.expire_snapshots().older_than(oldest).commit()
        table.refresh()
        known = _all_paths(table) | _all_metadata(table)
        folder, removed = self.folder, 0
        for file in [*folder.walk("data"), *folder.walk("metadata")]:
            place = _place(folder.url(file.path))
            keep_s = older_than_s if place in counted else max(older_than_s, ORPHAN_S)
            if place not in known and file.written_s <= now_s - keep_s and _is_ours(file.path):
                folder.delete(file.path)
                removed += 1
        return removed


def _locate(ref: TableRef) -> tuple[Catalog, str]:
    """The catalog and the table's name in it."""
    if ref.catalog:
        if "." not in ref.location:
            raise LakeError(
                f"with a catalog, the table is namespace.name. received={ref.location!r}"
            )
        storage = {**ref.storage, **from_iceberg(ref.catalog)}
        given = {**iceberg_properties(storage), **ref.catalog}
        return load_catalog(given.pop("name", "headwater"), **given), ref.location
    location = absolute(ref.location)
    if is_url(location):
        raise LakeError("an Iceberg table in an object store needs a catalog; name one")
    parent, name = os.path.split(location)
    os.makedirs(parent, exist_ok=True)
    uri = f"sqlite:///{parent}/{CATALOG_FILE}"
    own = {"type": "sql", "uri": uri, "warehouse": parent}
    # Somebody else may make its tables at the same moment.
    catalog = retried(lambda: load_catalog("headwater", **own), (OperationalError,))
    return catalog, f"headwater.{name.replace('.', '_')}"


def _check_folder(table: Table, location: str) -> None:
    """Raises LakeError for a table of another folder, whose name is the same but for its dots."""
    asked, found = (os.path.realpath(absolute(each)) for each in (location, table.location()))
    if asked != found:
        raise LakeError(
            f"the catalog beside {asked} has the table of {found} under this name; name the folder "
            "differently"
        )


def _equal(table: Table, where: Mapping[str, str]) -> Any:
    """Of values of partition columns, as pyiceberg has it."""
    equal: Any = EqualTo  # made in a way that type checkers do not follow
    narrowed: Any = AlwaysTrue()
    for field in table.spec().fields:
        if field.name in where:
            narrowed = And(narrowed, equal(field.name, where[field.name]))
    return narrowed


def _has(table: Table, mark: Mark) -> bool:
    last = table.properties.get(_MARK + mark.query)
    return last is not None and int(last) >= mark.batch


def _all_paths(table: Table) -> set[str]:
    """Of the files of all snapshots."""
    return {_place(path) for path in table.inspect.all_files()["file_path"].to_pylist()}


def _all_metadata(table: Table) -> set[str]:
    """Of what says which files those are."""
    metadata = table.metadata
    manifests: list[str] = table.inspect.all_manifests()["path"].to_pylist()
    lists = [snapshot.manifest_list for snapshot in metadata.snapshots]
    logged = [entry.metadata_file for entry in metadata.metadata_log]
    return {_place(path) for path in (*manifests, *lists, *logged, table.metadata_location)}


def _place(path: str) -> str:
    """What all names of one file have in common: engines call a store by several schemes, such as
    s3 and s3a, and may say file:// or not."""
    return absolute(path).rpartition("://")[2]


def _is_ours(path: str) -> bool:
    """Other engines may have files of other kinds beside the metadata."""
    return path.startswith("data/") or path.endswith((".avro", ".metadata.json"))


def _path(table: Table, file: IcebergFile) -> str:
    return _place(file.file_path).removeprefix(f"{_place(table.location())}/")


def _file(table: Table, file: IcebergFile) -> DataFile:
    fields = table.specs()[file.spec_id].fields
    partition = {
        field.name: _text(field.name, file.partition[index], table)
        for index, field in enumerate(fields)
    }
    low, high = (_offset(table, bounds) for bounds in (file.lower_bounds, file.upper_bounds))
    return DataFile(
        _path(table, file), file.file_size_in_bytes, file.record_count, partition, low, high
    )


def _describe(
    transaction: Transaction, table: Table, paths: Sequence[str]
) -> Iterable[IcebergFile]:
    if not paths:
        return ()
    metadata = transaction.table_metadata
    return parquet_files_to_data_files(io=table.io, table_metadata=metadata, file_paths=iter(paths))


def _text(name: str, value: Any, table: Table) -> str | None:
    if value is None:
        return None
    column = table.schema().as_struct().field_by_name(name)  # none for one that is computed
    if column is not None and isinstance(column.field_type, DateType):
        return days_to_date(value).isoformat() if isinstance(value, int) else value.isoformat()
    return str(value)


def _offset(table: Table, bounds: Mapping[int, bytes]) -> dict[str, int]:
    try:
        field = table.schema().find_field("offset")
    except ValueError:
        return {}
    found = bounds.get(field.field_id)
    if found is None or not isinstance(field.field_type, LongType):
        return {}
    return {"offset": int(from_bytes(field.field_type, found))}
