"""Waking live readers, a few per turn of the loop.

A stream may have thousands of followers, and telling each of them costs a system call. Told all at
once they would hold up every commit; told in slices, the next commit is read, written and synced
meanwhile, and those not yet told get both in one event.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.engine.streams import Stream

log = logging.getLogger("headwater.followers")

SLICE = 16
"""Followers told between two looks at the sockets: about 0.1 ms."""


class Wakes:
    """Streams whose followers have something to hear, one stream at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[Stream, None] = {}
        self._stream: Stream | None = None
        self._left: list[Any] = []
        self._shared: dict[Any, Any] = {}
        self._scheduled = False

    def add(self, stream: Stream) -> None:
        """Tell the followers of a stream. One whose turn it is gets another turn afterwards."""
        self._waiting[stream] = None
        if stream is self._stream:
            self._shared = {}  # rendered for a tail that has moved
        if not self._scheduled:
            self._step()

    def _step(self) -> None:
        for _ in range(SLICE):
            if not self._left and not self._next():
                return
            follower, stream = self._left.pop(), self._stream
            assert stream is not None
            if stream.followers is None or follower not in stream.followers:
                continue
            try:
                follower(stream, self._shared)
            except Exception:
                log.exception("a follower failed; the others go on")
        self._scheduled = True
        self._loop.call_soon(self._again)

    def _again(self) -> None:
        self._scheduled = False
        self._step()

    def _next(self) -> bool:
        self._stream = None
        while self._waiting:
            stream = next(iter(self._waiting))
            del self._waiting[stream]
            if stream.followers:
                self._stream, self._left, self._shared = stream, list(stream.followers), {}
                return True
        return False
