"""What is added together comes out record by record, however it is cut into runs."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.limits import KIB, MIB
from headwater.core.records import APPEND_START, COMMAND
from headwater.core.types import SeqNum, TimestampMs
from headwater.engine.records import RecordCursor
from headwater.engine.streams import Stream
from headwater.storage.runs import Run
from tests.support.builders import JSON, TEXT, append_records, create, fence, s2_append
from tests.support.clock import START_MS
from tests.support.engines import EngineRunner, small_sizes

Row = tuple[bytes, int, int, tuple[tuple[bytes, bytes], ...]]


def stored(runner: EngineRunner, stream: Stream) -> list[Row]:
    """Body, flags, time and headers of every record."""
    cursor = RecordCursor(runner.engine.shard, stream, SeqNum(0), stream.tail.seq)
    rows: list[Row] = []
    while not cursor.done:
        for span in cursor.step():
            rows += _rows(span.run)[span.start : span.stop]
    return rows


def _rows(run: Run) -> list[Row]:
    times = memoryview(bytes(run.times)).cast("Q")
    headers = [tuple(pairs) for pairs in run.record_headers()]
    bodies = [bytes(body) for body in run.record_bodies()]
    return list(zip(bodies, run.flags, times, headers, strict=True))


records = st.lists(
    st.tuples(
        st.binary(max_size=40),
        st.sampled_from([(), (), ((b"k", b"v"),), ((b"", b"fence"),)]),
        st.integers(0, START_MS),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(appends=st.lists(records, min_size=1, max_size=4), json=st.booleans())
def test_records_of_s2_are_stored_one_by_one_as_they_came(
    appends: list[list[tuple[bytes, tuple[tuple[bytes, bytes], ...], int]]], json: bool
) -> None:
    with small_sizes(), EngineRunner() as runner:
        runner.create(create(content_type=JSON if json else TEXT))
        expected: list[Row] = []
        commands, size = [], 0
        for rows in appends:
            bodies = []
            for number, (text, pairs, time_ms) in enumerate(rows):
                is_command = pairs and pairs[0][0] == b""
                body = b"t" if is_command else b'"%b"' % text.hex().encode() if json else text
                bodies.append(body)
                size += 0 if is_command else len(body)
                flags = APPEND_START if number == 0 else 0
                flags |= COMMAND if is_command else 0
                flags |= 8 if pairs else 0
                time_ms = max(time_ms, expected[-1][2] if expected else 0)
                expected.append((body, flags, time_ms, pairs))
            headers = [list(pairs) for _, pairs, _ in rows]
            times: list[int | None] = [time_ms for *_, time_ms in rows]
            commands.append(s2_append("s", *bodies, headers=headers, times=times))
        answers = runner.together(*commands)
        stream = runner.open("s")
        assert stored(runner, stream) == expected
        starts = [0, *accumulate(map(len, appends))]
        for answer, start, end in zip(answers, starts, starts[1:], strict=False):
            assert (answer.first_seq, answer.tail.seq) == (start, end)
            assert answer.first_time_ms == expected[start][2]
            assert answer.last_time_ms == expected[end - 1][2]
        assert stream.tail.byte == size
        messages = sum(1 for row in expected if not row[1] & COMMAND)
        assert stream.state.tail_message == messages
        with EngineRunner(runner.store) as reopened:
            again = reopened.open("s").state
            assert (again.tail, again.tail_message) == (stream.tail, messages)
            assert again.last_time_ms == expected[-1][2]
            assert again.fencing_token == stream.state.fencing_token


@pytest.mark.parametrize("headers", [None, [(b"k", b"v")]])
def test_a_long_record_of_s2_is_never_cut(headers: list[tuple[bytes, bytes]] | None) -> None:
    body = b"x" * (MIB - 64)
    with EngineRunner() as runner:
        runner.create(create())
        command = s2_append("s", body, headers=None if headers is None else [headers])
        assert runner.result(runner.engine.append(command)).tail == (1, len(body))
        native = append_records("s", [b"", body], headers=[[], headers] if headers else None)
        assert runner.result(runner.engine.append(native)).tail.seq == 4
        assert runner.content("s") == body * 2


def test_a_commit_with_much_data_writes_runs_of_a_bounded_size() -> None:
    with EngineRunner(packing_enabled=False) as runner:
        runner.create(create())
        batch = [bytes([number % 256]) * KIB for number in range(900)]
        runner.together(*[s2_append("s", *batch) for _ in range(3)])
        runs = [value for _, value in runner.store.scan(b"r", b"s")]
        assert max(map(len, runs)) < 600 * KIB
        assert runner.content("s") == b"".join(batch) * 3


def test_command_records_show_no_bytes_to_other_readers() -> None:
    with EngineRunner() as runner:
        runner.create(create())
        runner.together(
            s2_append("s", b"a", b"b"), fence("s", "token"), s2_append("s", b"c", at_ms=1)
        )
        assert runner.content("s") == b"abc"
        stream = runner.open("s")
        assert (stream.tail, stream.state.tail_message) == ((4, 3), 3)
        assert [row[2] for row in stored(runner, stream)] == [TimestampMs(START_MS)] * 4
