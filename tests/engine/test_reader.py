"""Catch-up: where slices end, what they hold, and which positions are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import InvalidOffset, OffsetTrimmed
from headwater.core.limits import KIB, MIB, RECORD_BODY_BYTES_MAX
from headwater.core.records import APPEND_START, COMMAND, CONTINUES
from headwater.core.types import ByteOffset, SeqNum
from headwater.engine import reader
from headwater.engine.shard import Shard
from headwater.engine.staging import RUN_BYTES_MAX
from headwater.engine.streams import Stream
from headwater.storage import keys
from headwater.storage.memory import MemoryStore
from headwater.storage.runs import RunBuilder
from tests.support.builders import JSON, append, claim, create, position, stream_state, trim
from tests.support.engines import ALL, EngineRunner, body, small_sizes


def pattern(size: int, start: int = 0) -> bytes:
    block = bytes((start + n) % 251 for n in range(251))
    return (block * (size // 251 + 1))[:size]


def test_reading_at_the_tail_gives_nothing_and_the_same_position() -> None:
    with EngineRunner() as runner:
        runner.create(create(body=b"abc"))
        found = runner.read("s", position(1, 3))
        assert (body(found), found.start, found.end) == (b"", position(1, 3), position(1, 3))
        assert found.at_tail and not found.closed


def test_an_empty_json_slice_is_an_empty_array() -> None:
    with EngineRunner() as runner:
        runner.create(create(content_type=JSON))
        assert body(runner.read("s")) == b"[]"
        runner.append(append(body=b" [1, {} , [2]]"))
        assert body(runner.read("s")) == b"[1,{},[2]]"
        assert body(runner.read("s", position(3, 6))) == b"[]"


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(position(3, 6), id="past the tail"),
        pytest.param(position(2, 5), id="at the tail with other bytes"),
        pytest.param(position(2, 7), id="at the tail with more bytes"),
        pytest.param(position(1, 2), id="a boundary with other bytes"),
        pytest.param(position(0, 1), id="the start with bytes before it"),
        pytest.param(position(2**63, 0), id="far away"),
    ],
)
def test_a_position_that_does_not_fit_is_refused(wrong: tuple[int, int]) -> None:
    with EngineRunner() as runner:
        runner.together(create(body=b"abc"), append(body=b"def"))
        with pytest.raises(InvalidOffset) as caught:
            runner.read("s", position(*wrong))
        assert caught.value.tail == position(2, 6)


def test_a_position_before_the_first_retained_record_says_where_to_go_on() -> None:
    state = stream_state()
    state.first_seq, state.first_byte = position(5, 50)
    state.tail_seq, state.tail_byte = position(9, 90)
    stream = Stream(state)
    assert reader.resolve(stream, None) == position(5, 50)
    assert reader.resolve(stream, position(5, 50)) == position(5, 50)
    with pytest.raises(OffsetTrimmed) as caught:
        reader.resolve(stream, position(4, 40))
    assert caught.value.first == position(5, 50)


@pytest.mark.parametrize("packed", [False, True], ids=["runs", "packed"])
def test_a_slice_ends_with_the_message_that_fills_it(packed: bool) -> None:
    with small_sizes(record_bytes=100), EngineRunner(packing_enabled=packed) as runner:
        runner.create(create())
        for number in range(10):
            runner.append(append(body=b"%d" % number * 10))
        runner.settle()
        ends = {
            size_max: runner.read("s", size_max=size_max).end.seq
            for size_max in (1, 9, 10, 11, 19, 20, 21, 99, 100, 101)
        }
        assert ends == {1: 1, 9: 1, 10: 1, 11: 1, 19: 1, 20: 2, 21: 2, 99: 9, 100: 10, 101: 10}


def test_a_long_message_is_several_records_and_one_message() -> None:
    text = pattern(2 * RECORD_BODY_BYTES_MAX + 5)
    with EngineRunner() as runner:
        runner.create(create())
        assert runner.append(append(body=text)).tail == position(3, len(text))
        runner.append(append(body=b"after"))
        first = runner.read("s", size_max=64 * KIB)
        assert (body(first), first.end) == (text, position(3, len(text)))
        assert body(runner.read("s", first.end)) == b"after"
        for inside in (position(1, RECORD_BODY_BYTES_MAX), position(2, 2 * RECORD_BODY_BYTES_MAX)):
            with pytest.raises(InvalidOffset):
                runner.read("s", inside)


def test_a_message_of_exactly_one_record_is_one_record() -> None:
    with EngineRunner() as runner:
        runner.create(create(body=pattern(RECORD_BODY_BYTES_MAX)))
        assert runner.open("s").tail == position(1, RECORD_BODY_BYTES_MAX)


def test_a_long_json_message_is_one_element() -> None:
    text = b'"' + b"x" * (RECORD_BODY_BYTES_MAX + 10) + b'"'
    with EngineRunner() as runner:
        runner.create(create(content_type=JSON, body=b"[1," + text + b",2]"))
        assert runner.content("s") == b"[1," + text + b",2]"
        first = runner.read("s", size_max=1)
        second = runner.read("s", first.end, size_max=1)
        assert (body(first), body(second)) == (b"[1]", b"[" + text + b"]")
        assert second.end == position(3, 1 + len(text))


def test_a_message_of_32_mib_is_read_back_whole() -> None:
    text = pattern(32 * MIB)
    with EngineRunner() as runner:
        runner.create(create())
        runner.append(append(body=text))
        assert runner.content("s") == text
        with EngineRunner(runner.store) as reopened:
            assert reopened.content("s") == text


def test_a_commit_of_much_data_is_written_in_several_runs() -> None:
    with EngineRunner(packing_enabled=False) as runner:
        runner.create(create())
        parts = [pattern(RUN_BYTES_MAX // 4, number) for number in range(9)]
        runner.together(*[append(body=part) for part in parts])
        assert len(runner.keys(b"r")) == 3
        assert runner.content("s") == b"".join(parts)
        with EngineRunner(runner.store) as reopened:
            assert reopened.content("s") == b"".join(parts)
            assert reopened.open("s").tail == runner.open("s").tail


def test_one_append_over_several_runs_is_still_one_append() -> None:
    """Its producer is in the last of them, and all are in one batch."""
    items = [b'"%b"' % (b"x" * 100 * KIB) for _ in range(12)]
    with EngineRunner(packing_enabled=False) as runner:
        runner.create(create(content_type=JSON))
        whole = append(body=b"[" + b",".join(items) + b"]", close=True, producer=claim())
        runner.append(whole)
        assert len(runner.keys(b"r")) == 2
        with EngineRunner(runner.store) as reopened:
            found = reopened.read("s")
            assert found.closed and found.end.seq == 12
            assert reopened.append(whole).repeat


def test_a_long_read_gives_way_between_steps_and_ends_at_the_tail_it_began_with() -> None:
    with EngineRunner(packing_enabled=False) as runner:
        runner.create(create())
        runner.together(*[append(body=bytes(MIB // 2)) for _ in range(8)])
        stream = runner.open("s")
        pending = runner.engine.read(stream, position(0, 0), ALL)
        runner.append(append(body=b"later"))
        found = runner.result(pending)
        assert (found.size, found.end.seq) == (4 * MIB, 8)
        assert found.at_tail, "of the stream as it was"


# -- records that only other dialects write: commands, and bodies without a byte

Parts = list[tuple[bytes, int]]


def store_run(store: MemoryStore, stream: Stream, records: Parts, *, json: bool) -> None:
    state = stream.state
    builder = RunBuilder(state.tail_seq, state.tail_byte, state.tail_message, json=json)
    for data, flags in records:
        builder.add(data, flags, 1)
        state.tail_seq = SeqNum(state.tail_seq + 1)
        if not flags & COMMAND:
            state.tail_byte = ByteOffset(state.tail_byte + len(data))
    batch = store.batch()
    batch.put(keys.run(state.id, builder.first), builder.encode())
    store.write(batch)
    stream.tail = state.tail


messages = st.one_of(
    st.binary(max_size=3).map(lambda data: [(data, APPEND_START)]),
    st.tuples(st.binary(max_size=3), st.binary(max_size=3)).map(
        lambda pair: [(pair[0], APPEND_START | CONTINUES), (pair[1], 0)]
    ),
    st.just([(b"fence", COMMAND)]),
)
plain_messages = st.binary(max_size=3).map(lambda data: [(data, APPEND_START)])
message_lists = st.lists(messages, min_size=1, max_size=10) | st.lists(
    plain_messages, min_size=1, max_size=10
)


@settings(max_examples=300, deadline=None)
@given(
    given_messages=message_lists,
    cuts=st.sets(st.integers(1, 9)),
    size_max=st.integers(1, 6),
    json=st.booleans(),
)
def test_where_a_slice_ends_does_not_depend_on_how_records_are_packed(
    given_messages: list[Parts], cuts: set[int], size_max: int, json: bool
) -> None:
    """One run for each message, runs cut anywhere, and one run for all: the same slices."""
    layouts = [set(range(len(given_messages))), cuts, set()]
    found = []
    for layout in layouts:
        store = MemoryStore()
        shard = Shard(store)
        stream = Stream(stream_state(JSON if json else "text/plain"))
        run: Parts = []
        for number, message in enumerate(given_messages):
            if number in layout and run:
                store_run(store, stream, run, json=json)
                run = []
            run += message
        store_run(store, stream, run, json=json)
        slices = []
        at = position(0, 0)
        while at != stream.tail:
            part = reader.read_now(shard, stream, at, size_max)
            assert part.end.seq > at.seq, "every slice gets further"
            slices.append((part.start, part.end, body(part), part.at_tail))
            at = part.end
        found.append(slices)
    assert found[0] == found[1] == found[2]
    shown = [
        b"".join(data for data, _ in message)
        for message in given_messages
        if not message[0][1] & COMMAND
    ]
    if not json:
        assert b"".join(text for _, _, text, _ in found[0]) == b"".join(shown)
    elif all(shown):
        parts = [text[1:-1] for _, _, text, _ in found[0] if text != b"[]"]
        assert b",".join(parts) == b",".join(shown)


def test_a_read_that_is_trimmed_between_two_steps_ends_with_what_it_has() -> None:
    with EngineRunner() as runner:
        runner.create(create())
        for number in range(8):
            runner.append(append(body=pattern(100 * KIB, number)))
        stream, shard = runner.open("s"), runner.engine.shard
        steps = reader.read(shard, stream, stream.state.first, ALL)
        next(steps)
        runner.result(runner.submit(trim("s", stream.tail)))
        with pytest.raises(StopIteration) as stopped:
            next(steps)
        found = stopped.value.value
        assert 0 < found.size < 800 * KIB and not found.at_tail
        assert body(found) == b"".join(pattern(100 * KIB, n) for n in range(8))[: found.size]
        with pytest.raises(OffsetTrimmed):
            reader.resolve(stream, found.end)


def test_a_read_whose_first_record_is_trimmed_says_so() -> None:
    with EngineRunner() as runner:
        runner.create(create(body=b"abc"))
        stream = runner.open("s")
        start = stream.state.first
        runner.result(runner.submit(trim("s", stream.tail)))
        runner.append(append(body=b"def"))
        with pytest.raises(OffsetTrimmed):
            reader.read_now(runner.engine.shard, stream, start, ALL)
