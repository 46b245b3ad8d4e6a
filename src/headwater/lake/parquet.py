"""Parquet in plain folders, with a log of commits of our own beside the data.

    bucket=b/stream=s/day=2026-01-31/{name}.parquet     what counts
    …/{name}.parquet.staged                             written, but not committed
    _headwater/schema.arrow                             the columns
    _headwater/commits/{query}/{batch}.json             what a batch adds and removes
    _headwater/versions/{digest}.json                   the files of a version somebody reads

The commit is the file in `commits`, written in one step. Then the staged files get their names and
the removed ones go, which a crash may interrupt and whoever opens the table next finishes. So a
reader that knows nothing of this log never sees a file that was not committed, nor one twice.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote

import pyarrow as pa

from headwater.lake.files import NULL_FOLDER, join_files
from headwater.lake.locations import LISTED_PREFIX, Folder
from headwater.lake.tables import DataFile, LakeError, Layout, Mark, TableRef, matches

STAGED = ".staged"
MARKS_KEPT = 100
"""Commits that are remembered, for each query. Spark repeats no batch but the last."""

_SCHEMA = f"{LISTED_PREFIX}/schema.arrow"
_COMMITS = f"{LISTED_PREFIX}/commits"
_MAINTENANCE = "maintenance"
"""The query that compactions are recorded under."""
_OFFSETS = re.compile(r"(?:^|/)([0-9]{20})-([0-9]{20})-[^/]*$")


class ParquetLake:
    """See LakeTable."""

    def __init__(self, ref: TableRef) -> None:
        self.ref = ref
        self._folder = Folder(ref.location, ref.storage)

    @property
    def folder(self) -> Folder:
        return self._folder

    @property
    def layout(self) -> Layout:
        ref, suffix = self.ref, f".parquet{STAGED}"
        location = self.folder.location
        return Layout(location, ref.storage, ref.partition_by, suffix, named_folders=True)

    def schema(self) -> pa.Schema | None:
        data = self.folder.read(_SCHEMA)
        return None if data is None else pa.ipc.read_schema(pa.py_buffer(data))

    def evolve(self, schema: pa.Schema) -> None:
        known = self.schema()
        if known is not None:
            names = {name.lower() for name in known.names}
            missing = [field for field in schema if field.name.lower() not in names]
            if not missing:
                return
            schema = pa.schema([*known, *missing])
        self.folder.write(_SCHEMA, schema.serialize().to_pybytes())

    # -- commits

    def _marks(self, query: str) -> dict[int, str]:
        folder = f"{_COMMITS}/{quote(query, safe='')}"
        paths = [file.path for file in self.folder.walk(folder) if file.path.endswith(".json")]
        return {int(path.rpartition("/")[2].removesuffix(".json")): path for path in paths}

    def committed(self, mark: Mark) -> bool:
        marks = self._marks(mark.query)
        for batch in sorted(marks)[-1:]:
            self._finish(marks[batch])
        return bool(marks) and max(marks) >= mark.batch

    def commit(self, files: Sequence[DataFile], mark: Mark, *, overwrite: bool = False) -> None:
        old = [file.path for file in self.files()] if overwrite else []
        path = self._record(files, old, mark)
        self._finish(path)
        marks = self._marks(mark.query)
        for batch in sorted(marks)[:-MARKS_KEPT]:
            self.folder.delete(marks[batch])

    def _record(self, files: Sequence[DataFile], old: Sequence[str], mark: Mark) -> str:
        path = f"{_COMMITS}/{quote(mark.query, safe='')}/{mark.batch:020}.json"
        entry = {"add": [file.path for file in files], "remove": list(old)}
        self.folder.write(path, json.dumps(entry).encode())
        return path

    def _finish(self, path: str) -> None:
        """Do what a commit says. Twice is as good as once."""
        entry = json.loads(self.folder.read(path) or b"{}")
        if entry.get("done"):
            return
        for staged in entry.get("add", ()):
            self.folder.move(staged, staged.removesuffix(STAGED))
        for old in entry.get("remove", ()):
            self.folder.delete(old)
        self.folder.write(path, json.dumps({**entry, "done": True}).encode())

    # -- files

    def files(self, where: Mapping[str, str] | None = None) -> list[DataFile]:
        found = [_describe(path, size) for path, size in self._listed().items()]
        return [file for file in found if matches(file, where)]

    def _listed(self) -> dict[str, int]:
        """Paths and sizes."""
        if self.ref.version is not None:
            pinned = self.folder.read(_version(self.ref.version))
            if pinned is None:
                raise LakeError(f"no such version of the table. version={self.ref.version}")
            listed: dict[str, int] = json.loads(pinned)
            return listed
        found = (file for file in self.folder.walk() if file.path.endswith(".parquet"))
        ours = f"{LISTED_PREFIX}/"
        return {file.path: file.bytes for file in found if not file.path.startswith(ours)}

    def current_version(self) -> str:
        listed = json.dumps(self._listed(), sort_keys=True).encode()
        version = hashlib.sha256(listed).hexdigest()[:32]
        self.folder.write(_version(version), listed)
        return version

    # -- maintenance

    def compact(self, target_bytes: int, name: str) -> int:
        """Readers that know nothing of the log may see rows twice while files are exchanged."""
        joined = join_files(self, target_bytes, name)
        following = max(self._marks(_MAINTENANCE), default=-1) + 1
        for number, (new, old) in enumerate(joined, following):
            mark = Mark(_MAINTENANCE, number)
            self._finish(self._record([new], [file.path for file in old], mark))
        return sum(len(old) for _, old in joined)

    def clean(self, older_than_s: int, now_s: float) -> int:
        for file in list(self.folder.walk(_COMMITS)):
            self._finish(file.path)
        versions = f"{LISTED_PREFIX}/versions/"
        left = [
            file.path
            for file in self.folder.walk()
            if file.written_s <= now_s - older_than_s
            and (file.path.endswith(STAGED) or file.path.startswith(versions))
        ]
        for path in left:
            self.folder.delete(path)
        return len(left)


def _version(version: str) -> str:
    return f"{LISTED_PREFIX}/versions/{version}.json"


def _describe(path: str, size: int) -> DataFile:
    """A file by its name: the folders are the partition, the name begins with the offsets."""
    folders = [part.partition("=") for part in path.split("/")[:-1] if "=" in part]
    partition = {name: None if raw == NULL_FOLDER else unquote(raw) for name, _, raw in folders}
    offsets = _OFFSETS.search(path)
    if offsets is None:
        return DataFile(path, size, 0, partition)
    low, high = ({"offset": int(offsets[number])} for number in (1, 2))
    return DataFile(path, size, 0, partition, low, high)
