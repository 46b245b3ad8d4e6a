"""Buckets: made, described, listed, limited, removed. Ursula: buckets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.storage.memory import MemoryStore
from tests.support.durable import JSON, TEXT, token
from tests.support.ursula import UrsulaServer


def info(server: UrsulaServer, bucket: str = "demo") -> Any:
    reply = server.request("GET", bucket)
    assert reply.status == 200, reply
    return json.loads(reply.body)


def configure(server: UrsulaServer, bucket: str = "demo", **config: object) -> int:
    return server.request("PUT", bucket, "", json.dumps(config).encode()).status


def listed(server: UrsulaServer, query: str = "") -> Any:
    reply = server.request("GET", "demo/streams", query)
    assert reply.status == 200, reply
    return json.loads(reply.body)


def test_put_is_201_then_200(server: UrsulaServer) -> None:
    assert server.request("PUT", "demo").status == 201
    assert server.request("PUT", "demo").status == 200


@pytest.mark.parametrize("bucket", ["a%20b", "x" * 65])
def test_put_of_what_is_no_name_is_400(server: UrsulaServer, bucket: str) -> None:
    assert server.request("PUT", bucket).status == 400


def test_get_tells_sizes_defaults_and_limits(server: UrsulaServer) -> None:
    configure(server, retention="age=60", content_type=TEXT, streams_max=5, bytes_max=100)
    server.make("demo/a", b"ab", b"c")
    server.make("demo/b")
    assert info(server) == {
        "name": "demo",
        "created_at": "2027-01-15T08:00:00.000Z",
        "streams": 2,
        "bytes": 3,
        "records": 2,
        "defaults": {"retention": "age=60", "content_type": TEXT},
        "limits": {"streams_max": 5, "bytes_max": 100, "body_bytes_max": 32 * 1024 * 1024},
    }


def test_get_and_list_of_none_are_404(server: UrsulaServer) -> None:
    assert server.request("GET", "demo").status == 404
    assert server.request("GET", "demo/streams").status == 404
    assert info(server, "durable-streams")["streams"] == 0


def test_list_by_prefix_and_page(server: UrsulaServer) -> None:
    for name in ("a/1", "a/2", "b", "c%2Fd"):
        server.make(f"demo/{name}")
    server.make("demo2/x")
    assert [found["name"] for found in listed(server)["streams"]] == ["a/1", "a/2", "b", "c/d"]
    assert listed(server)["next"] is None
    assert [found["name"] for found in listed(server, "prefix=a/")["streams"]] == ["a/1", "a/2"]
    page = listed(server, "limit=2")
    assert page["next"] == "a/2"
    rest = listed(server, "limit=2&after=a/2")
    assert [found["name"] for found in rest["streams"]] == ["b", "c/d"]
    assert rest["next"] is None


def test_list_describes_each_stream(server: UrsulaServer) -> None:
    server.make("demo/s", b"ab", stream_attrs='{"title":"t"}')
    assert listed(server)["streams"] == [
        {
            "name": "s",
            "content_type": TEXT,
            "next_offset": token(1, 2),
            "retained_offset": token(0, 0),
            "bytes": 2,
            "closed": False,
            "created_at": "2027-01-15T08:00:00.000Z",
            "attrs": {"title": "t"},
        }
    ]


@pytest.mark.parametrize(
    "limit", ["0", "1001", "x", "-1", "", "0000000019", "000000001" + "9" * 5000]
)
def test_list_limit_is_1_to_1000(server: UrsulaServer, limit: str) -> None:
    server.request("PUT", "demo")
    assert server.request("GET", "demo/streams", f"limit={limit}").status == 400


def test_delete_is_204_404_or_409(server: UrsulaServer) -> None:
    assert server.delete("demo").status == 404
    server.make("demo/s")
    refused = server.delete("demo")
    assert (refused.status, refused.error) == (409, "conflict")
    server.delete("demo/s")
    assert server.delete("demo").status == 204
    assert server.request("GET", "demo").status == 404
    assert server.delete("demo").status == 404
    assert server.delete("durable-streams").status == 409


def test_delete_sees_the_stream_that_comes_with_it_in_one_commit(server: UrsulaServer) -> None:
    server.request("PUT", "demo")
    made, dropped = server.begin("PUT", "demo/s"), server.begin("DELETE", "demo")
    assert server.runner.result(made).status == 201
    assert server.runner.result(dropped).status == 409
    gone, dropped = server.begin("DELETE", "demo/s"), server.begin("DELETE", "demo")
    assert server.runner.result(gone).status == 204
    assert server.runner.result(dropped).status == 204


def test_defaults_are_for_streams_that_do_not_say(server: UrsulaServer) -> None:
    configure(server, retention="records=1", content_type=JSON)
    assert server.put("demo/s").headers["content-type"] == JSON
    assert server.head("demo/s").headers["stream-retention"] == "records=1"
    assert server.put("demo/t", content_type=TEXT).headers["content-type"] == TEXT


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{",
        b'{"other":1}',
        b'{"streams_max":-1}',
        b'{"bytes_max":"1"}',
        b'{"retention":"x"}',
        b'{"content_type":"x"}',
    ],
)
def test_a_body_that_describes_no_bucket_is_400(server: UrsulaServer, body: bytes) -> None:
    assert server.request("PUT", "demo", "", body).status == 400
    assert server.request("GET", "demo").status == 404


def test_put_without_a_body_changes_nothing(server: UrsulaServer) -> None:
    assert configure(server, streams_max=1) == 201
    server.request("PUT", "demo")
    assert info(server)["limits"]["streams_max"] == 1
    assert configure(server) == 200
    assert info(server)["limits"]["streams_max"] is None


def test_quota_of_streams(server: UrsulaServer) -> None:
    server.make("demo/a")
    configure(server, streams_max=2)
    server.make("demo/b")
    full = server.put("demo/c")
    assert (full.status, full.error) == (429, "too_many_requests")
    assert server.put("demo/b", content_type=TEXT).status == 200
    server.delete("demo/a")
    assert server.put("demo/c").status == 201


def test_quota_of_bytes(server: UrsulaServer) -> None:
    server.make("demo/a", b"12345")
    configure(server, bytes_max=8)
    server.make("demo/b", b"678")
    assert server.post("demo/b", b"9", content_type=TEXT).status == 429
    assert server.put("demo/c", b"9", content_type=TEXT).status == 429
    assert server.put("demo/f", stream_forked_from="demo/a").status == 429
    assert server.put("demo/f", stream_forked_from="demo/a", stream_fork_offset="0").status == 201
    assert server.post("demo/b", stream_closed="true").status == 204
    server.delete("demo/a")
    server.delete("demo/f")
    assert server.put("demo/c", b"12345", content_type=TEXT).status == 201
    assert server.put("other/c", b"1234567890", content_type=TEXT).status == 201


def test_quota_is_counted_again_after_a_restart(server: UrsulaServer) -> None:
    store = MemoryStore()
    with UrsulaServer(store) as first:
        configure(first, streams_max=2, bytes_max=4)
        first.make("demo/a", b"123")
    with UrsulaServer(store) as second:
        assert info(second)["limits"]["bytes_max"] == 4
        assert second.post("demo/a", b"45", content_type=TEXT).status == 429
        assert second.post("demo/a", b"4", content_type=TEXT).status == 204
        second.make("demo/b")
        assert second.put("demo/c").status == 429


def test_trimmed_bytes_do_not_count(server: UrsulaServer) -> None:
    configure(server, bytes_max=4)
    server.make("demo/a", b"12", b"34", stream_retention="records=1")
    server.advance(3)
    assert server.post("demo/a", b"56", content_type=TEXT).status == 204
