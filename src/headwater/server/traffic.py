"""Counts of what came in and went out. Plain numbers; the metrics page reads them."""

from __future__ import annotations

from collections import defaultdict

from headwater.server.logs import AccessLog
from headwater.wire.http import Request


class Traffic:
    """Told of every complete response by the HTTP servers: `note` is their `on_response`."""

    def __init__(self, access_log: AccessLog | None = None) -> None:
        self.responses: dict[tuple[str, int], int] = defaultdict(int)
        """By method and hundreds of the status. Methods are those the parser knows: bounded."""
        self.response_bytes_total = 0
        self.connections_refused_total = 0
        self._access_log = access_log

    def note(self, request: Request, status: int, body_bytes: int) -> None:
        self.responses[request.method, status // 100] += 1
        self.response_bytes_total += body_bytes
        if self._access_log is not None:
            self._access_log.note(request, status, body_bytes)
