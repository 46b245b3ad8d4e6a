"""What a micro-batch reads, and how it is cut into partitions. Pure.

`split` depends on its arguments alone: a micro-batch that is repeated after a crash must have the
same partitions, because the sink tells repeats by them. Frozen for that reason: one release may
finish what another began.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headwater.client import StreamSummary
from headwater.spark.offsets import Cut, Offset, split_key
from headwater.spark.options import SourceOptions

PARTITIONS_UNPACKED_MAX = 32
"""Up to so many, every stream has a partition of its own. Beyond, small ones share: a task costs
more than a few records."""


PARTITION_BYTES = 128 * 1024 * 1024
"""How much a partition has unless an option says, as Spark has it for files."""


class Range(NamedTuple):
    """Some records of one stream."""

    bucket: str
    name: str
    id: str
    first: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.first


class Backlog(NamedTuple):
    """What there is to read of one stream."""

    key: str
    rows: int
    row_bytes: float
    """Of a record, on average."""


def choose_cut(found: Iterable[StreamSummary], options: SourceOptions) -> Cut:
    """How to cut, by the options or by the size of the records that there are."""
    rows_max = options.partition_rows_max
    if rows_max is None:
        rows = size = 0
        for stream in found:
            rows += stream.tail - stream.first
            size += stream.bytes
        rows_max = PARTITION_BYTES * max(1, rows) // max(1, size, rows)
    return Cut(max(1, rows_max), options.partitions_min)


def ranges(start: Offset, end: Offset) -> list[Range]:
    """The records between two offsets, in the order of bucket and name."""
    found = []
    for key, mark in sorted(end.marks.items()):
        if start.marks.get(key) == mark:
            continue
        first = mark.start if mark.start is not None else start.marks[key].seq
        if first < mark.seq:
            found.append(Range(*split_key(key), mark.id, first, mark.seq))
    return found


def split(found: Sequence[Range], cut: Cut) -> list[tuple[Range, ...]]:
    """Partitions: large ranges in pieces, small ones together."""
    total = sum(part.rows for part in found)
    if not total:
        return []
    pieces = [piece for part in found for piece in _pieces(part, cut, total)]
    wanted = max(cut.partitions_min, PARTITIONS_UNPACKED_MAX)
    if len(pieces) <= wanted:
        return [(piece,) for piece in pieces]
    return _pack(pieces, min(cut.rows_max, max(1, total // wanted)))


def _pieces(part: Range, cut: Cut, total: int) -> Iterable[Range]:
    """As many as the limit asks for, and at least its share of the partitions wanted."""
    share = -(-part.rows * cut.partitions_min // total)
    count = min(part.rows, max(share, -(-part.rows // cut.rows_max)))
    edges = [part.first + part.rows * at // count for at in range(count + 1)]
    for first, end in zip(edges, edges[1:], strict=False):
        yield part._replace(first=first, end=end)


def _pack(pieces: Sequence[Range], rows_max: int) -> list[tuple[Range, ...]]:
    packed: list[tuple[Range, ...]] = []
    group: list[Range] = []
    rows = 0
    for piece in pieces:
        if group and rows + piece.rows > rows_max:
            packed.append(tuple(group))
            group, rows = [], 0
        group.append(piece)
        rows += piece.rows
    packed.append(tuple(group))
    return packed


def admit(
    backlogs: Sequence[Backlog], *, rows_max: int | None, bytes_max: int | None, turn: int = 0
) -> dict[str, int]:
    """How many records of each stream go into a micro-batch within the limits: one of each, so
    that none waits for ever, and more of those that have more. Always at least one of one stream.

    Where the limits are for fewer records than there are streams, these take turns: `turn` says
    whose it is, and grows by the records read.
    """
    waiting = [backlog for backlog in backlogs if backlog.rows]
    begun, size = _first_records(waiting, turn, rows_max, bytes_max)
    more: dict[str, int] = {}
    if len(begun) == len(waiting):
        more = {backlog.key: backlog.rows - 1 for backlog in waiting}
        if bytes_max is not None:
            more = _within_bytes(waiting, more, max(0, bytes_max - round(size)))
        if rows_max is not None:
            more = _shares(more, rows_max - len(begun))
    return {key: 1 + more.get(key, 0) for key in begun}


def _first_records(
    waiting: Sequence[Backlog], turn: int, rows_max: int | None, bytes_max: int | None
) -> tuple[list[str], float]:
    """The streams of which one record is within the limits, and the bytes of these records."""
    at = turn % max(1, len(waiting))
    begun: list[str] = []
    size = 0.0
    for backlog in (*waiting[at:], *waiting[:at]):
        full = len(begun) == rows_max
        if begun and (full or (bytes_max is not None and size + backlog.row_bytes > bytes_max)):
            break
        begun.append(backlog.key)
        size += backlog.row_bytes
    return begun, size


def _within_bytes(
    waiting: Sequence[Backlog], wanted: dict[str, int], bytes_max: int
) -> dict[str, int]:
    row_bytes = {backlog.key: max(1.0, backlog.row_bytes) for backlog in waiting}
    sizes = {key: round(rows * row_bytes[key]) for key, rows in wanted.items()}
    if sum(sizes.values()) <= bytes_max:
        return wanted
    shares = _shares(sizes, bytes_max)
    return {key: min(wanted[key], int(share / row_bytes[key])) for key, share in shares.items()}


def _shares(wanted: dict[str, int], limit: int) -> dict[str, int]:
    """`limit` cut up in proportion. What is left over goes to those that want most."""
    total = sum(wanted.values())
    if total <= limit:
        return dict(wanted)
    shares = {key: amount * limit // total for key, amount in wanted.items()}
    left = limit - sum(shares.values())
    for key in sorted(wanted, key=lambda key: (shares[key] - wanted[key], key))[:left]:
        shares[key] += 1
    return shares
