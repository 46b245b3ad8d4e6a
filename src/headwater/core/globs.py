"""Patterns over stream names: `*` is one segment, `**` any number of them. PROTOCOL §6.2.

A star stands for whole segments only. `%2A` in a pattern is a star that the name itself contains.
"""

from __future__ import annotations

from enum import Enum

from headwater.core.errors import InvalidRequest

RESERVED_SEGMENT = "__ds"
"""Names below it belong to the protocol; no pattern reaches them. PROTOCOL §6."""


class _Wild(Enum):
    ONE = "*"
    MANY = "**"


class Glob:
    """A pattern, taken apart once. Matching never backtracks further than the last `**`."""

    __slots__ = ("_segments", "prefix")

    def __init__(self, pattern: str) -> None:
        """Raises InvalidRequest when a star is only part of a segment."""
        self._segments = [_segment(text) for text in pattern.split("/")]
        literals: list[str] = []
        for segment in self._segments:
            if isinstance(segment, _Wild):
                break
            literals.append(segment)
        self.prefix = "/".join(literals)
        """What every name that matches begins with."""

    def reach(self) -> list[tuple[str, bool]]:
        """What could match: names, and (True) prefixes of names. Perhaps more than does."""
        literals = self.prefix
        wild = next((part for part in self._segments if isinstance(part, _Wild)), None)
        if wild is None:
            return [(literals, False)]
        below = (f"{literals}/" if literals else "", True)
        # `a/**` matches the stream `a` too.
        return [(literals, False), below] if wild is _Wild.MANY and literals else [below]

    def matches(self, name: str) -> bool:
        parts, segments = name.split("/"), self._segments
        if parts[0] == RESERVED_SEGMENT:
            return False
        at = part = resume = 0
        many = -1
        while part < len(parts):
            segment = segments[at] if at < len(segments) else None
            if segment is _Wild.MANY:
                many, resume = at, part
                at += 1
            elif segment is _Wild.ONE or segment == parts[part]:
                at += 1
                part += 1
            elif many >= 0:
                # Let the last `**` take one segment more and try again from there.
                resume += 1
                at, part = many + 1, resume
            else:
                return False
        return all(segment is _Wild.MANY for segment in segments[at:])


def _segment(text: str) -> str | _Wild:
    if text == "*":
        return _Wild.ONE
    if text == "**":
        return _Wild.MANY
    if "*" in text:
        raise InvalidRequest(
            "in a pattern * stands for one whole segment and ** for any number of them; "
            f"write %2A for a star in a name. segment={text}"
        )
    return text.replace("%2A", "*").replace("%2a", "*")
