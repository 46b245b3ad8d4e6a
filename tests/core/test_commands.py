"""Commands have a byte encoding: there and back, and old bytes stay readable."""

from __future__ import annotations

from enum import Enum
from types import UnionType
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import commands
from headwater.core.commands import Append, Command, Delete
from headwater.core.limits import PRODUCER_NUMBER_MAX
from headwater.core.stream import (
    StreamState,
    WriterChanges,
    decode_changes,
    decode_state,
    encode_changes,
    encode_state,
)

numbers = st.integers(0, PRODUCER_NUMBER_MAX)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: numbers,
    str: st.text(max_size=8),
    bytes: st.binary(max_size=16),
    bool: st.booleans(),
    type(None): st.none(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Whatever a field of this type may hold, so that no command and no field is forgotten."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if isinstance(kind, NewType):
        return values(kind.__supertype__)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if origin in (UnionType, Union):
        return st.one_of([values(argument) for argument in arguments])
    if origin is list:
        return st.lists(values(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=4)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    fields = get_type_hints(kind)
    return st.builds(kind, **{name: values(field) for name, field in fields.items()})


every_command: st.SearchStrategy[Command] = values(Command)


@settings(deadline=None, max_examples=200)
@given(command=every_command)
def test_a_command_survives_its_encoding(command: Command) -> None:
    decoded = commands.decode(commands.encode(command))
    assert decoded == command
    assert type(decoded) is type(command)
    assert commands.encode(decoded) == commands.encode(command)


@settings(deadline=None)
@given(state=values(StreamState))
def test_a_checkpoint_survives_its_encoding(state: StreamState) -> None:
    decoded = decode_state(encode_state(state))
    assert decoded == state
    assert list(decoded.producers) == list(state.producers), "the order of last use is kept"
    assert encode_state(decoded) == encode_state(state)


@settings(deadline=None)
@given(change=values(WriterChanges))
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
