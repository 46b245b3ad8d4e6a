"""Parquet in plain folders, with a log of commits of our own beside the data.

    bucket=b/stream=s/day=2026-01-31/{name}.parquet     what counts
    …/_{name}.parquet.staged                            written, but not committed
    …/_{name}.parquet.old                               joined with others; kept for who reads it
    _headwater/schema.arrow                             the columns
    _headwater/commits/{query}/{batch}.json             what a batch adds and removes
    _headwater/versions/{digest}.json                   the files of a version somebody reads
    _headwater/leases/…                                 who works on it: see leases.py

The commit is the file in `commits`, written in one step. Then the staged files get their names and
the removed ones go, which a crash may interrupt and whoever commits next finishes; until then our
own readers leave out what does not count. So a reader that knows nothing of this log never sees a
file that was not committed, nor one twice: whether it takes names that end in `.parquet`, or all
that do not begin with an underscore.

An object store has to replace an object in one step and list what is there: all do. It need not
rename: a copy under the final name is whole or not there, and making it again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

from headwater.lake.files import (
    HIDDEN,
    NULL_FOLDER,
    RETIRED,
    folder_value,
    join_files,
    retired,
)
from headwater.lake.leases import LEASE_S, lease
from headwater.lake.locations import LISTED_PREFIX, Folder
from headwater.lake.tables import (
    COMMIT_TRIES,
    ORPHAN_S,
    DataFile,
    LakeError,
    Layout,
    Mark,
    TableRef,
    check_partitions,
    matches,
    missing_from,
)

STAGED = ".staged"
MARKS_KEPT = 100
"""Commits that are remembered, for each query. Spark repeats no batch but the last."""

_SCHEMA = f"{LISTED_PREFIX}/schema.arrow"
_PARTITIONS = b"headwater.partition_by"
_COMMITS = f"{LISTED_PREFIX}/commits"
_VERSIONS = f"{LISTED_PREFIX}/versions"
_MAINTENANCE = "maintenance"
"""The query that compactions are recorded under, and overwrites: one after the other."""
_OFFSETS = re.compile(r"(?:^|/)([0-9]{20})-([0-9]{20})-[^/]*$")


class ParquetLake:
    """See LakeTable."""

    def __init__(self, ref: TableRef) -> None:
        self.ref = ref
        self._folder = Folder(ref.location, ref.storage)

    def check(self) -> None:
        self.folder.check()

    @property
    def folder(self) -> Folder:
        return self._folder

    @property
    def layout(self) -> Layout:
        ref, location = self.ref, self.folder.location
        return Layout(
            location,
            ref.storage,
            ref.partition_by,
            prefix=HIDDEN,
            suffix=f".parquet{STAGED}",
            named_folders=True,
        )

    @property
    def identity(self) -> str:
        return "parquet"  # whoever drops it removes its folder

    def schema(self) -> pa.Schema | None:
        known = self._stored_schema()
        return None if known is None else known.remove_metadata()

    def _stored_schema(self) -> pa.Schema | None:
        """With the partitions, unless an older version has made the table."""
        data = self.folder.read(_SCHEMA)
        return None if data is None else pa.ipc.read_schema(pa.py_buffer(data))

    def evolve(self, schema: pa.Schema) -> None:
        if self._evolved(schema) is None:
            return
        with lease(self.folder, "schema", wait_s=2 * LEASE_S):  # to change it takes two steps
            evolved = self._evolved(schema)
            if evolved is not None:
                self.folder.write(_SCHEMA, evolved.serialize().to_pybytes())

    def _evolved(self, schema: pa.Schema) -> pa.Schema | None:
        """The table's with more columns; None if it has them all."""
        known = self._stored_schema()
        if known is None:
            return schema.with_metadata({_PARTITIONS: json.dumps(self.ref.partition_by)})
        partitions = (known.metadata or {}).get(_PARTITIONS)
        if partitions is not None:
            check_partitions(self.ref, json.loads(partitions))
        missing = missing_from(known, schema)
        return pa.schema([*known, *missing], known.metadata) if missing else None

    # -- commits

    def _commits(self, folder: str = _COMMITS) -> list[str]:
        """A crash may have left others there, that were not written to their end."""
        return [file.path for file in self.folder.walk(folder) if file.path.endswith(".json")]

    def _marks(self, query: str) -> dict[int, str]:
        paths = self._commits(f"{_COMMITS}/{quote(query, safe='')}")
        return {int(path.rpartition("/")[2].removesuffix(".json")): path for path in paths}

    def committed(self, mark: Mark) -> bool:
        return self._finish_last(mark.query) >= mark.batch

    def _finish_last(self, query: str) -> int:
        """Its last batch, which is done then; -1 if there is none. Those before always are."""
        marks = self._marks(query)
        if not marks:
            return -1
        self._finish(marks[max(marks)])
        return max(marks)

    def commit(self, files: Sequence[DataFile], mark: Mark, *, overwrite: bool = False) -> None:
        if self.committed(mark):
            return
        if overwrite:  # to do that again changes nothing, so the mark can follow
            self._overwrite(files, mark)
            files = ()
        else:
            self._finish_last(_MAINTENANCE)  # else others see rows twice that a crash left so
        self._record(files, [], mark)  # unless another driver was first with this batch
        self._finish(_commit_path(mark))
        self._forget_old(mark.query)

    def _overwrite(self, files: Sequence[DataFile], mark: Mark) -> None:
        """In one line with the upkeep: what that joins meanwhile would be left beside the new."""
        for _ in range(COMMIT_TRIES):
            following = Mark(_MAINTENANCE, self._finish_last(_MAINTENANCE) + 1)
            if self.committed(mark):
                return
            old = [file.path for file in self.files()]
            if self._record(files, old, following):
                self._finish(_commit_path(following))
                self._forget_old(_MAINTENANCE)
                return
        raise LakeError(f"files of the table {self.folder.location} are exchanged all the time")

    def _forget_old(self, query: str) -> None:
        marks = self._marks(query)
        for batch in sorted(marks)[:-MARKS_KEPT]:
            self.folder.delete(marks[batch])

    def _record(
        self, files: Sequence[DataFile], old: Sequence[str], mark: Mark, *, keep: bool = False
    ) -> bool:
        """False if there is such a commit already."""
        entry = {"add": [file.path for file in files], "remove": list(old), "keep": keep}
        return self.folder.create(_commit_path(mark), json.dumps(entry).encode())

    def _finish(self, path: str) -> None:
        """Do what a commit says. Twice is as good as once."""
        entry = self._pending(path)
        if entry is None:
            return
        try:
            for staged in entry["add"]:
                self.folder.move(staged, _final(staged))
        except OSError:
            # Somebody else may have finished it just now, and joined the files already.
            if self._pending(path) is None:
                return
            raise
        for old in entry["remove"]:
            if entry.get("keep"):
                self._retire(old)
            else:
                self.folder.delete(old)
        self.folder.write(path, json.dumps({**entry, "done": True}).encode())

    def _retire(self, path: str) -> None:
        """No longer data to others, and still there for who has planned to read it."""
        if self.folder.exists(path):
            self.folder.touch(path)  # how long it is kept counts from now
            self.folder.move(path, retired(path))

    def _pending(self, path: str) -> dict[str, Any] | None:
        """What a commit says, if that is not done yet."""
        entry = self._read(path)
        return None if entry is None or entry.get("done") else entry

    def _read(self, path: str) -> dict[str, Any] | None:
        data = self.folder.read(path)
        entry: dict[str, Any] | None = None if data is None else json.loads(data)
        return entry

    # -- files

    def files(self, where: Mapping[str, str] | None = None) -> list[DataFile]:
        found = [_describe(path, size) for path, size in self._listed().items()]
        named = {name: folder_value(name, value) for name, value in (where or {}).items()}
        return [file for file in found if matches(file, where) or matches(file, named)]

    def _listed(self) -> dict[str, int]:
        """Paths and sizes."""
        if self.ref.version is not None:
            pinned = self.folder.read(_version(self.ref.version))
            if pinned is None:
                raise LakeError(f"no such version of the table. version={self.ref.version}")
            listed: dict[str, int] = json.loads(pinned)
            return listed
        for _ in range(COMMIT_TRIES):
            done = self._done()
            found = self._walk()
            # Others go on while we look: of what they do meanwhile we may have seen a part.
            entries = [self._read(path) for path in self._commits() if path not in done]
            uncounted = _uncounted([entry for entry in entries if entry is not None], found)
            if uncounted is not None:
                return {path: size for path, size in found.items() if path not in uncounted}
        raise LakeError(f"files of the table {self.folder.location} are exchanged all the time")

    def _walk(self) -> dict[str, int]:
        files = (file for file in self.folder.walk() if file.path.endswith(".parquet"))
        ours = f"{LISTED_PREFIX}/"
        return {file.path: file.bytes for file in files if not file.path.startswith(ours)}

    def _done(self) -> set[str]:
        """The commits that say nothing any more about which files count. Of a query, all are but
        perhaps the last."""
        commits = self._commits()
        last: dict[str, str] = {}
        for path in commits:
            query = path.rpartition("/")[0]
            last[query] = max(last.get(query, ""), path)
        pending = {path for path in last.values() if self._pending(path) is not None}
        return set(commits) - pending

    def current_version(self) -> str:
        listed = json.dumps(self._listed(), sort_keys=True).encode()
        version = hashlib.sha256(listed).hexdigest()[:32]
        self.folder.write(_version(version), listed)
        return version

    # -- maintenance

    def compact(self, target_bytes: int, name: str) -> int:
        """Readers that know nothing of the log may see rows twice while files are exchanged."""
        earlier = self._marks(_MAINTENANCE)
        for path in earlier.values():
            self._finish(path)  # else what a crash left there twice would be joined
        joined = join_files(self, self._settled(), target_bytes, name)
        following = max(earlier, default=-1) + 1
        done = 0
        for new, old in joined:
            paths = [file.path for file in old]
            if not all(self.folder.exists(path) for path in paths):
                continue  # somebody has overwritten the table meanwhile
            mark = Mark(_MAINTENANCE, following)
            if not self._record([new], paths, mark, keep=True):
                break  # the same, or somebody joins files who takes us for dead
            self._finish(_commit_path(mark))
            following += 1
            done += len(paths)
        self._forget_old(_MAINTENANCE)
        return done

    def _settled(self) -> list[DataFile]:
        """All but the files of commits that are not done: those are their writers' to finish."""
        files = self.files()  # before the commits: what one of them adds later is not here
        found = [self._pending(path) for path in self._commits()]
        pending = [entry for entry in found if entry is not None]
        busy = {_final(path) for entry in pending for path in entry["add"]}
        busy |= {path for entry in pending for path in entry["remove"]}
        return [file for file in files if file.path not in busy]

    def clean(self, older_than_s: int, now_s: float) -> int:
        for path in self._commits():
            self._finish(path)
        orphan_s = max(older_than_s, ORPHAN_S)
        left = [
            file.path
            for file in self.folder.walk()
            if (file.path.endswith(STAGED) and file.written_s <= now_s - orphan_s)
            or (_is_old(file.path) and file.written_s <= now_s - older_than_s)
        ]
        for path in left:
            self.folder.delete(path)
        return len(left)


