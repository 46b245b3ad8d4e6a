"""Basins and locations. S2 API: account endpoints."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from typing import Any

import pytest

from headwater.core.commands import Append, Create, ForkClaim
from tests.support.clock import FakeClock
from tests.support.s2 import BASIN, S2Reply, S2Server

NEW = "new-basin"
EMPTY = {
    "default_stream_config": None,
    "stream_cipher": None,
    "create_stream_on_append": False,
    "create_stream_on_read": False,
}
CONFIG = {
    "default_stream_config": {
        "storage_class": "standard",
        "retention_policy": {"infinite": {}},
        "timestamping": {"mode": "arrival", "uncapped": True},
        "delete_on_empty": {"min_age_secs": 60},
    },
    "stream_cipher": "aegis-256",
    "create_stream_on_append": True,
    "create_stream_on_read": True,
}


def create(server: S2Server, name: str = NEW, token: str = "", **fields: Any) -> S2Reply:
    headers = {"s2_request_token": token} if token else {}
    return server.send("POST", "basins", {"basin": name, **fields}, **headers)


def config_of(server: S2Server, name: str = NEW) -> Any:
    reply = server.send("GET", f"basins/{name}")
    assert reply.status == 200, reply
    return reply.json


def listed(server: S2Server, query: str = "") -> list[str]:
    reply = server.fetch("GET", "basins", query)
    assert reply.status == 200, reply
    return [basin["name"] for basin in reply.json["basins"]]


def result_of(reply: S2Reply) -> tuple[int, str]:
    return reply.status, reply.headers["s2-provision-result"]


# -- create


def test_a_basin_is_made_and_told(server: S2Server) -> None:
    reply = create(server)
    assert result_of(reply) == (201, "created")
    info = reply.json
    made = datetime.fromisoformat(info.pop("created_at"))
    assert made.timestamp() * 1000 == server.clock.now_ms()
    assert info == {"name": NEW, "location": "local", "deleted_at": None, "state": "active"}
    assert config_of(server) == EMPTY


def test_a_configuration_comes_back_as_it_was_given(server: S2Server) -> None:
    assert create(server, config=CONFIG, location="local").status == 201
    assert config_of(server) == CONFIG


@pytest.mark.parametrize(
    "name", ["short12", "x" * 49, "Upper-case", "-dash-first", "dash-last-", "under_score", ""]
)
def test_a_name_that_no_basin_can_have_is_bad_json(server: S2Server, name: str) -> None:
    assert create(server, name).code == "400 bad_json"


@pytest.mark.parametrize("name", ["12345678", "x" * 48, "a--b--c-1"])
def test_names_that_a_basin_can_have(server: S2Server, name: str) -> None:
    assert create(server, name).status == 201


def test_only_the_same_request_may_create_it_again(server: S2Server) -> None:
    first = create(server, token="t1", config={"create_stream_on_read": True})
    assert result_of(first) == (201, "created")
    again = create(server, token="t1", config={"create_stream_on_read": True})
    assert result_of(again) == (201, "noop")
    assert again.json == first.json
    taken = "409 resource_already_exists"
    assert create(server, token="t2", config={"create_stream_on_read": True}).code == taken
    assert create(server, token="t1").code == taken
    assert create(server, config={"create_stream_on_read": True}).code == taken
    assert create(server, BASIN).code == taken
    assert create(server, "durable-streams").code == taken


def test_a_request_token_has_a_length(server: S2Server) -> None:
    assert create(server, token="x" * 37).code == "400 bad_header"
    assert create(server, token="x" * 36).status == 201


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"default_stream_config": {"retention_policy": {"age": 0}}}, "422 invalid"),
        ({"default_stream_config": {"retention_policy": {"age": -1}}}, "400 bad_json"),
        ({"default_stream_config": {"retention_policy": {"age": "1"}}}, "400 bad_json"),
        ({"default_stream_config": {"retention_policy": {}}}, "400 bad_json"),
        (
            {"default_stream_config": {"retention_policy": {"age": 1, "infinite": {}}}},
            "400 bad_json",
        ),
        ({"default_stream_config": {"timestamping": {"mode": "never"}}}, "400 bad_json"),
        ({"default_stream_config": {"storage_class": "glacier"}}, "422 invalid"),
        ({"stream_cipher": "rot13"}, "400 bad_json"),
        ({"create_stream_on_append": "yes"}, "400 bad_json"),
        ([], "400 bad_json"),
    ],
)
def test_a_bad_configuration_makes_nothing(server: S2Server, config: Any, code: str) -> None:
    assert create(server, config=config).code == code
    assert server.send("PUT", f"basins/{NEW}", {"config": config}).code == code
    assert server.send("GET", f"basins/{NEW}").code == "404 basin_not_found"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"),
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b"{}", "application/json"),
        (b'{"basin": 1}', "application/json"),
        (b'{"basin": "new-basin"}', ""),
        (b'{"basin": "new-basin"}', "text/plain"),
        (b'{"basin": "new-basin", "x": "\xff"}', "application/json"),
        (b"[" * 100_000, "application/json"),
    ],
    ids=["empty", "torn", "array", "nameless", "number", "untyped", "text", "not utf-8", "deep"],
)
def test_what_is_not_the_json_of_a_basin(server: S2Server, body: bytes, kind: str) -> None:
    reply = server.fetch("POST", "basins", "", body, content_type=kind)
    assert reply.code == "400 bad_json"


def test_a_compressed_body_and_any_json_type_are_taken(server: S2Server) -> None:
    body = gzip.compress(json.dumps({"basin": NEW}).encode())
    reply = server.fetch(
        "POST",
        "basins",
        "",
        body,
        content_type="application/problem+json; charset=utf-8",
        content_encoding="gzip",
    )
    assert reply.status == 201


# -- ensure


def test_put_makes_changes_or_leaves_a_basin(server: S2Server) -> None:
    assert result_of(server.send("PUT", f"basins/{NEW}")) == (201, "created")
    assert config_of(server) == EMPTY
    assert result_of(server.send("PUT", f"basins/{NEW}", {"config": CONFIG})) == (200, "updated")
    assert config_of(server) == CONFIG
    assert result_of(server.send("PUT", f"basins/{NEW}", {"config": CONFIG})) == (200, "noop")
    assert result_of(server.send("PUT", f"basins/{NEW}", {})) == (200, "updated")
    assert config_of(server) == EMPTY, "what is left out goes back to its default"


def test_put_leaves_the_token_of_creation_and_the_limits_of_other_dialects(
    server: S2Server,
) -> None:
    create(server, token="t")
    server.send("PUT", f"basins/{NEW}", {"config": {"create_stream_on_read": True}})
    assert result_of(create(server, token="t")) == (201, "noop")
    assert config_of(server)["create_stream_on_read"] is True


@pytest.mark.parametrize("name", ["UPPER", "short", "a%2Fb-12345", "%ff%ff%ff%ff%ff%ff%ff%ff"])
def test_a_bad_name_in_the_path(server: S2Server, name: str) -> None:
    for method in ("PUT", "GET", "PATCH", "DELETE"):
        assert server.send(method, f"basins/{name}", {}).code == "400 bad_path"


# -- reconfigure


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({}, {}),
        ({"create_stream_on_append": False}, {"create_stream_on_append": False}),
        ({"create_stream_on_append": None}, {"create_stream_on_append": False}),
        ({"create_stream_on_read": None}, {"create_stream_on_read": False}),
        ({"stream_cipher": "aes-256-gcm"}, {"stream_cipher": "aes-256-gcm"}),
        ({"stream_cipher": None}, {"stream_cipher": None}),
        ({"default_stream_config": None}, {"default_stream_config": None}),
        ({"default_stream_config": {}}, {}),
    ],
)
def test_a_patch_keeps_resets_or_sets_each_field(
    server: S2Server, patch: dict[str, Any], expected: dict[str, Any]
) -> None:
    create(server, config=CONFIG)
    reply = server.send("PATCH", f"basins/{NEW}", patch)
    assert reply.status == 200
    assert reply.json == {**CONFIG, **expected} == config_of(server)


def test_a_basin_that_says_anything_of_streams_tells_their_storage_class(
    server: S2Server,
) -> None:
    create(server, config={"default_stream_config": {"retention_policy": {"age": 5}}})
    found = config_of(server)
    assert found["default_stream_config"] == {
        "storage_class": "express",
        "retention_policy": {"age": 5},
    }
    again = server.send("PUT", f"basins/{NEW}", {"config": found})
    assert again.headers["s2-provision-result"] == "noop"


@pytest.mark.parametrize(
    ("patch", "field", "expected"),
    [
        ({"storage_class": None}, "storage_class", "express"),
        ({"retention_policy": {"age": 5}}, "retention_policy", {"age": 5}),
        ({"retention_policy": None}, "retention_policy", None),
        ({"timestamping": None}, "timestamping", None),
        ({"timestamping": {"mode": None}}, "timestamping", {"uncapped": True}),
        (
            {"timestamping": {"uncapped": False}},
            "timestamping",
            {"mode": "arrival", "uncapped": False},
        ),
        ({"delete_on_empty": {"min_age_secs": None}}, "delete_on_empty", None),
        ({"delete_on_empty": {}}, "delete_on_empty", {"min_age_secs": 60}),
    ],
)
def test_a_patch_goes_into_the_default_stream_config(
    server: S2Server, patch: dict[str, Any], field: str, expected: object
) -> None:
    create(server, config=CONFIG)
    reply = server.send("PATCH", f"basins/{NEW}", {"default_stream_config": patch})
    wanted: Any = {**CONFIG["default_stream_config"], field: expected}  # type: ignore[dict-item]
    if expected is None:
        del wanted[field]
    assert reply.json["default_stream_config"] == wanted


def test_a_patch_of_nothing(server: S2Server) -> None:
    assert server.send("PATCH", f"basins/{NEW}", {}).code == "404 basin_not_found"
    assert server.send("PATCH", f"basins/{BASIN}").code == "400 bad_json"
    bad = {"default_stream_config": {"retention_policy": {"age": 0}}}
    assert server.send("PATCH", f"basins/{BASIN}", bad).code == "422 invalid"


# -- list


def test_basins_are_listed_page_by_page_in_the_order_of_their_names(server: S2Server) -> None:
    for name in ("list-b-1", "list-a-1", "list-c-1", "list-b-2"):
        create(server, name)
    everything = sorted([BASIN, "durable-streams", "list-a-1", "list-b-1", "list-b-2", "list-c-1"])
    assert listed(server) == listed(server, "limit=0") == listed(server, "limit=5000") == everything
    assert listed(server, "prefix=list-b") == ["list-b-1", "list-b-2"]
    assert listed(server, "prefix=list-b&start_after=list-b-1") == ["list-b-2"]
    assert listed(server, "prefix=list-b&start_after=a") == ["list-b-1", "list-b-2"]
    assert listed(server, "prefix=list-b&start_after=z") == []
    assert listed(server, "start_after=durable-streams") == everything[2:]
    page = server.fetch("GET", "basins", "limit=4").json
    assert (len(page["basins"]), page["has_more"]) == (4, True)
    page = server.fetch("GET", "basins", "limit=6").json
    assert (len(page["basins"]), page["has_more"]) == (6, False)


@pytest.mark.parametrize(
    "query", ["limit=x", "limit=-1", "limit=1.5", "prefix=%ff", "limit=1&limit=2"]
)
def test_a_bad_query(server: S2Server, query: str) -> None:
    assert server.fetch("GET", "basins", query).code == "400 bad_query"
    assert server.fetch("GET", "streams", query).code == "400 bad_query"


def test_buckets_of_other_dialects_are_basins_if_their_names_are(server: S2Server) -> None:
    now = server.clock.now_ms()
    for bucket in ("made-elsewhere", "Logs"):
        server.submit(Create(bucket, "s", now))
    assert "made-elsewhere" in listed(server)
    assert "Logs" not in listed(server)
    assert config_of(server, "Logs") == EMPTY, "one that is there can be used"
    assert server.send("GET", "streams", s2_basin="Logs").json["streams"][0]["name"] == "s"


# -- delete


def make_streams(server: S2Server, basin: str, count: int) -> None:
    for number in range(count):
        reply = server.send("POST", "streams", {"stream": f"s{number}"}, s2_basin=basin)
        assert reply.status == 201, reply


def test_a_basin_goes_with_its_streams_in_the_background(server: S2Server) -> None:
    server.engine.start()
    create(server)
    make_streams(server, NEW, 3)
    assert server.send("DELETE", f"basins/{NEW}").status == 202
    assert server.send("DELETE", f"basins/{NEW}").status == 202, "again"
    info = server.fetch("GET", "basins", f"prefix={NEW}").json["basins"][0]
    assert info["state"] == "deleting"
    assert datetime.fromisoformat(info["deleted_at"]).timestamp() * 1000 == server.clock.now_ms()
    assert config_of(server) == EMPTY
    server.advance(1)
    server.advance(1)
    server.advance(1)
    for method, path in (("DELETE", f"basins/{NEW}"), ("GET", f"basins/{NEW}")):
        assert server.send(method, path).code == "404 basin_not_found"
    assert listed(server, f"prefix={NEW}") == []
    assert result_of(create(server)) == (201, "created")
    assert server.send("GET", "streams", s2_basin=NEW).json == {"streams": [], "has_more": False}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "basins", {"basin": NEW}),
        ("PUT", f"basins/{NEW}", None),
        ("PATCH", f"basins/{NEW}", {}),
        ("POST", "streams", {"stream": "other"}),
        ("PUT", "streams/other", None),
        ("PUT", "streams/s0", None),
        ("PATCH", "streams/s0", {}),
        ("DELETE", "streams/s0", None),
    ],
)
def test_nothing_is_changed_in_a_basin_that_is_being_deleted(
    server: S2Server, method: str, path: str, body: Any
) -> None:
    create(server)
    make_streams(server, NEW, 1)
    server.send("DELETE", f"basins/{NEW}")
    assert server.send(method, path, body, s2_basin=NEW).code == "409 basin_deletion_pending"


def test_a_deletion_goes_on_after_a_restart(server: S2Server) -> None:
    create(server)
    make_streams(server, NEW, 2)
    server.send("DELETE", f"basins/{NEW}")
    with S2Server(server.runner.store, FakeClock(server.clock.now_ms())) as restarted:
        restarted.engine.start()
        assert restarted.send("DELETE", f"basins/{NEW}").status == 202
        for _ in range(3):
            restarted.advance(1)
        assert restarted.send("DELETE", f"basins/{NEW}").code == "404 basin_not_found"


def test_a_basin_stays_while_forks_elsewhere_read_its_streams(server: S2Server) -> None:
    server.engine.start()
    create(server)
    make_streams(server, NEW, 2)
    now = server.clock.now_ms()
    server.submit(Append(NEW, "s0", now, body=b"x"))
    server.submit(Create(BASIN, "fork", now, fork=ForkClaim(NEW, "s0")))
    server.send("DELETE", f"basins/{NEW}")
    for _ in range(5):
        server.advance(1)
    assert server.send("DELETE", f"basins/{NEW}").status == 202
    reply = server.fetch("GET", "streams/s0", s2_basin=NEW)
    assert reply.code == "409 stream_deletion_pending"
    assert server.fetch("GET", "streams/s1", s2_basin=NEW).code == "404 stream_not_found"
    assert server.send("DELETE", "streams/fork").status == 202
    for _ in range(5):
        server.advance(1)
    assert server.send("DELETE", f"basins/{NEW}").code == "404 basin_not_found"


def test_the_bucket_that_is_always_there_stays(server: S2Server) -> None:
    assert server.send("DELETE", "basins/durable-streams").code == "403 permission_denied"
    assert server.send("DELETE", f"basins/{NEW}").code == "404 basin_not_found"


# -- locations


def test_there_is_one_location(server: S2Server) -> None:
    here = {
        "name": "local",
        "is_private": False,
        "storage_classes": ["express", "standard"],
        "default_storage_class": "express",
    }
    assert server.send("GET", "locations").json == [here]
    assert server.send("GET", "locations/default").json == here
    assert server.send("PUT", "locations/default", "local").json == here
    assert server.send("PUT", "locations/default", "aws:us-east-1").code == "422 invalid"
    assert server.send("PUT", "locations/default", "no/where").code == "400 bad_json"
    assert server.send("PUT", "locations/default", {"name": "local"}).code == "400 bad_json"
    assert create(server, location="aws:us-east-1").code == "422 invalid"
    assert create(server, location="").code == "400 bad_json"


# -- read only


def test_a_server_that_only_reads_changes_no_basin() -> None:
    with S2Server(read_only=True) as server:
        assert create(server).code == "403 permission_denied"
        assert server.send("DELETE", f"basins/{BASIN}").code == "403 permission_denied"
        assert listed(server) == [BASIN, "durable-streams"]
