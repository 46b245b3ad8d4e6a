"""Store on RocksDB, through rocksdict.

rocksdict holds the GIL in everything but `flush_wal` and `flush`, so writes are never `sync=True`:
a commit is `write` on the loop and `sync` in a thread (ADR 0002). A write that RocksDB would stall
is refused (`no_slowdown`) and tried again by the committer, because a stall would freeze the loop.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from headwater.core.limits import KIB, MIB
from headwater.storage.log_damage import refuse_endless, spell_out
from headwater.storage.store import Batch, StoreBusy

_MEMTABLE_BYTES = 64 * MIB
_MEMTABLES_MAX = 4
_BACKGROUND_JOBS = 2
_OPEN_FILES_MAX = 512
_BLOCK_BYTES = 16 * KIB


class RocksStore:
    """One RocksDB folder. `sync` may run in another thread than everything else."""

    durable = True

    def __init__(
        self,
        folder: Path,
        *,
        cache_bytes: int = 256 * MIB,
        read_only: bool = False,
        drop_damaged_tail: bool = False,
    ) -> None:
        """`read_only` opens what is there and writes nothing, not even what the log still has.
        `drop_damaged_tail` drops the log from the first record on that is damaged, whatever
        follows; without it, a log that is more than torn is refused."""
        self._folder = folder
        self._read_only = read_only
        if read_only:
            access = AccessType.read_only()
        else:
            access = AccessType.read_write()
            folder.mkdir(parents=True, exist_ok=True)
            for left_over in folder.parent.glob(f".{folder.name}-copy-*"):
                shutil.rmtree(left_over, ignore_errors=True)
        options = _options(cache_bytes)
        if drop_damaged_tail:
            options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
            spell_out(folder)
        refuse_endless(folder)
        self._db = Rdict(str(folder), options, access_type=access)
        self._logged = WriteOptions()
        self._logged.no_slowdown = True
        self._unlogged = WriteOptions()
        self._unlogged.no_slowdown = True
        # A property, whatever rocksdict's stubs say.
        self._unlogged.disable_wal = True  # type: ignore[method-assign,assignment]

    def batch(self) -> WriteBatch:
        return WriteBatch(raw_mode=True)

    def write(self, batch: Batch) -> None:
        self._write(batch, self._logged)

    def write_unlogged(self, batch: Batch) -> None:
        self._write(batch, self._unlogged)

    def _write(self, batch: Batch, options: WriteOptions) -> None:
        assert isinstance(batch, WriteBatch)
        try:
            self._db.write(batch, options)
        except Exception as error:
            # "Result incomplete: Write stall": rocksdict has no class of its own for it.
            if "incomplete" in str(error).lower():
                raise StoreBusy(str(error)) from error
            raise

    def sync(self) -> None:
        self._db.flush_wal(True)

    def get(self, key: bytes) -> bytes | None:
        return self._db.get(key)

    def last_before(self, key: bytes, floor: bytes) -> tuple[bytes, bytes] | None:
        cursor = self._db.iter()
        cursor.seek_for_prev(key)
        if not cursor.valid():
            cursor.status()
            return None
        found = cursor.key()
        if found < floor:
            return None
        return found, cursor.value()

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        cursor = self._db.iter(options)
        cursor.seek(start)
        while cursor.valid():
            yield cursor.key(), cursor.value()
            cursor.next()
        cursor.status()

    def compact(self) -> None:
        self._db.flush(True)
        self._db.compact_range(None, None)

    def copy(self, name: str) -> Path:
        # Without the log, so that there is little left to do while the GIL is held.
        self._db.flush(True)
        target = self._folder.with_name(f".{self._folder.name}-copy-{name}")
        Checkpoint(self._db).create_checkpoint(str(target))
        return target

    def size_bytes(self) -> int:
        return sum(entry.stat().st_size for entry in self._folder.iterdir() if entry.is_file())

    def stats(self) -> dict[str, float]:
        names = {
            "memtable_bytes": "rocksdb.cur-size-all-mem-tables",
            "sst_bytes": "rocksdb.total-sst-files-size",
            "pending_compaction_bytes": "rocksdb.estimate-pending-compaction-bytes",
            "block_cache_bytes": "rocksdb.block-cache-usage",
            "keys": "rocksdb.estimate-num-keys",
        }
        return {
            short: float(self._db.property_int_value(name) or 0) for short, name in names.items()
        }

    def close(self) -> None:
        if not self._read_only:
            self._db.flush_wal(True)
        self._db.close()


def _options(cache_bytes: int) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(Cache(cache_bytes))
    table.set_block_size(_BLOCK_BYTES)
    table.set_bloom_filter(10, False)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    # A torn last record of the log is what a power loss leaves; anything else is corruption.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_paranoid_checks(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(_MEMTABLE_BYTES)
    options.set_max_write_buffer_number(_MEMTABLES_MAX)
    options.set_max_background_jobs(_BACKGROUND_JOBS)
    options.set_max_open_files(_OPEN_FILES_MAX)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_bytes_per_sync(MIB)
    options.set_keep_log_file_num(4)
    options.set_max_total_wal_size(4 * _MEMTABLE_BYTES)
    options.set_stats_dump_period_sec(0)
    return options
