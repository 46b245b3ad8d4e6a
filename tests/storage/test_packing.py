"""Which runs are merged: nothing is lost, little is rewritten, few small pieces remain."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.limits import KIB
from headwater.core.types import SeqNum
from headwater.storage import packing
from headwater.storage.packing import CHUNK_BYTES, RUNS_MIN, Piece, Plan


class Disk:
    """The pieces of one stream on disk, and what packing does to them."""

    def __init__(self) -> None:
        self.pieces: dict[int, int] = {}
        """First record to stored bytes."""
        self.end = 0
        self.runs: list[Piece] = []
        self.partial: list[Piece] = []
        self.written = 0
        self.rewritten = 0
        self.partial_max = 0

    def append(self, size: int, records: int = 1) -> None:
        self.pieces[self.end] = size
        self.runs.append((SeqNum(self.end), size))
        self.end += records
        self.written += size

    def pack(self) -> Plan:
        plan = packing.plan(self.runs, self.partial, SeqNum(self.end))
        for first, end in plan.chunks:
            assert first in self.pieces, "a chunk begins where a piece begins"
            assert end == self.end or end in self.pieces, "and ends where one begins"
            merged = [seq for seq in self.pieces if first <= seq < end]
            if len(merged) > 1:
                self.rewritten += sum(self.pieces[seq] for seq in merged)
            self.pieces[first] = sum(self.pieces.pop(seq) for seq in merged)
        self.runs, self.partial = [], plan.partial
        self.partial_max = max(self.partial_max, len(plan.partial))
        return plan

    def pack_if_worth_it(self) -> None:
        stored = sum(size for _, size in self.runs)
        if packing.worth_packing(len(self.runs), stored, 0):
            self.pack()


sizes = st.integers(70, 3000) | st.integers(70, 600 * KIB)
histories = st.lists(st.lists(sizes, min_size=2, max_size=8), min_size=1, max_size=40)


@settings(deadline=None, max_examples=150)
@given(history=histories)
def test_no_record_is_lost_and_no_full_chunk_is_ever_rewritten(history: list[list[int]]) -> None:
    disk = Disk()
    for batch in history:
        full_before = {seq: size for seq, size in disk.pieces.items() if size >= CHUNK_BYTES}
        new = disk.end
        for size in batch:
            disk.append(size, records=3)
        plan = disk.pack()
        assert sum(disk.pieces.values()) == disk.written
        for seq, size in full_before.items():
            assert disk.pieces.get(seq) == size or seq >= new, "a full chunk was merged again"
        assert all(
            earlier[1] <= later[0]
            for earlier, later in zip(plan.chunks, plan.chunks[1:], strict=False)
        )


@settings(deadline=None, max_examples=150)
@given(history=histories)
def test_what_is_not_a_full_chunk_yet_is_one_stretch_at_the_end(history: list[list[int]]) -> None:
    disk = Disk()
    for batch in history:
        for size in batch:
            disk.append(size)
        disk.pack()
        if disk.partial:
            tail = sum(size for seq, size in disk.pieces.items() if seq >= disk.partial[0][0])
            assert tail == sum(size for _, size in disk.partial), "a full chunk lies in between"


@settings(deadline=None, max_examples=150)
@given(history=histories)
def test_chunks_do_not_grow_much_beyond_their_size(history: list[list[int]]) -> None:
    disk = Disk()
    for batch in history:
        for size in batch:
            disk.append(size)
        disk.pack()
    assert max(disk.pieces.values()) < CHUNK_BYTES + 600 * KIB


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(lambda n: 80, id="tiny"),
        pytest.param(lambda n: 1000, id="small"),
        pytest.param(lambda n: 70 + n % 977, id="mixed"),
        pytest.param(lambda n: 400 * KIB if n % 100 == 99 else 90, id="a large one now and then"),
        pytest.param(lambda n: max(70, 4000 - n), id="ever smaller"),
    ],
)
def test_every_byte_is_rewritten_a_logarithmic_number_of_times(
    size: Callable[[int], int],
) -> None:
    disk = Disk()
    for number in range(6000):
        disk.append(size(number))
        disk.pack_if_worth_it()
    smallest = RUNS_MIN * 70
    times = math.log(CHUNK_BYTES / smallest, 1.5) + 2
    assert disk.rewritten <= times * disk.written
    assert disk.partial_max <= times
    small = sum(1 for stored in disk.pieces.values() if stored < CHUNK_BYTES // 4)
    assert small <= RUNS_MIN + 2 * times + disk.written / CHUNK_BYTES * 2


@settings(deadline=None, max_examples=100)
@given(history=histories)
def test_the_list_of_partial_chunks_stays_short(history: list[list[int]]) -> None:
    disk = Disk()
    for batch in history:
        for size in batch:
            disk.append(size)
        disk.pack()
    assert disk.partial_max <= math.log2(CHUNK_BYTES / 140) + 2


def test_even_sizes_that_shrink_slowly_do_not_make_the_list_of_partial_chunks_long() -> None:
    disk = Disk()
    for number in range(500):
        disk.append(60 * KIB - 64 * number)
        disk.append(60 * KIB - 64 * number)
        disk.pack()
    assert disk.partial_max <= math.log2(CHUNK_BYTES / 140) + 2


@pytest.mark.parametrize(
    ("runs", "stored_bytes", "checkpoint_bytes", "worth"),
    [
        pytest.param(1, CHUNK_BYTES * 4, 0, False, id="one run is packed already"),
        pytest.param(2, CHUNK_BYTES, 0, True, id="a chunk is full"),
        pytest.param(2, CHUNK_BYTES - 1, 0, False, id="few and small"),
        pytest.param(RUNS_MIN - 1, 5000, 0, False, id="nearly enough"),
        pytest.param(RUNS_MIN, 5000, 0, True, id="enough"),
        pytest.param(RUNS_MIN, 5000, 100_000, False, id="a large checkpoint"),
        pytest.param(16 * RUNS_MIN, 5000, 10**9, True, id="enough in any case"),
    ],
)
def test_runs_are_packed_when_there_are_enough_of_them(
    runs: int, stored_bytes: int, checkpoint_bytes: int, worth: bool
) -> None:
    assert packing.worth_packing(runs, stored_bytes, checkpoint_bytes) is worth
