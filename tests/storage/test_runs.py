"""The layout of runs and chunks: there and back, merged, and damaged."""

from __future__ import annotations

import struct
from typing import NamedTuple

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import Corruption
from headwater.core.producer import ProducerMark
from headwater.core.records import APPEND_START, COMMAND, CONTINUES, HAS_HEADERS
from headwater.core.stream import WriterChanges
from headwater.core.types import BatchSeq, ByteOffset, Epoch, SeqNum, TimestampMs
from headwater.storage.runs import Run, RunBuilder, encode_headers, merge
from tests.support.builders import claim, stream_state

Headers = list[tuple[bytes, bytes]]


class Record(NamedTuple):
    body: bytes
    flags: int
    time_ms: int
    headers: Headers

    @property
    def ends_message(self) -> bool:
        return not self.flags & (CONTINUES | COMMAND)

    @property
    def shown_bytes(self) -> int:
        return 0 if self.flags & COMMAND else len(self.body)


bodies = st.binary(max_size=12)
header_pairs = st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=4)), max_size=2)
records = st.builds(
    Record,
    bodies,
    st.sampled_from([0, APPEND_START, CONTINUES, APPEND_START | CONTINUES, COMMAND]),
    st.integers(0, 2**53),
    st.just([]) | header_pairs,
)
plain_records = st.builds(Record, bodies, st.just(0), st.integers(0, 2**53), st.just([]))
# The last record of a run always ends its message.
record_lists = st.tuples(
    st.lists(records, max_size=6) | st.lists(plain_records, max_size=6), plain_records
).map(lambda parts: [*parts[0], parts[1]])

marks = st.builds(ProducerMark, st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**40))
writer_changes = st.none() | st.builds(
    lambda producers, stream_seq, closed: WriterChanges(producers, stream_seq, *closed),
    st.dictionaries(st.text(max_size=3), marks, max_size=3),
    st.none() | st.text(max_size=3),
    st.sampled_from([(False, None), (True, None), (True, claim())]),
)


class Before(NamedTuple):
    """Where a run begins."""

    seq: int
    bytes: int
    messages: int


START = Before(0, 0, 0)


def build(
    given_records: list[Record],
    *,
    json: bool,
    before: Before = START,
    changes: WriterChanges | None = None,
) -> Run:
    return Run(SeqNum(before.seq), encode(given_records, json=json, before=before, changes=changes))


def encode(
    given_records: list[Record],
    *,
    json: bool,
    before: Before = START,
    changes: WriterChanges | None = None,
) -> bytes:
    builder = RunBuilder(SeqNum(before.seq), ByteOffset(before.bytes), before.messages, json=json)
    for record in given_records:
        builder.add(record.body, record.flags, record.time_ms, record.headers)
    builder.changes = changes
    assert builder.count == len(given_records)
    return builder.encode()


def after(before: Before, given_records: list[Record]) -> Before:
    return Before(
        before.seq + len(given_records),
        before.bytes + sum(record.shown_bytes for record in given_records),
        before.messages + sum(record.ends_message for record in given_records),
    )


def read(run: Run) -> list[Record]:
    times = [int.from_bytes(run.times[at : at + 8], "little") for at in range(0, 8 * run.count, 8)]
    return [
        Record(bytes(body), flags & ~HAS_HEADERS, time_ms, list(headers))
        for body, flags, time_ms, headers in zip(
            run.record_bodies(), run.flags, times, run.record_headers(), strict=True
        )
    ]


@settings(deadline=None, max_examples=200)
@given(
    given_records=record_lists,
    json=st.booleans(),
    before=st.builds(Before, *[st.integers(0, 2**40)] * 3),
    changes=writer_changes,
)
def test_a_run_gives_back_what_was_put_in(
    given_records: list[Record], json: bool, before: Before, changes: WriterChanges | None
) -> None:
    run = build(given_records, json=json, before=before, changes=changes)
    assert read(run) == given_records
    assert run.changes() == changes
    assert run.last_time_ms == given_records[-1].time_ms
    assert Before(run.first, run.bytes_before, run.messages_before) == before
    end = after(before, given_records)
    assert run.end == end.seq
    assert run.bytes_before + run.shown_bytes() == end.bytes
    assert run.messages_before + run.message_count() == end.messages
    assert run.plain == (not any(record.flags & (CONTINUES | COMMAND) for record in given_records))


