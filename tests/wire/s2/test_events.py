"""Server-sent events of a read session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.wire.s2 import events
from headwater.wire.s2.events import EventId
from headwater.wire.s2.records import U64_MAX, Place

u64 = st.integers(0, U64_MAX)


@given(u64, u64, u64)
def test_an_id_is_read_back(seq: int, records: int, size: int) -> None:
    data = events.batch_event(b"{}", EventId(seq, records, size))
    line = data.split(b"\n")[1]

    assert events.parse_event_id(line.removeprefix(b"id:").decode()) == (seq, records, size)


@pytest.mark.parametrize(
    "text", ["", "1", "1,2", "1,2,3,4", "1,2,x", "-1,2,3", "1,2,18446744073709551616", "1,2,³"]
)
def test_what_is_not_an_id_is_none(text: str) -> None:
    assert events.parse_event_id(text) is None


def test_events_as_they_are_written() -> None:
    assert events.batch_event(b'{"records":[]}', EventId(4, 5, 74)) == (
        b'event: batch\nid: 4,5,74\ndata: {"records":[]}\n\n'
    )
    assert events.ping_event(9, Place(5, 7)) == (
        b'event: ping\ndata: {"timestamp":9,"tail":{"seq_num":5,"timestamp":7}}\n\n'
    )
    assert events.error_event(b'{"code":"x"}') == b'event: error\ndata: {"code":"x"}\n\n'
    assert events.DONE == b"data: [DONE]\n\n"
