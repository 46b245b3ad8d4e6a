"""The checker itself: histories that are linearizable, and ones that are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.linearizability import (
    EMPTY,
    NEVER,
    Append,
    Operation,
    Saw,
    chain,
    check,
    hash_record,
    settle,
)

A, B, C = (hash_record(body) for body in (b"a", b"b", b"c"))


def append(
    client: int,
    called: int,
    returned: int,
    *records: int,
    tail: int | None = None,
    match_seq_num: int | None = None,
    fencing_token: str | None = None,
    sets_token: str | None = None,
) -> Operation:
    batch = Append(records, match_seq_num, fencing_token, sets_token)
    return Operation(client, called, returned, batch, Saw(tail))


def read(client: int, called: int, returned: int, *records: int) -> Operation:
    saw = Saw(len(records), chain(0, records))
    return Operation(client, called, returned, saw=saw)


def tail(client: int, called: int, returned: int, seen: int) -> Operation:
    return Operation(client, called, returned, saw=Saw(seen))


def refused(
    client: int, called: int, returned: int, *, at: int | None = None, token: str | None = None
) -> Operation:
    return Operation(client, called, returned, saw=Saw(at, token=token))


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ([], 0),
        ([b"foo"], 0x4D2B003EE417C3A5),
        ([b"foo", b"bar"], 0x132E5D5DD7936EDD),
        ([b"foo", b"bar", b"baz"], 0x732EE99ABC5002FF),
    ],
)
def test_the_hash_of_a_stream_is_the_published_one(bodies: list[bytes], expected: int) -> None:
    assert chain(0, map(hash_record, bodies)) == expected


def test_the_hash_of_a_record_is_the_published_one() -> None:
    assert hash_record(b"foo") == 0xAB6E5F64077E7D8A


LINEARIZABLE = {
    "nothing at all": [],
    "one after the other": [
        append(1, 0, 1, A, tail=1),
        read(1, 2, 3, A),
        append(1, 4, 5, B, C, tail=3),
        tail(1, 6, 7, 3),
    ],
    "two appends at once, in either order": [
        append(1, 0, 10, A, tail=2),
        append(2, 1, 9, B, tail=1),
        read(3, 11, 12, B, A),
    ],
    "a read during an append may see it": [append(1, 0, 10, A, tail=1), read(2, 1, 2, A)],
    "a read during an append may miss it": [append(1, 0, 10, A, tail=1), read(2, 1, 2)],
    "an append of unknown outcome took effect": [append(1, 0, NEVER, A), read(2, 1, 2, A)],
    "an append of unknown outcome did not": [append(1, 0, NEVER, A), read(2, 1, 2)],
    "an append of unknown outcome took effect late": [
        append(1, 0, NEVER, A),
        read(2, 1, 2),
        append(2, 3, 4, B, tail=1),
        read(2, 5, 6, B, A),
    ],
    "two of unknown outcome, only the later one took effect": [
        append(1, 0, NEVER, A),
        append(2, 1, NEVER, B),
        read(3, 2, 3, B),
    ],
    "the condition of an unknown one could not hold": [
        append(1, 0, 1, A, tail=1),
        append(2, 2, NEVER, B, match_seq_num=0),
        read(1, 3, 4, A),
    ],
    "the expected sequence number was right": [
        append(1, 0, 1, A, tail=1),
        append(1, 2, 3, B, tail=2, match_seq_num=1),
    ],
    "a stream without a token has the empty one": [append(1, 0, 1, A, tail=1, fencing_token="")],
    "a fence holds for the next append": [
        append(1, 0, 1, A, tail=1, sets_token="one"),
        append(1, 2, 3, B, tail=2, fencing_token="one"),
        append(2, 4, 5, C, tail=3),
        refused(2, 6, 7, token="one"),
    ],
    "a refusal during an append may tell of it": [
        append(1, 0, 10, A, tail=1),
        refused(2, 1, 2, at=1),
    ],
}


@pytest.mark.parametrize("name", LINEARIZABLE)
def test_a_good_history_is_accepted(name: str) -> None:
    verdict = check(LINEARIZABLE[name])
    assert verdict.linearizable, str(verdict)
    assert not verdict.stuck


NOT_LINEARIZABLE = {
    "an acknowledged append is lost": [append(1, 0, 1, A, tail=1), read(1, 2, 3)],
    "a tail that goes back": [append(1, 0, 1, A, tail=1), tail(2, 2, 3, 0)],
    "two appends got the same place": [
        append(1, 0, 10, A, tail=1),
        append(2, 1, 9, B, tail=1),
    ],
    "two reads disagree on the order": [
        append(1, 0, 10, A, tail=1),
        append(2, 1, 9, B, tail=2),
        read(3, 11, 12, B, A),
    ],
    "a read before the append was called": [read(2, 0, 1, A), append(1, 2, 3, A, tail=1)],
    "seen, and then gone": [append(1, 0, 10, A, tail=1), read(2, 1, 2, A), read(2, 3, 4)],
    "one of unknown outcome took effect twice": [
        append(1, 0, NEVER, A),
        read(2, 1, 2, A, A),
    ],
    "one of unknown outcome, halfway": [append(1, 0, NEVER, A, B), read(2, 1, 2, A)],
    "one of unknown outcome before it was called": [
        read(2, 0, 1, A),
        append(1, 2, NEVER, A),
    ],
    "one of unknown outcome against its condition": [
        append(1, 0, 1, A, tail=1),
        append(2, 2, NEVER, B, match_seq_num=0),
        read(1, 3, 4, A, B),
    ],
    "the expected sequence number was wrong": [
        append(1, 0, 1, A, tail=1),
        append(1, 2, 3, B, tail=2, match_seq_num=0),
    ],
    "the token was wrong": [
        append(1, 0, 1, A, tail=1, sets_token="one"),
        append(2, 2, 3, B, tail=2, fencing_token="two"),
    ],
    "the token was one that had been replaced": [
        append(1, 0, 1, A, tail=1, sets_token="one"),
        append(2, 2, 3, B, tail=2, sets_token="two"),
        append(1, 4, 5, C, tail=3, fencing_token="one"),
    ],
    "a refusal tells of a tail that nobody wrote": [refused(1, 0, 1, at=1)],
    "a refusal tells of a tail that vanished": [
        append(1, 0, NEVER, A),
        refused(2, 1, 2, at=1),
        tail(3, 3, 4, 0),
    ],
    "a refusal tells of a token that vanished": [
        append(1, 0, NEVER, A, sets_token="one"),
        refused(2, 1, 2, token="one"),
        read(3, 3, 4),
    ],
    "other bodies than were sent": [append(1, 0, 1, A, tail=1), read(1, 2, 3, B)],
}


@pytest.mark.parametrize("name", NOT_LINEARIZABLE)
def test_a_bad_history_is_refused(name: str) -> None:
    verdict = check(NOT_LINEARIZABLE[name])
    assert not verdict.linearizable
    assert verdict.stuck
    assert "not linearizable" in str(verdict)


class Simulation:
    """Clients that call, take effect and return in a drawn order, on a stream that is right."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
        self._draw = draw
        self._now = 0
        self._state = EMPTY
        self._open: dict[int, tuple[int, Append | None, Saw | None]] = {}
        """By client: when it called, what it appends, and what it saw once it took effect."""
        self.history: list[Operation] = []

    def run(self, steps: int, clients: int) -> list[Operation]:
        for _ in range(steps):
            self._step(self._draw(st.integers(0, clients - 1)))
        for client in list(self._open):
            self._return(client)
        return self.history

    def _step(self, client: int) -> None:
        self._now += 1
        if client not in self._open:
            self._open[client] = (self._now, self._draw_append(), None)
        elif self._open[client][2] is None and self._draw(st.integers(0, 5)):
            self._take_effect(client)
        else:
            self._return(client)

    def _draw_append(self) -> Append | None:
        size = self._draw(st.integers(0, 3))
        if not size:
            return None
        hashes = tuple(hash_record(b"%d.%d" % (self._now, number)) for number in range(size))
        choice = self._draw(st.integers(0, 3))
        return Append(
            hashes,
            match_seq_num=self._state.tail if choice == 1 else None,
            fencing_token=self._state.token if choice == 2 else None,
            sets_token=str(self._now) if choice == 3 else None,
        )

    def _take_effect(self, client: int) -> None:
        called, batch, _ = self._open[client]
        if batch is None:
            saw = Saw(self._state.tail, self._state.stream_hash)
        elif (after := batch.apply(self._state)) is None:
            batch, saw = None, Saw(self._state.tail, token=self._state.token)
        else:
            self._state, saw = after, Saw(after.tail)
        self._open[client] = (called, batch, saw)

    def _return(self, client: int) -> None:
        """An append may return without an answer, whether it took effect or not."""
        self._now += 1
        called, batch, saw = self._open.pop(client)
        if batch is not None and (saw is None or not self._draw(st.integers(0, 9))):
            self.history.append(Operation(client, called, NEVER, batch))
        elif saw is not None:
            self.history.append(Operation(client, called, self._now, batch, saw))