def _uncounted(entries: Iterable[Mapping[str, Any]], found: Mapping[str, int]) -> set[str] | None:
    """Of the files found, those that do not count by commits that are half done: what they add does
    not before all of it is there, and what they remove does until then. None if neither is there,
    because a commit went on meanwhile."""
    uncounted: set[str] = set()
    for entry in entries:
        added, removed = {_final(path) for path in entry["add"]}, set(entry["remove"])
        if added <= found.keys():
            uncounted |= removed
        elif removed <= found.keys():
            uncounted |= added
        else:
            return None
    return uncounted


def _commit_path(mark: Mark) -> str:
    return f"{_COMMITS}/{quote(mark.query, safe='')}/{mark.batch:020}.json"


def _final(staged: str) -> str:
    folder, slash, name = staged.rpartition("/")
    return f"{folder}{slash}{name.removeprefix(HIDDEN).removesuffix(STAGED)}"


def _version(version: str) -> str:
    return f"{_VERSIONS}/{version}.json"


def _is_old(path: str) -> bool:
    return path.endswith(f".parquet{RETIRED}") or path.startswith(f"{_VERSIONS}/")


def _describe(path: str, size: int) -> DataFile:
    """A file by its name: the folders are the partition, the name begins with the offsets."""
    folders = [part.partition("=") for part in path.split("/")[:-1] if "=" in part]
    partition = {name: None if raw == NULL_FOLDER else unquote(raw) for name, _, raw in folders}
    offsets = _OFFSETS.search(path)
    if offsets is None:
        return DataFile(path, size, 0, partition)
    low, high = ({"offset": int(offsets[number])} for number in (1, 2))
    return DataFile(path, size, 0, partition, low, high)
