"""Records as lines of JSON.

    {"seq_num":7,"timestamp":1750000000000,"value":{"n":1},"headers":[],"flags":1}

A message of a JSON stream is its `value`, as it was sent but on one line. Every other body is
text in `body`, or base64 in `body_base64` when it is not UTF-8; headers have the same choice.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable

import msgspec

from headwater.core.records import RecordHeaders
from headwater.dialects.log.views import Row
from headwater.wire.http import Buffer

_encode = msgspec.json.Encoder().encode
_LINE = b'{"seq_num":%d,"timestamp":%d,%b,"headers":%b,"flags":%d}\n'


def render_lines(found: Iterable[Row], *, json: bool) -> bytes:
    """`json`: the stream's messages are JSON values."""
    lines = []
    for seq, time_ms, body, headers, flags, whole in found:
        content = _value(body) if json and whole else _text(b"body", body)
        pairs = _headers(headers) if headers else b"[]"
        lines.append(_LINE % (seq, time_ms, content, pairs, flags))
    return b"".join(lines)


def _value(body: Buffer) -> bytes:
    text = bytes(body)
    if b"\n" in text or b"\r" in text:
        # Between tokens only: inside a string they would be escaped.
        text = text.replace(b"\n", b" ").replace(b"\r", b" ")
    return b'"value":' + text


def _text(field: bytes, content: Buffer) -> bytes:
    try:
        return b'"%b":%b' % (field, _encode(str(content, "utf-8")))
    except UnicodeDecodeError:
        return b'"%b_base64":"%b"' % (field, b64encode(content))


def _headers(headers: RecordHeaders) -> bytes:
    pairs = (b"{%b,%b}" % (_text(b"name", name), _text(b"value", value)) for name, value in headers)
    return b"[%b]" % b",".join(pairs)
