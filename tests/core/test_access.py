"""Scopes and grants: which operations on which names a token permits."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.access import (
    EVERY_NAME,
    EVERYTHING,
    NO_NAMES,
    TRAITS,
    About,
    Grant,
    Group,
    Groups,
    Names,
    Operation,
    Permissions,
    Scope,
)
from headwater.core.types import TimestampMs

READ_ONLY = Permissions(read=True)
WRITE_ONLY = Permissions(write=True)

name_sets = st.one_of(
    st.builds(Names, exact=st.text("ab/", max_size=3)),
    st.builds(Names, prefix=st.text("ab/", max_size=3)),
)
names = st.text("ab/", max_size=4)


@pytest.mark.parametrize(
    ("these", "name", "has"),
    [
        (Names(exact="a"), "a", True),
        (Names(exact="a"), "ab", False),
        (Names(exact=""), "", False),
        (Names(exact=""), "a", False),
        (Names(prefix="a"), "a", True),
        (Names(prefix="a"), "ab", True),
        (Names(prefix="a"), "ba", False),
        (Names(prefix=""), "anything", True),
        (Names(), "a", False),
    ],
)
def test_a_name_is_one_of_these_or_not(these: Names, name: str, has: bool) -> None:
    assert these.has(name) is has


@given(inner=name_sets, outer=name_sets, name=names)
def test_names_within_others_never_reach_further(inner: Names, outer: Names, name: str) -> None:
    if inner.is_within(outer) and inner.has(name):
        assert outer.has(name)


@pytest.mark.parametrize(
    ("inner", "outer", "within"),
    [
        (NO_NAMES, NO_NAMES, True),
        (NO_NAMES, EVERY_NAME, True),
        (EVERY_NAME, EVERY_NAME, True),
        (EVERY_NAME, NO_NAMES, False),
        (EVERY_NAME, Names(prefix="a"), False),
        (Names(prefix="ab"), Names(prefix="a"), True),
        (Names(prefix="a"), Names(prefix="ab"), False),
        (Names(prefix="a"), Names(exact="a"), False),
        (Names(exact="ab"), Names(prefix="a"), True),
        (Names(exact="a"), Names(exact="a"), True),
        (Names(exact="a"), Names(exact="b"), False),
    ],
)
def test_what_is_within_what(inner: Names, outer: Names, within: bool) -> None:
    assert inner.is_within(outer) is within


def test_every_operation_has_its_row() -> None:
    assert TRAITS.keys() == set(Operation)


@pytest.mark.parametrize(
    ("groups", "some", "others"),
    [
        (
            Groups(account=READ_ONLY),
            {Operation.LIST_BASINS, Operation.GET_BASIN_CONFIG, Operation.ACCOUNT_METRICS},
            {Operation.CREATE_BASIN, Operation.LIST_STREAMS, Operation.READ},
        ),
        (
            Groups(basin=WRITE_ONLY),
            {Operation.CREATE_STREAM, Operation.DELETE_STREAM, Operation.RECONFIGURE_STREAM},
            {Operation.LIST_STREAMS, Operation.CREATE_BASIN, Operation.APPEND},
        ),
        (
            Groups(stream=READ_ONLY),
            {Operation.READ, Operation.CHECK_TAIL, Operation.STREAM_METRICS},
            {Operation.APPEND, Operation.TRIM, Operation.FENCE, Operation.GET_STREAM_CONFIG},
        ),
        (
            Groups(stream=WRITE_ONLY),
            {Operation.APPEND, Operation.TRIM, Operation.FENCE},
            {Operation.READ, Operation.CHECK_TAIL},
        ),
    ],
)
def test_a_group_permits_its_operations(
    groups: Groups, some: set[Operation], others: set[Operation]
) -> None:
    permitted = Scope(op_groups=groups).operations()
    assert some <= permitted
    assert not others & permitted


def test_operations_and_groups_add_up() -> None:
    scope = Scope(op_groups=Groups(stream=READ_ONLY), ops=(Operation.CREATE_STREAM,))
    expected = {Operation.READ, Operation.CHECK_TAIL, Operation.STREAM_METRICS}
    assert scope.operations() == expected | {Operation.CREATE_STREAM}


def test_a_scope_without_groups_or_operations_permits_nothing() -> None:
    assert Scope(basins=EVERY_NAME).operations() == frozenset()
    assert Scope(op_groups=Groups(account=Permissions())).operations() == frozenset()


def test_the_root_scope_permits_everything_everywhere() -> None:
    grant = Grant("root", EVERYTHING)
    for operation in Operation:
        assert grant.allows(operation, basin="b", stream="s", token="t")


def test_a_scope_is_within_another_in_every_respect() -> None:
    assert EVERYTHING.is_within(EVERYTHING)
    assert Scope().is_within(Scope())
    outer = Scope(Names(prefix="b"), Names(prefix="s"), Names(prefix="t"), ops=(Operation.READ,))
    assert Scope(Names(exact="b1"), ops=(Operation.READ,)).is_within(outer)
    assert not Scope(ops=(Operation.APPEND,)).is_within(outer)
    assert not Scope(Names(prefix="c"), ops=(Operation.READ,)).is_within(outer)
    assert not Scope(streams=Names(prefix=""), ops=(Operation.READ,)).is_within(outer)
    assert not Scope(access_tokens=Names(exact="u"), ops=(Operation.READ,)).is_within(outer)


def test_a_grant_judges_every_name_that_is_given() -> None:
    scope = Scope(Names(exact="b"), Names(prefix="s/"), Names(exact="t"), ops=(Operation.READ,))
    grant = Grant("g", scope)
    assert grant.allows(Operation.READ, basin="b", stream="s/1")
    assert grant.allows(Operation.READ)
    assert not grant.allows(Operation.APPEND, basin="b", stream="s/1")
    assert not grant.allows(Operation.READ, basin="c", stream="s/1")
    assert not grant.allows(Operation.READ, basin="b", stream="r")
    assert grant.allows(Operation.READ, token="t")
    assert not grant.allows(Operation.READ, token="u")


def test_names_that_a_scope_leaves_out_are_none() -> None:
    grant = Grant("g", Scope(ops=(Operation.READ,)))
    assert not grant.allows(Operation.READ, basin="b")
    assert not grant.allows(Operation.READ, stream="s")
    assert not grant.allows(Operation.READ, token="t")
    assert not grant.sees("b", "s")


def test_all_streams_of_a_prefix() -> None:
    grant = Grant("g", Scope(EVERY_NAME, Names(prefix="s/"), ops=(Operation.READ,)))
    assert grant.allows_all(Operation.READ, basin="b", prefix="s/x")
    assert not grant.allows_all(Operation.READ, basin="b", prefix="s")
    assert not grant.allows_all(Operation.APPEND, basin="b", prefix="s/x")
    exact = Grant("g", Scope(EVERY_NAME, Names(exact="s"), ops=(Operation.READ,)))
    assert not exact.allows_all(Operation.READ, basin="b", prefix="s")


@pytest.mark.parametrize(
    ("names", "prefix", "narrowed"),
    [
        (EVERY_NAME, "a", "a"),
        (Names(prefix="ab"), "", "ab"),
        (Names(prefix="ab"), "a", "ab"),
        (Names(prefix="ab"), "abc", "abc"),
        (Names(prefix="ab"), "x", "x"),
        (Names(exact="ab"), "a", "ab"),
        (Names(exact="ab"), "abc", "abc"),
        (Names(exact=""), "a", "a"),
    ],
)
def test_a_prefix_is_narrowed_by_the_names_of_a_scope(
    names: Names, prefix: str, narrowed: str
) -> None:
    grant = Grant("g", Scope(EVERY_NAME, names, ops=(Operation.LIST_STREAMS,)))
    assert grant.narrow(prefix) == narrowed


def test_a_scope_may_have_just_one_basin() -> None:
    scopes = (EVERY_NAME, Names(prefix="b"), Names(exact="b"), Names(exact=""), None)
    found = [Grant("g", Scope(basins)).only_basin for basins in scopes]
    assert found == [None, None, "b", "", ""]


def test_a_grant_ends_with_its_time_or_when_it_is_revoked() -> None:
    grant = Grant("g", EVERYTHING, expires_at_ms=TimestampMs(10))
    assert not grant.is_over(TimestampMs(9))
    assert grant.is_over(TimestampMs(10))
    endless = Grant("g", EVERYTHING)
    assert not endless.is_over(TimestampMs(2**60))
    endless.revoked = True
    assert endless.is_over(TimestampMs(0))


def test_only_a_token_that_asks_for_it_has_a_stream_prefix() -> None:
    scope = Scope(EVERY_NAME, Names(prefix="s/"), ops=(Operation.READ,))
    assert Grant("g", scope, auto_prefix=True).stream_prefix == "s/"
    assert Grant("g", scope).stream_prefix == ""
    assert Grant("g", Scope(ops=(Operation.READ,)), auto_prefix=True).stream_prefix == ""


def test_a_scope_is_stored_and_sent_as_the_api_has_it() -> None:
    text = b'{"basins":{"exact":"b"},"op_groups":{"stream":{"read":true,"write":false}}}'
    scope = msgspec.json.decode(text, type=Scope)
    assert scope == Scope(Names(exact="b"), op_groups=Groups(stream=READ_ONLY))
    assert msgspec.json.encode(scope) == text
    packed = msgspec.msgpack.encode(EVERYTHING)
    assert msgspec.msgpack.decode(packed, type=Scope) == EVERYTHING


def test_the_names_of_the_tables_are_the_ones_of_the_api() -> None:
    assert len(Operation) == 24
    assert {group.value for group in Group} == {"account", "basin", "stream"}
    assert {TRAITS[operation].about for operation in Operation} == set(About)
