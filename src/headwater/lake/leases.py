"""One at a time: work on a table that must not be done by two at once.

    _headwater/leases/{work}/{owner}

Whoever wants to do it puts a file there, and then looks for others. Two that come at the same
moment see each other, and neither goes on: safe with any store that lists all that is there. The
file is written anew while the work lasts. One that is older than LEASE_S is of a process that is
gone, and does not count.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from headwater.lake.errors import LakeError
from headwater.lake.locations import LISTED_PREFIX, Folder

LEASE_S = 120
RENEW_S = 20
PAUSE_MS = 500
"""Between two tries, at most. By chance: two that wait must not go on meeting each other."""

_FOLDER = f"{LISTED_PREFIX}/leases"


@contextmanager
def lease(folder: Folder, work: str, *, wait_s: float = 0) -> Iterator[None]:
    """Raises LakeError if others do this work, and have not ended after a while."""
    path = f"{_FOLDER}/{work}/{secrets.token_hex(8)}"
    give_up_s = time.monotonic() + wait_s
    while (other := _take(folder, path)) is not None:
        if time.monotonic() >= give_up_s:
            raise LakeError(
                f"somebody else does this to the table {folder.location} at the same time; run it "
                f"again later. If a process was killed, {other} counts for {LEASE_S} seconds"
            )
        time.sleep(secrets.randbelow(PAUSE_MS) / 1000)
    ended = threading.Event()
    renewing = threading.Thread(target=_renew, args=(folder, path, ended), daemon=True)
    renewing.start()
    try:
        yield
    finally:
        ended.set()
        renewing.join()
        folder.delete(path)


def _take(folder: Folder, path: str) -> str | None:
    """The file of somebody else, if there is one; then ours is not."""
    folder.write(path, b"")
    found = {file.path: file.written_s for file in folder.walk(path.rpartition("/")[0])}
    now_s = found.pop(path)  # by the clock that dates them all
    for other, written_s in found.items():
        if other.endswith(".tmp"):
            continue  # about to be a file, whose owner will see ours
        if now_s - written_s <= LEASE_S:
            folder.delete(path)
            return other
        folder.delete(other)
    return None


def _renew(folder: Folder, path: str, ended: threading.Event) -> None:
    while not ended.wait(RENEW_S):
        with suppress(OSError):
            folder.write(path, b"")
