"""Patterns over stream names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import InvalidRequest
from headwater.core.globs import Glob


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("events/*", "events/a", True),
        ("events/*", "events", False),
        ("events/*", "events/a/b", False),
        ("events/*", "other/a", False),
        ("*", "a", True),
        ("*", "a/b", False),
        ("**", "a", True),
        ("**", "a/b/c", True),
        ("events/**", "events", True),
        ("events/**", "events/a/b", True),
        ("events/**", "event", False),
        ("**/done", "done", True),
        ("**/done", "a/b/done", True),
        ("**/done", "a/done/b", False),
        ("a/**/b/*/c", "a/x/b/b/y/c", True),
        ("a/**/b/*/c", "a/b/y/z/c", False),
        ("a/**/**", "a", True),
        ("a/b", "a/b", True),
        ("a/b", "a/b/c", False),
        ("a/%2A", "a/*", True),
        ("a/%2a", "a/b", False),
        ("a/*/b", "a//b", True),
        ("**", "__ds", False),
        ("**", "__ds/subscriptions/x", False),
        ("*/a", "__ds/a", False),
    ],
)
def test_a_star_is_one_segment_and_two_are_any_number(
    pattern: str, name: str, matches: bool
) -> None:
    assert Glob(pattern).matches(name) is matches


@pytest.mark.parametrize("pattern", ["a*", "a/b*c", "***", "a/**b"])
def test_a_star_within_a_segment_is_refused_rather_than_never_matched(pattern: str) -> None:
    with pytest.raises(InvalidRequest, match="whole segment"):
        Glob(pattern)


def test_many_stars_do_not_take_for_ever() -> None:
    assert not Glob("/".join(["**", "a"] * 60)).matches("/".join(["a"] * 250) + "/b")


_segments = st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=6)
_names = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6)


def _plainly_matches(pattern: list[str], name: list[str]) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(_plainly_matches(pattern[1:], name[skip:]) for skip in range(len(name) + 1))
    if not name or pattern[0] not in ("*", name[0]):
        return False
    return _plainly_matches(pattern[1:], name[1:])


@settings(deadline=None)
@given(pattern=_segments, name=_names)
def test_matching_agrees_with_the_definition(pattern: list[str], name: list[str]) -> None:
    glob = Glob("/".join(pattern))
    text = "/".join(name)
    assert glob.matches(text) is _plainly_matches(pattern, name)
    if glob.matches(text):
        assert text.startswith(glob.prefix)


@pytest.mark.parametrize(
    ("pattern", "reach"),
    [
        ("a/b", [("a/b", False)]),
        ("a/*", [("a/", True)]),
        ("a/*/c", [("a/", True)]),
        ("a/**", [("a", False), ("a/", True)]),
        ("*", [("", True)]),
        ("**/a", [("", True)]),
    ],
)
def test_the_reach_of_a_pattern(pattern: str, reach: list[tuple[str, bool]]) -> None:
    assert Glob(pattern).reach() == reach


@given(
    pattern=st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=4),
    name=st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=4),
)
def test_nothing_beyond_its_reach_matches(pattern: list[str], name: list[str]) -> None:
    glob, text = Glob("/".join(pattern)), "/".join(name)
    if glob.matches(text):
        assert any(
            text.startswith(start) if is_prefix else text == start
            for start, is_prefix in glob.reach()
        )
