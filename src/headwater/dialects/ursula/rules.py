"""Where Ursula differs from the base protocol on the routes they share. Ursula: create."""

from __future__ import annotations

import re

from headwater.core import attributes
from headwater.core.types import START
from headwater.dialects.durable import rules as durable
from headwater.dialects.durable.rules import DialectRules, ForkStart
from headwater.dialects.ursula import errors, requests, responses, targets
from headwater.wire import headers, offsets

_BYTE = re.compile(r"[0-9]{1,20}\Z")
"""A byte position, padded or not."""


def parse_start(text: str) -> offsets.Start:
    """What `offset` says: a token, -1, now, or a byte position."""
    return offsets.AtByte(int(text)) if _BYTE.match(text) else offsets.parse_start(text)


def parse_fork_start(text: str) -> ForkStart:
    """What `Stream-Fork-Offset` says: the same, and 0 is an empty fork."""
    if not _BYTE.match(text):
        return durable.parse_fork_start(text)
    byte = int(text)
    return ForkStart(byte=byte) if byte else ForkStart(START)


def parse_attributes(given: headers.Headers) -> bytes | None:
    """`Stream-Attrs`. Without it a stream has none, and a fork those of its source."""
    text = given.get(b"stream-attrs")
    if text is not None:
        return attributes.parse_attributes(text, field="Stream-Attrs")
    return None if b"stream-forked-from" in given else attributes.EMPTY


URSULA = DialectRules(
    parse_address=targets.parse_address,
    parse_source=targets.parse_source,
    parse_fork_start=parse_fork_start,
    parse_start=parse_start,
    parse_attributes=parse_attributes,
    parse_extras=requests.parse_extras,
    form_of=responses.form_of,
    event_form_of=responses.event_form_of,
    render_created=responses.render_created,
    render_appended=responses.render_appended,
    render_head=responses.render_head,
    render_write_error=errors.render_write_error,
    render_read_error=errors.render_read_error,
    ttl_anchor="creation",
    fork_takes_body=False,
    fork_retypes=True,
)
