"""How much of a stream is kept: by age, bytes or records. What is older is trimmed.

Enforced now and then, so a stream may hold a little more than its limits, never less.
"""

from __future__ import annotations

import re

import msgspec

from headwater.core.errors import InvalidRequest

_LIMIT = re.compile(r"(age|bytes|records)\s*=\s*([1-9][0-9]{0,15})\Z")


class Retention(msgspec.Struct, frozen=True, array_like=True):
    """The limits; what passes any of them is trimmed, oldest first."""

    age_s: int | None = None
    bytes: int | None = None
    records: int | None = None


def parse_retention(text: str) -> Retention | None:
    """`age=SECONDS, bytes=N, records=N`, any of them; `none` keeps everything."""
    if text.strip().lower() == "none":
        return None
    limits: dict[str, int] = {}
    for part in text.split(","):
        found = _LIMIT.match(part.strip())
        if found is None or found[1] in limits:
            raise InvalidRequest(
                "Stream-Retention has the form age=SECONDS, bytes=N, records=N, each at most "
                f"once and above 0, or none. received={text!r}"
            )
        limits[found[1]] = int(found[2])
    return Retention(limits.get("age"), limits.get("bytes"), limits.get("records"))


def render_retention(retention: Retention) -> str:
    """The text that `parse_retention` reads."""
    limits = (("age", retention.age_s), ("bytes", retention.bytes), ("records", retention.records))
    return ", ".join(f"{name}={value}" for name, value in limits if value is not None)
