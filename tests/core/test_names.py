"""Bucket and stream names: what is accepted, what is reserved, what strict mode adds."""

from __future__ import annotations

import pytest

from headwater.core.errors import InvalidRequest
from headwater.core.names import NameRules, check_bucket, check_stream


@pytest.mark.parametrize(
    "bucket",
    [
        "a",
        "durable-streams",
        "A.b_c-9",
        "...",
        "_x",
        "x" * 64,
        pytest.param("V1", id="reserved names are case-sensitive"),
    ],
)
def test_a_bucket_name_is_accepted(bucket: str) -> None:
    assert check_bucket(bucket) == bucket


@pytest.mark.parametrize(
    "bucket",
    [
        pytest.param("", id="empty"),
        pytest.param("x" * 65, id="too long"),
        pytest.param("a/b", id="slash"),
        pytest.param("a b", id="space"),
        pytest.param("a\n", id="newline at the end"),
        pytest.param("é", id="not ASCII"),
        pytest.param("a\0", id="NUL"),
        pytest.param(".", id="dot"),
        pytest.param("..", id="two dots"),
    ],
)
def test_a_bucket_name_that_breaks_the_rules_is_refused(bucket: str) -> None:
    with pytest.raises(InvalidRequest, match="1 to 64"):
        check_bucket(bucket)


@pytest.mark.parametrize(
    "bucket",
    ["v1", "health", "ready", "metrics", "console", "favicon.ico", "robots.txt", "__ds", "__"],
)
def test_a_reserved_bucket_name_is_refused(bucket: str) -> None:
    with pytest.raises(InvalidRequest, match="reserved"):
        check_bucket(bucket)


@pytest.mark.parametrize(
    ("bucket", "accepted"),
    [
        ("abcd", True),
        ("a_-9", True),
        ("x" * 64, True),
        ("abc", False),
        ("Abcd", False),
        ("ab.cd", False),
    ],
)
def test_strict_bucket_names_are_those_of_the_ursula_protocol(bucket: str, accepted: bool) -> None:
    if accepted:
        assert check_bucket(bucket, NameRules.STRICT) == bucket
    else:
        with pytest.raises(InvalidRequest):
            check_bucket(bucket, NameRules.STRICT)


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "a/b/c",
        "/a",
        "a//b",
        "a/",
        "...",
        ".a",
        "a.",
        "a/..b",
        "über uns?&=#%",
        "\t",
        "x" * 512,
        "é" * 256,
    ],
)
def test_a_stream_name_is_accepted(name: str) -> None:
    assert check_stream(name) == name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("x" * 513, id="too long"),
        pytest.param("é" * 257, id="too long in bytes"),
        pytest.param("a\0b", id="NUL"),
        pytest.param(".", id="dot"),
        pytest.param("..", id="two dots"),
        pytest.param("a/../b", id="two dots within"),
        pytest.param("a/.", id="dot at the end"),
        pytest.param("../a", id="two dots at the start"),
        pytest.param("\ud800", id="half a character"),
    ],
)
def test_a_stream_name_that_breaks_the_rules_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_stream(name)


def test_a_strict_stream_name_has_at_most_122_bytes() -> None:
    assert check_stream("x" * 122, NameRules.STRICT)
    with pytest.raises(InvalidRequest, match="122"):
        check_stream("x" * 123, NameRules.STRICT)
