"""What was asked of the server since somebody last looked, by bucket. In memory only: counting an
append is one look-up and two additions. What becomes of the counts is in usage.py.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.core.access import TRAITS, Group, Operation
from headwater.core.stream_config import SYSTEM_DEFAULTS

ACCOUNT = ""
"""Stands for no bucket: operations of the account as a whole."""

APPENDS = "append-ops"
APPEND_BYTES = "append-bytes"
READS = "read-ops"
READ_BYTES = "read-bytes"
OPERATIONS = "op"

Counts = dict[str, int]
"""By what is counted and, after a slash, which kind of it: `read-ops/unary`. Stored: frozen."""


class Tally:
    """Counts since the last `take`."""

    def __init__(self, exists: Callable[[str], bool] = lambda bucket: True) -> None:
        """Only buckets that exist are counted for: names that somebody makes up are without end."""
        self._exists = exists
        self._appends: dict[str, dict[str | None, list[int]]] = {}
        """By bucket and storage class: appends, and their body bytes."""
        self._counts: dict[str, Counts] = {}

    def append(self, bucket: str, storage_class: str | None, size: int) -> None:
        try:
            found = self._appends[bucket][storage_class]
        except KeyError:
            self._appends.setdefault(bucket, {})[storage_class] = [1, size]
        else:
            found[0] += 1
            found[1] += size

    def read(self, bucket: str, size: int, *, streaming: bool = False, requests: int = 1) -> None:
        """Body bytes that were sent, and how many requests for records that was."""
        counts = self._of(bucket)
        if requests:
            kind = f"{READS}/{'streaming' if streaming else 'unary'}"
            counts[kind] = counts.get(kind, 0) + requests
        if size:
            counts[READ_BYTES] = counts.get(READ_BYTES, 0) + size

    def operation(self, operation: Operation, bucket: str | None = None) -> None:
        """Anything but what is done with records, which is counted as such."""
        group = TRAITS[operation].group
        if group is Group.STREAM:
            return
        kind = f"{OPERATIONS}/{operation.value}"
        whose = bucket if group is Group.BASIN and bucket else ACCOUNT
        if whose != ACCOUNT and not self._exists(whose):
            return
        counts = self._of(whose)
        counts[kind] = counts.get(kind, 0) + 1

    def _of(self, bucket: str) -> Counts:
        found = self._counts.get(bucket)
        if found is None:
            found = self._counts[bucket] = {}
        return found

    def buckets(self) -> list[str]:
        """Those that something was counted for."""
        return list(dict.fromkeys((*self._counts, *self._appends)))

    def take(self, bucket: str) -> Counts:
        """Everything counted for a bucket, which starts anew."""
        counts = self._counts.pop(bucket, {})
        for storage_class, (appends, size) in self._appends.pop(bucket, {}).items():
            kind = storage_class or SYSTEM_DEFAULTS.storage_class
            for name, count in ((f"{APPENDS}/{kind}", appends), (f"{APPEND_BYTES}/{kind}", size)):
                counts[name] = counts.get(name, 0) + count
        return counts
