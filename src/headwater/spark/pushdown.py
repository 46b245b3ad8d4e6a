"""Filters that narrow what a batch read asks for. They never decide about a row: Spark does."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from headwater.client import StreamSummary
from headwater.spark.options import milliseconds
from headwater.spark.streams import SeqAt

SEQ_MAX = 2**63 - 1


class Narrowed(NamedTuple):
    """What the filters leave to be read."""

    streams: frozenset[str] | None = None
    buckets: frozenset[str] | None = None
    prefix: str = ""
    first: int = 0
    end: int = SEQ_MAX
    first_ms: int | None = None
    end_ms: int | None = None

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Narrowed:
        found = cls()
        for one in filters:
            found = found._with(one)
        return found

    def _with(self, one: Filter) -> Narrowed:
        column = getattr(one, "attribute", None)
        if column in (("stream",), ("bucket",)):
            return self._with_name(f"{column[0]}s", one)
        if column == ("offset",):
            first, end = _interval(one, lambda value: int(value))
            return self._replace(
                first=max(self.first, first or 0),
                end=min(self.end, SEQ_MAX if end is None else end),
            )
        if column == ("timestamp",):
            first, end = _interval(one, _milliseconds)
            return self._replace(
                first_ms=_both(max, self.first_ms, first), end_ms=_both(min, self.end_ms, end)
            )
        return self

    def _with_name(self, which: str, one: Filter) -> Narrowed:
        if isinstance(one, StringStartsWith) and which == "streams":
            return self._replace(prefix=max(self.prefix, one.value, key=len))
        if isinstance(one, EqualTo):
            names = frozenset((one.value,))
        elif isinstance(one, In):
            names = frozenset(one.value)
        else:
            return self
        if which == "streams":
            return self._replace(streams=names if self.streams is None else self.streams & names)
        return self._replace(buckets=names if self.buckets is None else self.buckets & names)

    def admits(self, bucket: str, name: str) -> bool:
        if self.buckets is not None and bucket not in self.buckets:
            return False
        if self.streams is not None and name not in self.streams:
            return False
        return name.startswith(self.prefix)

    def bounds(self, stream: StreamSummary, seq_at: SeqAt) -> tuple[int, int]:
        """The records of a stream that can pass."""
        first, end = self.first, self.end
        if self.first_ms is not None:
            first = max(first, seq_at(stream, self.first_ms))
        if self.end_ms is not None:
            end = min(end, seq_at(stream, self.end_ms))
        return first, end


def _interval(one: Filter, number: Any) -> tuple[int | None, int | None]:
    """First, and one past the last; None for what is open."""
    if isinstance(one, EqualTo):
        return number(one.value), number(one.value) + 1
    if isinstance(one, In):
        values = [number(value) for value in one.value if value is not None]
        return (min(values), max(values) + 1) if values else (None, None)
    # Times are cut to milliseconds, so what is greater than a time may be in the same one.
    if isinstance(one, (GreaterThan, GreaterThanOrEqual)):
        return number(one.value), None
    if isinstance(one, (LessThan, LessThanOrEqual)):
        return None, number(one.value) + 1
    return None, None


def _milliseconds(moment: datetime) -> int:
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return milliseconds(zoned)


def _both(choose: Any, one: int | None, other: int | None) -> int | None:
    given = [value for value in (one, other) if value is not None]
    return choose(given) if given else None
