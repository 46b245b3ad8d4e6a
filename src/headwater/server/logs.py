"""Log lines on stderr, for people or as JSON, and the access log.

A line that concerns a request carries its id and its W3C `traceparent`: pass the request as
`extra={"request": request}`. Bodies, queries, Authorization and keys are never logged.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

from headwater.wire.http import Request

ACCESS = logging.getLogger("headwater.access")

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def configure_logs(level: str, form: str, stream: TextIO, *, access_log: bool = False) -> None:
    """Send what the process logs to `stream`, and nowhere else."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Who asks for the access log wants it whatever else is muted.
    ACCESS.setLevel(logging.INFO if access_log else logging.CRITICAL)


def trace_of(request: Request) -> str:
    """The caller's trace, if it sent a well-formed one; it is also what keeps a log line whole."""
    given = request.headers.get(b"traceparent", b"")
    return given.decode() if _TRACEPARENT.fullmatch(given) else ""


class AccessLog:
    """One line per response."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s

    def note(self, request: Request, status: int, body_bytes: int) -> None:
        duration_ms = self._monotonic_s() * 1000 - request.received_ns / 1e6
        fields = {
            "method": request.method or "-",  # nothing that came could be read as a request
            "path": request.path or "-",
            "status": status,
            "bytes": body_bytes,
            "duration_ms": round(duration_ms if request.received_ns else 0.0, 3),
            "peer": request.peer,
        }
        ACCESS.info("response", extra={"request": request, "fields": fields})


class TextFormatter(logging.Formatter):
    """`time LEVEL logger: message key=value`, then the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={value}" for name, value in _facts(record).items())
        line = f"{_time(record)} {record.levelname} {record.name}: {_message(record)}{facts}"
        trace = _traceback(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        trace = _traceback(self, record)
        if trace:
            line["traceback"] = trace
        return json.dumps(line, ensure_ascii=False, default=str)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts: dict[str, Any] = dict(getattr(record, "fields", {}))
    request = getattr(record, "request", None)
    if isinstance(request, Request):
        facts["request_id"] = request.id
        trace = trace_of(request)
        if trace:
            facts["traceparent"] = trace
    return facts


def _message(record: logging.LogRecord) -> str:
    """What others put into a message must not look like a line of ours."""
    return record.getMessage().replace("\r", "\\r").replace("\n", "\\n")


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
