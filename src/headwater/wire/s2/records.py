"""Records as S2 clients send and receive them, whatever the encoding, and how they are measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.wire.http import Buffer

Headers = Sequence[tuple[bytes, bytes]]

U64_MAX = 2**64 - 1
RECORD_METERED_BYTES = 8
"""What a record counts for by itself, and each of its headers. S2 API: names and limits."""
HEADER_METERED_BYTES = 2


class WireError(Exception):
    """What was received is not what the encoding asks for."""


class TooManyRecords(Exception):
    """A message has more records than are taken. It was not looked at any further."""

    def __init__(self, records: int) -> None:
        super().__init__(f"too many records. records={records}")
        self.records = records


class Input(NamedTuple):
    """One append: columns of its records, and the conditions."""

    bodies: list[bytes]
    headers: list[list[tuple[bytes, bytes]]] | None
    """Of each record; None when no record has any."""
    times: list[int | None] | None
    """Of each record; None when no record has one."""
    match_seq_num: int | None = None
    fencing_token: str | None = None

    @property
    def metered(self) -> int:
        """The size by which limits and bounds are judged."""
        size = RECORD_METERED_BYTES * len(self.bodies) + sum(map(len, self.bodies))
        return size + sum(map(measure_headers, self.headers or ()))


class Place(NamedTuple):
    """A record's number and time; or the number of the next record and the time of the last."""

    seq: int
    time_ms: int


class Ack(NamedTuple):
    """The answer to an append."""

    start: Place
    end: Place
    tail: Place


class Records(NamedTuple):
    """Records that follow one another, as columns."""

    first: int
    times: Sequence[int]
    bodies: Sequence[Buffer]
    headers: Sequence[Headers] | None
    """Of each record; None when no record has any."""

    def part(self, start: int, stop: int) -> Records:
        """Some of them, by index."""
        if start == 0 and stop == len(self.bodies):
            return self
        headers = None if self.headers is None else self.headers[start:stop]
        return Records(self.first + start, self.times[start:stop], self.bodies[start:stop], headers)

    def sizes(self) -> list[int]:
        """Metered bytes of each."""
        sizes = [len(body) + RECORD_METERED_BYTES for body in self.bodies]
        if self.headers is not None:
            for index, headers in enumerate(self.headers):
                sizes[index] += measure_headers(headers)
        return sizes


def measure_headers(headers: Headers) -> int:
    """Metered bytes of a record's headers."""
    size = HEADER_METERED_BYTES * len(headers)
    for name, value in headers:
        size += len(name) + len(value)
    return size
