"""Damage of the log that would keep RocksDB busy for ever."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headwater.core.errors import Corruption
from headwater.storage.log_damage import BLOCK_BYTES, HEADER_BYTES, TYPE_AT, find_reused
from headwater.storage.rocks import RocksStore

WRITES = 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As a crash leaves it: everything is in the log, the first write in several parts."""
    store = RocksStore(tmp_path / "running")
    for number in range(WRITES):
        batch = store.batch()
        batch.put(b"%d" % number, b"x" * (3 * BLOCK_BYTES if number == 0 else 50))
        store.write(batch)
    store.sync()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "running", copy, ignore=shutil.ignore_patterns("LOCK"))
    store.close()
    return copy


def log_of(folder: Path) -> Path:
    (log,) = folder.glob("*.log")
    return log


def records_of(data: bytes) -> list[int]:
    """Where records begin."""
    found = []
    at = 0
    while at + HEADER_BYTES <= len(data):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < HEADER_BYTES:
            at += left
            continue
        found.append(at)
        at += HEADER_BYTES + int.from_bytes(data[at + 4 : at + 6], "little")
    return found


def keys_of(store: RocksStore) -> list[bytes]:
    return [key for key, _ in store.scan(b"", b"\xff")]


def test_a_log_that_is_whole_is_let_through(folder: Path) -> None:
    data = log_of(folder).read_bytes()
    assert len(records_of(data)) > WRITES
    assert list(find_reused(log_of(folder))) == []
    store = RocksStore(folder)
    assert len(keys_of(store)) == WRITES
    store.close()


@pytest.mark.parametrize("kind", [5, 6, 7, 8, 11])
@pytest.mark.parametrize("index", [0, 2, -1], ids=["first", "in parts", "last"])
def test_a_damaged_type_is_refused_and_recovered_from(folder: Path, kind: int, index: int) -> None:
    log = log_of(folder)
    data = bytearray(log.read_bytes())
    at = records_of(bytes(data))[index] + TYPE_AT
    data[at] = kind
    log.write_bytes(data)
    for read_only in (False, True):
        with pytest.raises(Corruption, match=f"file={log.name} byte={at}$"):
            RocksStore(folder, read_only=read_only)
    store = RocksStore(folder, drop_damaged_tail=True)
    kept = WRITES - 1 if index == -1 else 0
    assert keys_of(store) == [b"%d" % number for number in range(kept)]
    store.close()


def test_it_is_found_behind_other_damage(folder: Path) -> None:
    """Where a length leads nowhere, the reader goes on with the next block."""
    log = log_of(folder)
    data = bytearray(log.read_bytes())
    data[4:6] = b"\xff\xff"
    data[BLOCK_BYTES + TYPE_AT] = 5
    log.write_bytes(data)
    assert list(find_reused(log)) == [BLOCK_BYTES + TYPE_AT]
    store = RocksStore(folder, drop_damaged_tail=True)
    assert keys_of(store) == []
    store.close()


def test_a_damaged_manifest_is_refused(folder: Path) -> None:
    (manifest,) = folder.glob("MANIFEST-*")
    data = bytearray(manifest.read_bytes())
    data[TYPE_AT] = 5
    manifest.write_bytes(data)
    for drop in (False, True):
        with pytest.raises(Corruption, match=manifest.name):
            RocksStore(folder, drop_damaged_tail=drop)


def test_what_was_allotted_and_not_written_is_no_damage(folder: Path) -> None:
    log = log_of(folder)
    log.write_bytes(log.read_bytes() + bytes(2 * BLOCK_BYTES))
    store = RocksStore(folder)
    assert len(keys_of(store)) == WRITES
    store.close()
