"""Stream-Forked-From and Stream-Fork-Offset, as the create page has them. Ursula: create."""

from __future__ import annotations

import json

import pytest

from headwater.core.limits import RECORD_BODY_BYTES_MAX
from tests.support.durable import BYTES, JSON, START, TEXT, token
from tests.support.ursula import UrsulaServer


@pytest.fixture
def parent(server: UrsulaServer) -> UrsulaServer:
    """demo/s holds ab, cde and f."""
    server.make("demo/s", b"ab", b"cde", b"f")
    return server


@pytest.mark.parametrize("path", ["demo/s", "/demo/s", "demo/%73"])
def test_forked_from_is_the_path_of_the_parent(parent: UrsulaServer, path: str) -> None:
    parent.fork("demo/f", path)
    assert parent.content("demo/f") == b"abcdef"


@pytest.mark.parametrize("path", ["", "demo", "demo/", "/", "v1/stream", "a b/s", "demo/../s"])
def test_forked_from_that_is_no_path_is_400(parent: UrsulaServer, path: str) -> None:
    assert parent.put("demo/f", stream_forked_from=path).status == 400


def test_forked_from_a_stream_that_is_not_there_is_404(parent: UrsulaServer) -> None:
    assert parent.put("demo/f", stream_forked_from="demo/none").status == 404


def test_forked_from_another_bucket(parent: UrsulaServer) -> None:
    parent.fork("other/f")
    assert parent.content("other/f") == b"abcdef"


def test_a_fork_is_independent_after_creation(parent: UrsulaServer) -> None:
    parent.fork("demo/f")
    parent.append("demo/f", b"!")
    parent.append("demo/s", b"?")
    assert parent.content("demo/f") == b"abcdef!"
    assert parent.content("demo/s") == b"abcdef?"


def test_fork_offset_defaults_to_the_parents_tail(parent: UrsulaServer) -> None:
    assert parent.fork("demo/f") == token(3, 6)


@pytest.mark.parametrize(
    ("offset", "content"),
    [
        (token(2, 5), b"abcde"),
        ("5", b"abcde"),
        ("00000000000000000002", b"ab"),
        ("6", b"abcdef"),
        (token(3, 6), b"abcdef"),
        (START, b""),
        ("-1", b""),
        ("now", b"abcdef"),
    ],
)
def test_fork_offset_is_a_token_or_a_byte_position(
    parent: UrsulaServer, offset: str, content: bytes
) -> None:
    parent.fork("demo/f", stream_fork_offset=offset)
    assert parent.content("demo/f") == content


@pytest.mark.parametrize("offset", ["1", "3", "4", token(1, 3)])
def test_fork_offset_inside_a_record_is_400(parent: UrsulaServer, offset: str) -> None:
    reply = parent.put("demo/f", stream_forked_from="demo/s", stream_fork_offset=offset)
    assert (reply.status, reply.error) == (400, "invalid_offset")


@pytest.mark.parametrize("offset", ["7", "99999999999999999999", token(4, 7)])
def test_fork_offset_past_the_tail_is_400(parent: UrsulaServer, offset: str) -> None:
    reply = parent.put("demo/f", stream_forked_from="demo/s", stream_fork_offset=offset)
    assert (reply.status, reply.next) == (400, token(3, 6))


@pytest.mark.parametrize("offset", ["", "x", "+1", "1.0", "123456789012345678901"])
def test_fork_offset_that_is_none_is_400(parent: UrsulaServer, offset: str) -> None:
    reply = parent.put("demo/f", stream_forked_from="demo/s", stream_fork_offset=offset)
    assert reply.status == 400


def test_fork_offset_in_the_parts_of_a_long_message_is_400(server: UrsulaServer) -> None:
    server.make("demo/s", b"x" * (RECORD_BODY_BYTES_MAX + 1), b"y")
    at = str(RECORD_BODY_BYTES_MAX)
    reply = server.put("demo/f", stream_forked_from="demo/s", stream_fork_offset=at)
    assert reply.status == 400
    server.fork("demo/g", stream_fork_offset=str(RECORD_BODY_BYTES_MAX + 1))
    assert len(server.content("demo/g")) == RECORD_BODY_BYTES_MAX + 1