@given(data=st.data(), steps=st.integers(0, 120))
def test_what_a_right_stream_answers_is_accepted(data: st.DataObject, steps: int) -> None:
    history = Simulation(data.draw).run(steps, clients=4)
    verdict = check(history)
    assert verdict.linearizable, str(verdict)


@given(data=st.data(), steps=st.integers(20, 120))
def test_a_lost_append_is_found_by_a_later_read(data: st.DataObject, steps: int) -> None:
    history = Simulation(data.draw).run(steps, clients=4)
    order = check(history).order
    acknowledged = [each for each in order if each.append and each.returned != NEVER]
    assume(acknowledged)
    lost = data.draw(st.sampled_from(acknowledged))
    kept = [each.append.record_hashes for each in order if each.append and each is not lost]
    left = [record for batch in kept for record in batch]
    end = max(each.called for each in history) + 2 * steps
    assert check([*history, read(9, end, end + 1, *left)]).linearizable is False


def test_a_scan_at_the_end_settles_what_became_of_appends() -> None:
    scan = read(3, 10, 11, C, A, B)
    history = [
        append(1, 0, NEVER, A, B),
        append(2, 1, NEVER, hash_record(b"lost")),
        append(2, 2, 3, C, tail=1),
        scan,
    ]
    settled = settle(history, [C, A, B])
    assert settled == [append(1, 0, NEVER, A, B, tail=3), history[2], scan]
    assert check(settled).linearizable


def test_what_a_scan_cannot_tell_apart_stays_unknown() -> None:
    fences = [append(client, 0, NEVER, A, sets_token="t") for client in (1, 2)]
    assert settle(fences, [A, A]) == fences


def test_many_clients_cut_off_at_once_are_no_long_search() -> None:
    """Without the scan there would be more orders of these than can be tried."""
    records = [hash_record(b"%d" % number) for number in range(12)]
    history = [append(client, 0, NEVER, record) for client, record in enumerate(records)]
    history += [tail(99, 1 + 2 * at, 2 + 2 * at, 12) for at in range(50)]
    scanned = [*reversed(records)]
    history.append(read(99, 200, 201, *scanned))
    assert check(settle(history, scanned)).linearizable
