"""Pages about the server itself: /health, whether it lives; /ready, whether to send it traffic."""

from __future__ import annotations

import msgspec

from headwater.dialects.common import ERROR_HEADERS
from headwater.engine.engine import Engine
from headwater.version import VERSION
from headwater.wire.http import Response

_encode = msgspec.json.Encoder().encode

DISK_LOW = "disk space is low: writes are refused, reads go on"


class Probes:
    """`draining` is set when the server begins to stop."""

    def __init__(self, engine: Engine) -> None:
        self.draining = False
        self._engine = engine

    def health(self) -> Response:
        """200 as long as the process answers at all."""
        return _page(200, {"status": "ok", "version": VERSION})

    def ready(self) -> Response:
        """200, or 503 and why. A server short of disk still serves reads, so it stays ready."""
        if not self._engine.ready:
            reason = "storage failed: the server is about to exit"
            return _page(503, {"status": "failed", "reason": reason})
        if self.draining:
            return _page(503, {"status": "draining", "reason": "the server is shutting down"})
        if self._engine.sweeper.disk_low:
            return _page(200, {"status": "ready", "warning": DISK_LOW})
        return _page(200, {"status": "ready"})


def _page(status: int, content: dict[str, str]) -> Response:
    return Response(status, (), _encode(content), base=ERROR_HEADERS)
