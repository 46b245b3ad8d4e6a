"""Server-sent events of an S2 read session. S2 API: read, SSE.

Each event is one line of data: JSON has no line breaks. The id of a batch says how far the reader
is, and comes back in `Last-Event-ID`.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.wire.s2.records import U64_MAX, Place

DONE = b"data: [DONE]\n\n"
"""A clean end."""


class EventId(NamedTuple):
    """The last record delivered, and the records and metered bytes of the session so far."""

    seq: int
    records: int
    size: int


def parse_event_id(text: str) -> EventId | None:
    """What `Last-Event-ID` says; None when it is not an id of ours."""
    parts = text.strip().split(",")
    if len(parts) != 3 or not all(_is_u64(part) for part in parts):
        return None
    return EventId(*map(int, parts))


def _is_u64(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= U64_MAX


def batch_event(batch: bytes, event_id: EventId) -> bytes:
    return b"event: batch\nid: %d,%d,%d\ndata: %b\n\n" % (*event_id, batch)


def ping_event(now_ms: int, tail: Place) -> bytes:
    """A heartbeat: nothing new, and the tail is where it was."""
    return b'event: ping\ndata: {"timestamp":%d,"tail":{"seq_num":%d,"timestamp":%d}}\n\n' % (
        now_ms,
        *tail,
    )


def error_event(error: bytes) -> bytes:
    """The last event of a session that failed: the body that the error has by itself."""
    return b"event: error\ndata: %b\n\n" % error
