"""One process at a time runs a pipeline from a checkpoint.

Two would not write anything twice, but get in each other's way until Spark ends one of them with
a message about its own files. Only processes of one machine are told apart.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

LOCK = "lock.pid"
"""No sink is called so: the names of those are words."""


class AlreadyRunning(Exception):
    """Another process runs the pipeline. The message goes on after its name."""


@contextmanager
def hold(checkpoint: str) -> Iterator[None]:
    """Raises AlreadyRunning, and OSError when the folder cannot be written."""
    if "://" in checkpoint:
        yield  # there are no locks elsewhere
        return
    os.makedirs(checkpoint, exist_ok=True)
    with open(os.path.join(checkpoint, LOCK), "a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise AlreadyRunning(
                f"runs already, in process {lock.read() or 'unknown'}: stop that first, or give "
                "this one another name"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
