"""Answers of which the whole head has come.

The standard library takes a head that is cut off for a shorter one. Headers that are missing then,
or end too early, would be taken for what the server says: that a stream is another one, say.
"""

from __future__ import annotations

import http.client
from typing import Any, cast


class WholeResponse(http.client.HTTPResponse):
    """Fails as one does of which nothing has come."""

    def begin(self) -> None:
        file = self.fp
        self.fp = cast(Any, _WholeLines(file))
        try:
            super().begin()
        finally:
            self.fp = file


class _WholeLines:
    """The file of a head, as far as the library reads it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.close = file.close

    def readline(self, limit: int) -> bytes:
        line: bytes = self._file.readline(limit)
        if not line.endswith(b"\n"):
            raise http.client.RemoteDisconnected("the connection ended before the answer")
        return line
