"""Opening what the settings name as the place for data, and saying plainly why that failed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from headwater.core.errors import Corruption
from headwater.server.listening import StartFailed
from headwater.server.settings import Settings
from headwater.storage.memory import MemoryStore
from headwater.storage.store import SHARD_FOLDER, Store


def open_store(settings: Settings) -> Store:
    """The store in memory, or the one in the data folder, which is made if need be."""
    if settings.memory:
        return MemoryStore()
    from headwater.storage.rocks import RocksStore  # its library is large, and not always wanted

    folder = Path(settings.data_dir).expanduser() / SHARD_FOLDER
    try:
        return RocksStore(folder, cache_bytes=settings.cache_bytes)
    except OSError as error:
        reason = f"cannot use the data folder {settings.data_dir}: {(error.strerror or '').lower()}"
        raise StartFailed(reason) from error
    except Exception as error:  # rocksdict raises nothing more telling
        is_damaged = isinstance(error, Corruption) or str(error).startswith("Corruption")
        hint = " (see headwater recover)" if is_damaged else ""
        raise StartFailed(_explain(settings.data_dir, str(error)) + hint) from error


def _explain(data_dir: str, message: str) -> str:
    # RocksDB's own LOCK: held by another process, or by this one.
    if "lock file" in message or "lock hold by current process" in message:
        return f"the data folder {data_dir} is in use by another server"
    if "Permission denied" in message:
        return f"cannot use the data folder {data_dir}: permission denied"
    return f"cannot open the data folder {data_dir}: {message}"


def free_bytes_of(settings: Settings) -> Callable[[], int] | None:
    """How to look at the free space of the disk; None when there is no disk."""
    if settings.memory:
        return None
    folder = Path(settings.data_dir).expanduser()
    return lambda: shutil.disk_usage(folder).free
