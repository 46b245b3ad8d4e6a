"""Documents on their way to disk, and what waits until they are there.

Commits keep the order of their commands, so that one count says it all: whatever was saved before
a moment is durable once as many saves as had been begun by then have come back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from headwater.engine.engine import Engine

Waiter = Callable[[Exception | None], None]


class Documents:
    """Saves documents through the engine and tells when they are durable."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._begun = 0
        self._durable = 0
        self._failure: Exception | None = None
        self._waiting: deque[tuple[int, Waiter]] = deque()

    def read(self, collection: str, name: str) -> bytes | None:
        return self._engine.shard.document(collection, name)

    def read_all(self, collection: str) -> Iterator[tuple[str, bytes]]:
        return self._engine.shard.documents(collection)

    def save(self, collection: str, name: str, value: bytes | None) -> None:
        """Store a document, or drop it when None."""
        self._begun += 1
        self._engine.save_document(collection, name, value).deliver(self._saved)

    def after(self, waiter: Waiter) -> None:
        """Call when everything saved so far is durable: at once, if it is already.

        The waiter gets the error if something could not be saved. The engine has stopped then.
        """
        if self._durable == self._begun:
            waiter(self._failure)
        else:
            self._waiting.append((self._begun, waiter))

    def _saved(self, outcome: Exception | None) -> None:
        self._durable += 1
        if outcome is not None:
            self._failure = outcome
        while self._waiting and self._waiting[0][0] <= self._durable:
            self._waiting.popleft()[1](self._failure)
