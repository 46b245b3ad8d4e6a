"""Runs of every kind, record by record and as columns: both must say the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.records import APPEND_START, COMMAND, CONTINUES
from headwater.core.types import ByteOffset, SeqNum
from headwater.dialects.log.views import columns, rows
from headwater.engine.records import Span
from headwater.storage.runs import Run, RunBuilder
from headwater.wire import arrow
from tests.support.log import decode_table

FIRST = SeqNum(100)

bodies = st.binary(max_size=6)
header_lists = st.lists(st.tuples(st.binary(min_size=1, max_size=3), st.binary(max_size=3)))


@st.composite
def spans(draw: st.DrawFn) -> Span:
    """Messages of one or more parts, commands between them, some with headers; perhaps cut."""
    json = draw(st.booleans())
    builder = RunBuilder(FIRST, ByteOffset(0), 0, json=json)
    with_headers, with_parts, with_commands = draw(st.tuples(*[st.booleans()] * 3))
    for number in range(draw(st.integers(1, 6))):
        headers = draw(header_lists) if with_headers else []
        flags = draw(st.sampled_from([0, APPEND_START]))
        if with_commands and draw(st.booleans()):
            builder.add(draw(bodies), flags | COMMAND, 1000 + number, headers)
            continue
        parts = draw(st.integers(1, 3)) if with_parts else 1
        for part in range(parts):
            more = CONTINUES if part < parts - 1 else 0
            builder.add(draw(bodies), flags | more, 1000 + number, headers if part == 0 else [])
            flags = 0
    run = Run(FIRST, builder.encode())
    end = run.count
    cut = None
    if not json and draw(st.booleans()):
        end = draw(st.integers(1, run.count))
        cut = draw(st.integers(0, run.lengths[end - 1]))
    elif end > 1 and draw(st.booleans()):
        ends = [at for at in range(1, end + 1) if not run.flags[at - 1] & CONTINUES]
        end = draw(st.sampled_from(ends))  # a fork leaves between two messages
    start = draw(st.integers(0, end))
    stop = end if draw(st.booleans()) else draw(st.integers(start, end))
    return Span(run, start, stop, end, cut)


def as_table(span: Span, *, joined: bool) -> list[dict[str, Any]]:
    part = columns(span, joined=joined)
    batch = bytes(arrow.encode_batch([part]))
    found: list[dict[str, Any]] = decode_table(
        bytes(arrow.encode_schema()) + batch + arrow.encode_end()
    ).to_pylist()
    assert len(found) == part.rows
    for row in found:
        row["timestamp"] = round(row["timestamp"].timestamp() * 1000)
    return found


@settings(max_examples=400)
@given(span=spans(), joined=st.booleans())
def test_columns_and_rows_are_the_same_records(span: Span, joined: bool) -> None:
    expected = [
        {
            "seq_num": row.seq,
            "timestamp": row.time_ms,
            "body": bytes(row.body),
            "headers": [{"name": name, "value": value} for name, value in row.headers],
            "flags": row.flags,
        }
        for row in rows(span, joined=joined)
    ]
    assert as_table(span, joined=joined) == expected


@given(span=spans(), data=st.data())
def test_messages_are_the_records_joined_wherever_the_range_is_cut(
    span: Span, data: st.DataObject
) -> None:
    whole = span._replace(start=0, stop=span.end)
    expected, parts = [], []
    for row in rows(whole, joined=False):
        if row.flags & COMMAND:
            continue
        parts.append(bytes(row.body))
        if not row.flags & CONTINUES:
            expected.append(b"".join(parts))
            parts = []
    assert not parts
    middle = data.draw(st.integers(0, span.end))
    halves = (whole._replace(stop=middle), whole._replace(start=middle))
    found = [bytes(row.body) for half in halves for row in rows(half, joined=True)]
    assert found == expected


@pytest.mark.parametrize("joined", [False, True])
def test_a_command_is_a_record_and_no_message(joined: bool) -> None:
    builder = RunBuilder(FIRST, ByteOffset(0), 0, json=True)
    builder.add(b"1", APPEND_START, 5)
    builder.add(b"fence", COMMAND, 5, [(b"", b"fence")])
    builder.add(b"2", APPEND_START, 6)
    span = Span(Run(FIRST, builder.encode()), 0, 3, 3)
    found = [(row["seq_num"], row["body"], row["flags"]) for row in as_table(span, joined=joined)]
    command = [] if joined else [(101, b"fence", 4)]
    assert found == [(100, b"1", 1), *command, (102, b"2", 1)]
    assert [row.whole for row in rows(span, joined=False)] == [True, False, True]
