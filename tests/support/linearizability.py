"""Is a history of concurrent operations on one stream linearizable?

A history is linearizable if each operation can be given one moment between its call and its return
so that, in the order of those moments, a stream of one thread would have answered the same. The
stream is modelled by three values: its tail, a hash of everything in it, its fencing token. The
search is that of Wing and Gong: place one of the operations that may come first, go on from there,
step back when nothing fits. Configurations that were found to lead nowhere are remembered.

Trims are not modelled: a read is a scan of the whole stream.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

NEVER = sys.maxsize
"""When an operation returned whose client never learnt what came of it."""


class State(NamedTuple):
    """The stream, as far as any answer can tell."""

    tail: int = 0
    stream_hash: int = 0
    token: str = ""


EMPTY = State()


def hash_record(body: bytes) -> int:
    return xxh3_64_intdigest(body)


def chain(stream_hash: int, record_hashes: Iterable[int]) -> int:
    """The hash of a stream after these records. The empty stream has 0."""
    for record_hash in record_hashes:
        stream_hash = xxh3_64_intdigest(record_hash.to_bytes(8, "little"), seed=stream_hash)
    return stream_hash


@dataclass(frozen=True, slots=True)
class Append:
    """A batch, and the conditions it was sent with."""

    record_hashes: tuple[int, ...]
    match_seq_num: int | None = None
    fencing_token: str | None = None
    sets_token: str | None = None

    def apply(self, state: State) -> State | None:
        """The stream afterwards, or None if a condition does not hold."""
        if self.fencing_token is not None and self.fencing_token != state.token:
            return None
        if self.match_seq_num is not None and self.match_seq_num != state.tail:
            return None
        return State(
            state.tail + len(self.record_hashes),
            chain(state.stream_hash, self.record_hashes),
            state.token if self.sets_token is None else self.sets_token,
        )


@dataclass(frozen=True, slots=True)
class Saw:
    """What an answer told of the stream: at some moment, all of this held at once."""

    tail: int | None = None
    stream_hash: int | None = None
    token: str | None = None

    def fits(self, state: State) -> bool:
        return (
            self.tail in (None, state.tail)
            and self.stream_hash in (None, state.stream_hash)
            and self.token in (None, state.token)
        )


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of one client. `append` is set if it took effect, or may have."""

    client: int
    called: int
    returned: int
    append: Append | None = None
    saw: Saw = field(default_factory=Saw)
    """Of an append that was acknowledged: the stream just after it."""

    @property
    def tail_before(self) -> int | None:
        """What the tail must have been just before it, where the answer says so."""
        if self.saw.tail is None or self.append is None:
            return self.saw.tail
        return self.saw.tail - len(self.append.record_hashes)

    def apply(self, state: State) -> State | None:
        """The stream afterwards, or None if it could not have been answered like this."""
        after = state if self.append is None else self.append.apply(state)
        return after if after is not None and self.saw.fits(after) else None


class Verdict(NamedTuple):
    """Whether there is such an order, and if not, where the longest attempt ended."""

    linearizable: bool
    order: list[Operation]
    """All of them if there is one, except what never took effect; or the longest beginning."""
    state: State
    """After `order`."""
    stuck: list[Operation]
    """What had to come next, and could not."""

    def __str__(self) -> str:
        if self.linearizable:
            return f"linearizable, {len(self.order)} operations"
        lines = [f"not linearizable: after {len(self.order)} operations the stream is {self.state}"]
        lines += [f"  placed {operation}" for operation in self.order[-5:]]
        lines += [f"  does not fit {operation}" for operation in self.stuck]
        return "\n".join(lines)


class Configuration(NamedTuple):
    """How far a search has come."""

    placed: tuple[int, ...]
    """Operations placed of each client; a client makes one call at a time."""
    happened: frozenset[int]
    """Which of the operations of unknown outcome have taken effect."""
    state: State


class Search:
    """Looks for an order. Operations of unknown outcome may be placed anywhere or nowhere."""

    def __init__(self, history: Sequence[Operation], initial: State = EMPTY) -> None:
        clients: dict[int, list[Operation]] = {}
        self._unknown: list[Operation] = []
        for operation in sorted(history, key=lambda each: each.called):
            if operation.returned == NEVER:
                self._unknown.append(operation)
            else:
                clients.setdefault(operation.client, []).append(operation)
        self._clients = list(clients.values())
        self._initial = initial

    def run(self) -> Verdict:
        start = Configuration((0,) * len(self._clients), frozenset(), self._initial)
        seen = {start}
        order: list[Operation] = []
        longest: tuple[list[Operation], Configuration] = ([], start)
        path = [(start, self._steps(start))]
        while path:
            here, steps = path[-1]
            if not self._waiting(here):
                return Verdict(True, order, here.state, [])
            step = next(((o, c) for o, c in steps if c not in seen), None)
            if step is None:
                path.pop()
                if order:
                    order.pop()
                continue
            operation, there = step
            seen.add(there)
            order.append(operation)
            path.append((there, self._steps(there)))
            if sum(there.placed) > sum(longest[1].placed):
                longest = (list(order), there)
        placed, stuck_at = longest
        return Verdict(False, placed, stuck_at.state, self._waiting(stuck_at))

    def _waiting(self, here: Configuration) -> list[Operation]:
        """The next operation of each client that has one."""
        return [
            operations[placed]
            for operations, placed in zip(self._clients, here.placed, strict=True)
            if placed < len(operations)
        ]

    def _steps(self, here: Configuration) -> Iterator[tuple[Operation, Configuration]]:
        """What may be placed next: what was called before anything left over had returned."""
        waiting = self._waiting(here)
        # Tails never go back, so whoever saw an earlier one than this can no more be placed.
        if any(o.tail_before is not None and o.tail_before < here.state.tail for o in waiting):
            return
        first_return = min((operation.returned for operation in waiting), default=NEVER)
        for client, operations in enumerate(self._clients):
            placed = here.placed[client]
            if placed == len(operations) or operations[placed].called > first_return:
                continue
            after = operations[placed].apply(here.state)
            if after is not None:
                counts = (*here.placed[:client], placed + 1, *here.placed[client + 1 :])
                yield operations[placed], Configuration(counts, here.happened, after)
        for number, operation in enumerate(self._unknown):
            if number in here.happened or operation.called > first_return:
                continue
            after = operation.apply(here.state)
            if after is not None:
                happened = here.happened | {number}
                yield operation, Configuration(here.placed, happened, after)


def settle(history: Sequence[Operation], records: Sequence[int]) -> list[Operation]:
    """What became of appends of unknown outcome, told by a scan after everything else.

    Any order that explains the scan has each append where its records are, so a search need not
    try others; with many clients cut off at once they are too many. `records` are the hashes of
    the scan, which must be in the history too. An append whose first record is not unlike all
    others stays unknown.
    """
    places: dict[int, list[int]] = {}
    for place, record_hash in enumerate(records):
        places.setdefault(record_hash, []).append(place)
    settled = []
    for operation in history:
        if operation.returned == NEVER and operation.append is not None:
            hashes = operation.append.record_hashes
            found = places.get(hashes[0], [])
            if not found:
                continue  # it never happened
            if len(found) == 1:
                operation = replace(operation, saw=Saw(found[0] + len(hashes)))
        settled.append(operation)
    return settled


def check(history: Sequence[Operation], initial: State = EMPTY) -> Verdict:
    """Look for an order of these operations that explains all their answers."""
    return Search(history, initial).run()
