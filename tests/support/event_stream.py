"""An event stream read as a browser reads it. WHATWG HTML §9.2.6, written from that text alone."""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE_END = re.compile(r"\r\n|\n|\r")


class Event(NamedTuple):
    """One dispatched event."""

    type: str
    data: str


def parse(stream: bytes) -> list[Event]:
    """The events of a body that has arrived so far; one that is not complete is not dispatched.

    Stricter than a browser in one respect: bytes that are not UTF-8 raise UnicodeDecodeError.
    """
    events: list[Event] = []
    kind, data = "", ""
    for line in _lines(stream):
        if not line:
            if data:
                events.append(Event(kind or "message", data.removesuffix("\n")))
            kind, data = "", ""
            continue
        field, colon, value = line.partition(":")
        if colon and not field:
            continue
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data":
            data += value + "\n"
        else:
            assert field in ("id", "retry"), f"a field that the protocol does not have: {line!r}"
    return events


def comments(stream: bytes) -> list[str]:
    """The lines that clients ignore."""
    return [line[1:] for line in _lines(stream) if line.startswith(":")]


def _lines(stream: bytes) -> list[str]:
    """Complete lines only: what follows the last line end is not a line yet."""
    return _LINE_END.split(stream.decode().removeprefix("\ufeff"))[:-1]
