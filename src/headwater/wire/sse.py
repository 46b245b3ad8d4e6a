"""Server-sent events as the protocol frames them. PROTOCOL §5.8.

`data:` without a space after the colon. Every line end inside a payload (CR, LF, CRLF) starts a
new `data:` line, so a payload cannot forge a field. A line that itself begins with a space gets
one more, because clients drop the first space after the colon.
"""

from __future__ import annotations

import base64
import codecs
import re

_LINE_END = re.compile(rb"\r\n|\r|\n")

HEARTBEAT = b": heartbeat\n\n"


def data_event(payload: bytes) -> bytes:
    """One `data` event holding text."""
    if b"\n" not in payload and b"\r" not in payload:
        return b"event: data\ndata:%b%b\n\n" % (b" " if payload[:1] == b" " else b"", payload)
    lines = (
        (b"data: " if line[:1] == b" " else b"data:") + line for line in _LINE_END.split(payload)
    )
    return b"event: data\n%b\n\n" % b"\n".join(lines)


def base64_event(payload: bytes) -> bytes:
    """One `data` event holding bytes that are not text."""
    return b"event: data\ndata:%b\n\n" % base64.b64encode(payload)


def control_event(
    next_offset: bytes, *, cursor: int | None, up_to_date: bool, closed: bool, more: bytes = b""
) -> bytes:
    """Where the reader stands. The cursor is left out once the stream is closed.

    `more` are further members of the object, each after a comma.
    """
    return b'event: control\ndata:{"streamNextOffset":"%b"%b%b%b%b}\n\n' % (
        next_offset,
        more,
        b"" if cursor is None else b',"streamCursor":"%d"' % cursor,
        b',"upToDate":true' if up_to_date else b"",
        b',"streamClosed":true' if closed else b"",
    )


def incomplete_tail(payload: bytes) -> int:
    """How many bytes at the end begin a UTF-8 character that is not complete yet."""
    if not payload or payload[-1] < 0x80:
        return 0
    # What begins a character there is among the last three bytes, and does not depend on others.
    end = payload[-3:]
    _, whole = codecs.utf_8_decode(end, "replace", False)
    return len(end) - whole