def test_fork_offset_in_a_fork_of_a_fork(parent: UrsulaServer) -> None:
    parent.fork("demo/f", stream_fork_offset="5")
    parent.append("demo/f", b"XY", b"Z")
    for offset, content in (("2", b"ab"), ("5", b"abcde"), ("7", b"abcdeXY"), ("8", b"abcdeXYZ")):
        parent.fork(f"demo/f{offset}", "demo/f", stream_fork_offset=offset)
        assert parent.content(f"demo/f{offset}") == content
    reply = parent.put("demo/g", stream_forked_from="demo/f", stream_fork_offset="6")
    assert reply.status == 400


def test_fork_offset_counts_bytes_of_json_messages_without_separators(server: UrsulaServer) -> None:
    server.make("demo/s", b'[{"a":1},22,3]', content_type=JSON)
    server.fork("demo/f", stream_fork_offset="9")
    assert json.loads(server.get("demo/f").body) == [{"a": 1}, 22]


@pytest.mark.parametrize("offset", ["0", "000"])
def test_fork_offset_0_is_an_empty_fork_that_inherits_metadata(
    server: UrsulaServer, offset: str
) -> None:
    attrs = '{"title":"parent"}'
    server.make("demo/s", b"12", content_type=JSON, stream_ttl="60", stream_attrs=attrs)
    reply = server.put("demo/f", stream_forked_from="demo/s", stream_fork_offset=offset)
    assert reply.status == 201
    assert reply.next == START
    assert reply.headers["content-type"] == JSON
    assert reply.headers["stream-ttl"] == "60"
    assert json.loads(server.get("demo/f/attrs").body) == {"title": "parent"}
    assert server.get("demo/f").body == b"[]"


def test_fork_offset_0_works_when_the_parent_is_trimmed(server: UrsulaServer) -> None:
    server.make("demo/s", b"ab", b"cd", stream_retention="records=1")
    server.advance(2)
    assert server.content("demo/s") == b"cd"
    assert server.fork("demo/f", stream_fork_offset="0") == START
    trimmed = server.put("demo/g", stream_forked_from="demo/s", stream_fork_offset="1")
    assert (trimmed.status, trimmed.next) == (410, token(1, 2))


def test_fork_offset_needs_forked_from(server: UrsulaServer) -> None:
    assert server.put("demo/f", stream_fork_offset="0").status == 400


def test_body_is_ignored(parent: UrsulaServer) -> None:
    reply = parent.put("demo/f", b"ignored", stream_forked_from="demo/s", content_type=TEXT)
    assert (reply.status, reply.next) == (201, token(3, 6))
    assert parent.content("demo/f") == b"abcdef"


def test_body_is_ignored_even_if_it_would_be_bad_json(server: UrsulaServer) -> None:
    server.make("demo/s", b"1", content_type=JSON)
    assert server.put("demo/f", b"{", stream_forked_from="demo/s").status == 201


def test_content_type_is_inherited(parent: UrsulaServer) -> None:
    parent.fork("demo/f")
    assert parent.head("demo/f").headers["content-type"] == TEXT


@pytest.mark.parametrize("kind", [BYTES, "text/html", "text/plain; charset=utf-8"])
def test_content_type_may_be_overridden_when_neither_is_json(
    parent: UrsulaServer, kind: str
) -> None:
    parent.fork("demo/f", content_type=kind)
    assert parent.head("demo/f").headers["content-type"] == kind
    assert parent.content("demo/f") == b"abcdef"
    parent.append("demo/f", b"!")


def test_content_type_may_be_overridden_when_both_are_json(server: UrsulaServer) -> None:
    server.make("demo/s", b"1", content_type=JSON)
    server.fork("demo/f", content_type="application/json; charset=utf-8")
    assert server.head("demo/f").headers["content-type"] == "application/json; charset=utf-8"
    assert server.get("demo/f").body == b"[1]"


