"""Commands have a byte encoding: there and back, and old bytes stay readable."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import commands
from headwater.core.commands import (
    Append,
    Command,
    Create,
    Delete,
    Expire,
    ForkClaim,
    SaveDocument,
    Touch,
)
from headwater.core.limits import PRODUCER_NUMBER_MAX
from headwater.core.producer import ProducerClaim, ProducerMark
from headwater.core.stream import (
    Extent,
    Origin,
    StreamState,
    WriterChanges,
    decode_changes,
    decode_state,
    encode_changes,
    encode_state,
)
from headwater.core.types import Position

numbers = st.integers(0, PRODUCER_NUMBER_MAX)
text = st.text(max_size=8)
claims = st.builds(ProducerClaim, text, numbers, numbers)
positions = st.builds(Position, numbers, numbers)
forks = st.builds(ForkClaim, text, text, st.none() | positions, numbers)
addressed = (text, text, numbers)

every_command: st.SearchStrategy[Command] = st.one_of(
    st.builds(
        Create,
        *addressed,
        st.none() | text,
        st.binary(max_size=16),
        st.booleans(),
        st.none() | numbers,
        st.none() | numbers,
        st.booleans(),
        st.none() | text,
        st.none() | claims,
        st.none() | forks,
        st.none() | st.binary(max_size=8),
    ),
    st.builds(
        Append,
        *addressed,
        st.none() | text,
        st.binary(max_size=16),
        st.booleans(),
        st.none() | claims,
        st.none() | text,
        st.none() | positions,
        st.none() | numbers,
    ),
    st.builds(Delete, *addressed),
    st.builds(Touch, *addressed),
    st.builds(Expire, *addressed),
    st.builds(SaveDocument, *addressed, st.none() | st.binary(max_size=8)),
)

marks = st.builds(ProducerMark, numbers, numbers, numbers)
changes = st.builds(
    WriterChanges,
    st.dictionaries(text, marks, max_size=4),
    st.none() | text,
    st.booleans(),
    st.none() | claims,
)
states = st.builds(
    StreamState,
    id=numbers,
    bucket=text,
    name=text,
    created_at_ms=numbers,
    content_type=text,
    json=st.booleans(),
    tail_seq=numbers,
    tail_byte=numbers,
    tail_message=numbers,
    closed=st.booleans(),
    closed_by=st.none() | claims,
    producers=st.dictionaries(text, marks, max_size=4),
    stream_seq=st.none() | text,
    ttl_s=st.none() | numbers,
    ttl_from_access=st.booleans(),
    touched_at_ms=numbers,
    expires_at_ms=st.none() | numbers,
    extents=st.lists(
        st.builds(Extent, numbers, numbers, numbers, st.none() | numbers), max_size=3
    ).map(tuple),
    own_first_seq=numbers,
    origin=st.none() | st.builds(Origin, text, text, numbers, positions, numbers),
    references=numbers,
    deleted=st.booleans(),
    attributes=st.none() | st.binary(max_size=8),
    partial_chunks=st.lists(st.tuples(numbers, numbers), max_size=3),
)


@settings(deadline=None, max_examples=200)
@given(command=every_command)
def test_a_command_survives_its_encoding(command: Command) -> None:
    decoded = commands.decode(commands.encode(command))
    assert decoded == command
    assert type(decoded) is type(command)
    assert commands.encode(decoded) == commands.encode(command)


@settings(deadline=None)
@given(state=states)
def test_a_checkpoint_survives_its_encoding(state: StreamState) -> None:
    decoded = decode_state(encode_state(state))
    assert decoded == state
    assert list(decoded.producers) == list(state.producers), "the order of last use is kept"
    assert encode_state(decoded) == encode_state(state)


@settings(deadline=None)
@given(change=changes)
def test_writer_changes_survive_their_encoding(change: WriterChanges) -> None:
    decoded = decode_changes(encode_changes(change))
    assert decoded == change
    assert list(decoded.producers) == list(change.producers)


def test_a_command_without_the_newer_fields_takes_their_defaults() -> None:
    short = msgspec.msgpack.encode(["append", "bucket", "name", 5, "text/plain", b"body"])
    decoded = commands.decode(short)
    assert isinstance(decoded, Append)
    assert (decoded.body, decoded.close, decoded.producer) == (b"body", False, None)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(msgspec.msgpack.encode(["unknown", "b", "n", 5]), id="unknown kind"),
        pytest.param(msgspec.msgpack.encode(["delete", "b"]), id="missing fields"),
        pytest.param(msgspec.msgpack.encode(["delete", "b", "n", "5"]), id="wrong type"),
        pytest.param(commands.encode(Delete("b", "n", 5))[:-1], id="cut short"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_command_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        commands.decode(data)