@settings(deadline=None)
@given(given_records=record_lists, json=st.booleans())
def test_the_byte_offset_of_every_record_is_the_bytes_shown_before_it(
    given_records: list[Record], json: bool
) -> None:
    run = build(given_records, json=json, before=Before(5, 1000, 4))
    shown = 1000
    for index, record in enumerate(given_records):
        assert run.position(SeqNum(5 + index)) == (5 + index, shown)
        shown += record.shown_bytes
    assert run.position(run.end) == (run.end, shown)


@settings(deadline=None)
@given(
    given_records=st.lists(plain_records, min_size=1, max_size=6),
    json=st.booleans(),
    data=st.data(),
)
def test_the_bodies_of_a_range_are_one_slice_with_a_comma_after_each_json_message(
    given_records: list[Record], json: bool, data: st.DataObject
) -> None:
    run = build(given_records, json=json)
    start = data.draw(st.integers(0, len(given_records)))
    stop = data.draw(st.integers(start, len(given_records)))
    comma = b"," if json else b""
    expected = b"".join(record.body + comma for record in given_records[start:stop])
    assert bytes(run.bodies(start, stop)) == expected


@settings(deadline=None, max_examples=200)
@given(
    parts=st.lists(st.tuples(record_lists, writer_changes), min_size=1, max_size=4),
    json=st.booleans(),
)
def test_merged_runs_read_as_the_runs_do(
    parts: list[tuple[list[Record], WriterChanges | None]], json: bool
) -> None:
    before, stored = Before(3, 50, 2), []
    for given_records, changes in parts:
        data = encode(given_records, json=json, before=before, changes=changes)
        stored.append((SeqNum(before.seq), data))
        before = after(before, given_records)
    runs = [Run(first, data) for first, data in stored]
    chunk = Run(runs[0].first, merge(stored, keep_changes=False))
    assert read(chunk) == [record for run in runs for record in read(run)]
    assert bytes(chunk.all_bodies()) == b"".join(bytes(run.all_bodies()) for run in runs)
    assert (chunk.first, chunk.end) == (runs[0].first, runs[-1].end)
    assert chunk.last_time_ms == runs[-1].last_time_ms
    assert chunk.messages_before + chunk.message_count() == before.messages
    assert chunk.plain == all(run.plain for run in runs)
    for run in runs:
        for seq in range(run.first, run.end + 1):
            assert chunk.position(SeqNum(seq)) == run.position(SeqNum(seq))
    assert chunk.changes() is None, "the checkpoint written with a chunk holds them"


@settings(deadline=None)
@given(
    parts=st.lists(st.tuples(record_lists, writer_changes), min_size=2, max_size=4),
    json=st.booleans(),
    keep_changes=st.booleans(),
)
def test_merging_in_steps_gives_the_same_bytes_as_merging_at_once(
    parts: list[tuple[list[Record], WriterChanges | None]], json: bool, keep_changes: bool
) -> None:
    before, stored = START, []
    for given_records, changes in parts:
        data = encode(given_records, json=json, before=before, changes=changes)
        stored.append((SeqNum(before.seq), data))
        before = after(before, given_records)
    stepwise = stored[0][1]
    for run in stored[1:]:
        stepwise = merge([(SeqNum(0), stepwise), run], keep_changes=keep_changes)
    assert stepwise == merge(stored, keep_changes=keep_changes)


OLD_RUN = (
    "010f000004000000000000000000000000000000000000000a000000000000000100000000000000"
    "01000000000000000200000000000000020000000000000001000000010000000500000001000000"
    "03000c090100000000000500000066656e63650100040000006e616d650500000076616c75656162"
    "2c66656e6365632c086a980a"
)
"""The sample with everything, as written before there was a format 2."""