@pytest.mark.parametrize(("source", "kind"), [(TEXT, JSON), (JSON, TEXT)])
def test_content_type_between_json_and_others_is_409_unless_nothing_is_inherited(
    server: UrsulaServer, source: str, kind: str
) -> None:
    server.make("demo/s", b"12", content_type=source)
    reply = server.put("demo/f", stream_forked_from="demo/s", content_type=kind)
    assert (reply.status, reply.error) == (409, "content_type_mismatch")
    server.fork("demo/f", content_type=kind, stream_fork_offset="0")
    server.append("demo/f", b"3")
    assert server.content("demo/f") == (b"[3]" if kind == JSON else b"3")


def test_lifetime_is_inherited_unless_set(server: UrsulaServer) -> None:
    server.make("demo/s", stream_ttl="60")
    server.advance(50)
    assert server.put("demo/f", stream_forked_from="demo/s").headers["stream-ttl"] == "60"
    given = server.put("demo/g", stream_forked_from="demo/s", stream_ttl="5")
    assert given.headers["stream-ttl"] == "5"
    server.advance(20)
    assert server.head("demo/s").status != 200
    assert server.head("demo/f").headers["stream-ttl"] == "40"


def test_expiration_is_inherited_unless_set(server: UrsulaServer) -> None:
    at, later = "2027-01-15T09:00:00.000Z", "2027-01-15T10:00:00.000Z"
    server.make("demo/s", stream_expires_at=at)
    fork = server.put("demo/f", stream_forked_from="demo/s")
    assert fork.headers["stream-expires-at"] == at
    other = server.put("demo/g", stream_forked_from="demo/s", stream_expires_at=later)
    assert other.headers["stream-expires-at"] == later
    ttl = server.put("demo/h", stream_forked_from="demo/s", stream_ttl="5")
    assert ttl.headers["stream-ttl"] == "5"
    assert "stream-expires-at" not in ttl.headers


def test_attributes_are_inherited_unless_set(server: UrsulaServer) -> None:
    server.make("demo/s", stream_attrs='{"title":"parent"}')
    for name, given, title in (
        ("f", {}, {"title": "parent"}),
        ("g", {"stream_attrs": '{"title":"own"}'}, {"title": "own"}),
        ("h", {"stream_attrs": "{}"}, {}),
    ):
        server.fork(f"demo/{name}", **given)
        assert json.loads(server.get(f"demo/{name}/attrs").body) == title


@pytest.mark.parametrize(
    ("other", "status"),
    [
        ({}, 200),
        ({"stream_fork_offset": "5"}, 200),
        ({"stream_fork_offset": token(2, 5)}, 200),
        ({"stream_fork_offset": "2"}, 409),
        ({"stream_fork_offset": token(1, 2)}, 409),
        ({"stream_forked_from": "demo/other"}, 409),
    ],
)
def test_a_repeated_fork_compares_its_source(
    parent: UrsulaServer, other: dict[str, str], status: int
) -> None:
    parent.make("demo/other", b"ab", b"cde")
    parent.fork("demo/f", stream_fork_offset="5")
    parent.append("demo/s", b"more")
    reply = parent.put("demo/f", **{"stream_forked_from": "demo/s", **other})
    assert reply.status == status


def test_the_parent_is_kept_until_its_forks_are_deleted(parent: UrsulaServer) -> None:
    parent.fork("demo/f")
    assert parent.delete("demo/s").status == 204
    assert parent.get("demo/s").status == 410
    assert parent.content("demo/f") == b"abcdef"
    assert parent.put("demo/s", content_type=TEXT).status == 409
    assert parent.delete("demo/f").status == 204
    assert parent.put("demo/s", content_type=TEXT).status == 201


def test_a_parents_retention_never_touches_its_forks(parent: UrsulaServer) -> None:
    parent.fork("demo/f")
    assert parent.request("PATCH", "demo/s", stream_retention="records=1").status == 204
    parent.advance(3)
    assert parent.content("demo/s") == b"f"
    assert parent.content("demo/f") == b"abcdef"
