"""Log lines: what they carry, and what they never do."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.server.logs import ACCESS, AccessLog, configure_logs
from headwater.wire.http import Request

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
log = logging.getLogger("headwater.test")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level, ACCESS.level)
    yield
    root.handlers[:], root.level = before[0], before[1]
    ACCESS.setLevel(before[2])


def lines(form: str = "json", level: str = "info", *, access_log: bool = True) -> io.StringIO:
    stream = io.StringIO()
    configure_logs(level, form, stream, access_log=access_log)
    return stream


def request(**headers: bytes) -> Request:
    given = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    found = Request("POST", "/v1/stream/a", "secret=1", given, body=b"secret", peer="1.2.3.4")
    found.id = "abc-1"
    found.received_ns = 1_000_000_000
    return found


def only(stream: io.StringIO) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stream.getvalue())
    return found


def test_a_json_line_holds_time_level_logger_and_message() -> None:
    stream = lines()
    log.warning("disk is %s", "low")
    found = only(stream)
    assert found["time"].endswith("Z") and "T" in found["time"]
    assert {name: found[name] for name in ("level", "logger", "message")} == {
        "level": "warning",
        "logger": "headwater.test",
        "message": "disk is low",
    }


def test_a_line_about_a_request_names_it_and_its_trace() -> None:
    stream = lines()
    log.error("it failed", extra={"request": request(traceparent=TRACE.encode())})
    found = only(stream)
    assert (found["request_id"], found["traceparent"]) == ("abc-1", TRACE)


@pytest.mark.parametrize("given", [b"", b"00-zz-01", b"x\ny", TRACE.encode() + b"-more"])
def test_a_malformed_trace_is_left_out(given: bytes) -> None:
    stream = lines()
    log.error("it failed", extra={"request": request(traceparent=given)})
    assert "traceparent" not in only(stream)


def test_an_error_brings_its_traceback() -> None:
    stream = lines()
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("it failed")
    assert "ValueError: why" in only(stream)["traceback"]


def test_a_text_line_is_one_line_whatever_the_message_holds() -> None:
    stream = lines("text")
    log.info("a\nb\r\nc")
    assert stream.getvalue().count("\n") == 1
    assert "INFO headwater.test: a\\nb\\r\\nc" in stream.getvalue()


def test_a_text_line_ends_with_the_facts() -> None:
    stream = lines("text")
    log.info("done", extra={"request": request()})
    assert stream.getvalue().endswith("headwater.test: done request_id=abc-1\n")


def test_a_text_traceback_follows_its_line() -> None:
    stream = lines("text")
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("it failed")
    assert stream.getvalue().endswith("ValueError: why\n")


def test_the_access_log_has_a_line_per_response() -> None:
    stream = lines()
    AccessLog(lambda: 1.25).note(request(traceparent=TRACE.encode()), 204, 17)
    found = only(stream)
    del found["time"]
    assert found == {
        "level": "info",
        "logger": "headwater.access",
        "message": "response",
        "method": "POST",
        "path": "/v1/stream/a",
        "status": 204,
        "bytes": 17,
        "duration_ms": 250.0,
        "peer": "1.2.3.4",
        "request_id": "abc-1",
        "traceparent": TRACE,
    }


def test_what_could_not_be_read_as_a_request_is_logged_too() -> None:
    stream = lines()
    AccessLog(lambda: 1.25).note(Request("", "", "", {}), 400, 17)
    found = only(stream)
    assert (found["method"], found["path"], found["duration_ms"]) == ("-", "-", 0.0)


def test_secrets_are_never_logged() -> None:
    stream = lines("text")
    asked = request(authorization=b"Bearer secret", s2_encryption_key=b"secret")
    AccessLog(lambda: 1.25).note(asked, 204, 17)
    log.error("it failed", extra={"request": asked})
    assert "secret" not in stream.getvalue()


def test_the_level_mutes_what_is_less_important_but_not_the_access_log() -> None:
    stream = lines(level="error")
    log.warning("no")
    AccessLog(lambda: 1.25).note(request(), 204, 17)
    assert only(stream)["logger"] == "headwater.access"


def test_without_the_access_log_nothing_is_written() -> None:
    stream = lines(access_log=False)
    AccessLog(lambda: 1.25).note(request(), 204, 17)
    assert stream.getvalue() == ""