def in_format_1(stored: bytes) -> bytes:
    """The same run as releases before format 2 wrote it."""
    run = Run(SeqNum(0), stored)
    columns_end = 32 + 13 * run.count
    headers = b"".join(encode_headers(own) for own in run.record_headers() if own)
    data = b"\1" + stored[1:columns_end] + headers + stored[run.bodies_at : -4]
    return data + struct.pack("<I", crc32c.crc32c(data))


@settings(deadline=None)
@given(parts=st.lists(st.tuples(record_lists, st.booleans()), min_size=1, max_size=4))
def test_runs_with_headers_of_format_1_are_read_and_packed_as_ever(
    parts: list[tuple[list[Record], bool]],
) -> None:
    before, stored, newer = START, [], []
    for given_records, old in parts:
        data = encode(given_records, json=False, before=before)
        newer.append((SeqNum(before.seq), data))
        stored.append((SeqNum(before.seq), in_format_1(data) if old else data))
        assert read(Run(*stored[-1])) == given_records
        before = after(before, given_records)
    assert merge(stored, keep_changes=False) == merge(newer, keep_changes=False)


def test_what_an_older_release_wrote() -> None:
    data = in_format_1(encode(SAMPLES["with everything"], json=True))
    assert data.hex() == OLD_RUN
    assert read(Run(SeqNum(0), data)) == SAMPLES["with everything"]


@settings(deadline=None)
@given(changes=st.lists(writer_changes, min_size=1, max_size=4))
def test_a_chunk_that_keeps_its_changes_replays_as_its_runs_do(
    changes: list[WriterChanges | None],
) -> None:
    record = Record(b"x", APPEND_START, 1, [])
    before, stored = START, []
    one_by_one, at_once = stream_state(), stream_state()
    for change in changes:
        stored.append(
            (SeqNum(before.seq), encode([record], json=False, before=before, changes=change))
        )
        before = after(before, [record])
        if change is not None:
            one_by_one.replay(change)
    kept = Run(SeqNum(0), merge(stored, keep_changes=True)).changes()
    if kept is not None:
        at_once.replay(kept)
    assert at_once == one_by_one
    assert list(at_once.producers) == list(one_by_one.producers)


def test_runs_that_do_not_follow_one_another_are_not_merged() -> None:
    record = Record(b"x", APPEND_START, 1, [])
    stored = [(SeqNum(first), encode([record], json=False)) for first in (0, 2)]
    with pytest.raises(Corruption):
        merge(stored, keep_changes=False)


def test_a_damaged_run_is_not_merged() -> None:
    data = bytearray(encode(SAMPLES["several"], json=False))
    data[-6] ^= 1
    with pytest.raises(Corruption):
        merge([(SeqNum(0), bytes(data))], keep_changes=False)


SAMPLES = {
    "one record": [Record(b"hello", APPEND_START, 1234, [])],
    "several": [Record(b"a", APPEND_START, 1, []), Record(b"bc", 0, 1, []), Record(b"", 0, 2, [])],
    "with everything": [
        Record(b"a", APPEND_START | CONTINUES, 1, []),
        Record(b"b", 0, 1, []),
        Record(b"fence", COMMAND, 2, [(b"", b"fence")]),
        Record(b"c", APPEND_START, 2, [(b"name", b"value")]),
    ],
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_flipped_bit_anywhere_is_corruption(sample: str) -> None:
    changes = WriterChanges({"p": ProducerMark(Epoch(0), BatchSeq(1), TimestampMs(2))})
    stored = encode(SAMPLES[sample], json=True, changes=changes)
    for at in range(len(stored)):
        for bit in range(8):
            damaged = bytearray(stored)
            damaged[at] ^= 1 << bit
            with pytest.raises(Corruption):
                Run(SeqNum(0), bytes(damaged))


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_run_cut_short_or_with_something_after_it_is_corruption(sample: str) -> None:
    stored = encode(SAMPLES[sample], json=False)
    for length in range(len(stored)):
        with pytest.raises(Corruption):
            Run(SeqNum(0), stored[:length])
    with pytest.raises(Corruption):
        Run(SeqNum(0), stored + b"\0")
