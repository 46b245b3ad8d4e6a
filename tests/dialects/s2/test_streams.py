"""Streams and their configuration. S2 API: stream management."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from headwater.core.commands import Create, ForkClaim
from tests.support.s2 import BASIN, S2Reply, S2Server, trim

DEFAULT = {
    "storage_class": "express",
    "retention_policy": {"age": 604_800},
    "timestamping": {"mode": "client-prefer", "uncapped": False},
    "delete_on_empty": {"min_age_secs": 0},
}
OTHER = {
    "storage_class": "standard",
    "retention_policy": {"infinite": {}},
    "timestamping": {"mode": "client-require", "uncapped": True},
    "delete_on_empty": {"min_age_secs": 60},
}


def create(server: S2Server, name: str = "s", token: str = "", **fields: Any) -> S2Reply:
    headers = {"s2_request_token": token} if token else {}
    return server.send("POST", "streams", {"stream": name, **fields}, **headers)


def config_of(server: S2Server, name: str = "s") -> Any:
    reply = server.send("GET", f"streams/{name}")
    assert reply.status == 200, reply
    return reply.json


def result_of(reply: S2Reply) -> tuple[int, str]:
    return reply.status, reply.headers["s2-provision-result"]


def listed(server: S2Server, query: str = "") -> list[str]:
    reply = server.fetch("GET", "streams", query)
    assert reply.status == 200, reply
    return [stream["name"] for stream in reply.json["streams"]]


# -- create


def test_a_stream_is_made_and_told(server: S2Server) -> None:
    reply = create(server)
    assert result_of(reply) == (201, "created")
    info = reply.json
    made = datetime.fromisoformat(info.pop("created_at"))
    assert made.timestamp() * 1000 == server.clock.now_ms()
    assert info == {"name": "s", "deleted_at": None, "cipher": None}
    assert config_of(server) == DEFAULT
    assert server.head("s").status == 404, "it is in another bucket"


def test_a_configuration_comes_back_as_it_was_given(server: S2Server) -> None:
    assert create(server, config=OTHER).status == 201
    assert config_of(server) == OTHER


def test_what_a_stream_does_not_say_its_basin_does_and_then_the_system(server: S2Server) -> None:
    defaults = {"retention_policy": {"age": 7}, "timestamping": {"uncapped": True}}
    server.send("PATCH", f"basins/{BASIN}", {"default_stream_config": defaults})
    create(server, config={"timestamping": {"mode": "arrival"}})
    expected = {
        **DEFAULT,
        "retention_policy": {"age": 7},
        "timestamping": {"mode": "arrival", "uncapped": True},
    }
    assert config_of(server) == expected
    server.send("PATCH", f"basins/{BASIN}", {"default_stream_config": None})
    assert config_of(server) == expected, "a basin's changes touch new streams only"
    create(server, "t")
    assert config_of(server, "t") == DEFAULT


def test_a_basin_chooses_the_cipher_of_its_new_streams(server: S2Server) -> None:
    server.send("PATCH", f"basins/{BASIN}", {"stream_cipher": "aes-256-gcm"})
    assert create(server).json["cipher"] == "aes-256-gcm"
    server.send("PATCH", f"basins/{BASIN}", {"stream_cipher": "aegis-256"})
    assert result_of(server.send("PUT", "streams/s")) == (200, "noop")
    page = server.fetch("GET", "streams").json
    assert [stream["cipher"] for stream in page["streams"]] == ["aes-256-gcm"]
    found = server.engine.open(BASIN, "s").state.seal_id
    assert found is not None and len(found) == 32


@pytest.mark.parametrize("name", ["", ".", "..", "a/../b", "x" * 513, "nul\0"])
def test_a_name_that_no_stream_can_have_is_bad_json(server: S2Server, name: str) -> None:
    assert create(server, name).code == "400 bad_json"


@pytest.mark.parametrize("name", ["a/b", "ü" * 256, " ", "a?b#c", "%2F"])
def test_names_that_a_stream_can_have(server: S2Server, name: str) -> None:
    assert create(server, name).json["name"] == name
    assert listed(server) == [name]


def test_only_the_same_request_may_create_it_again(server: S2Server) -> None:
    first = create(server, token="t1", config=OTHER)
    again = create(server, token="t1", config=OTHER)
    assert result_of(again) == (201, "noop")
    assert again.json == first.json
    taken = "409 resource_already_exists"
    assert create(server, token="t2", config=OTHER).code == taken
    assert create(server, token="t1").code == taken
    assert create(server, config=OTHER).code == taken
    assert create(server, token="x" * 37).code == "400 bad_header"


def test_a_stream_that_another_dialect_made_is_taken(server: S2Server) -> None:
    server.submit(Create(BASIN, "s", server.clock.now_ms(), "application/json"))
    assert create(server).code == "409 resource_already_exists"
    assert config_of(server) == {**DEFAULT, "retention_policy": {"infinite": {}}}


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"retention_policy": {"age": 0}}, "422 invalid"),
        ({"retention_policy": {"age": 2**64}}, "400 bad_json"),
        ({"retention_policy": {"age": 1.5}}, "400 bad_json"),
        ({"retention_policy": "infinite"}, "400 bad_json"),
        ({"timestamping": {"mode": "CLIENT"}}, "400 bad_json"),
        ({"delete_on_empty": {"min_age_secs": -1}}, "400 bad_json"),
        ({"storage_class": ""}, "422 invalid"),
        ("express", "400 bad_json"),
    ],
)
def test_a_bad_configuration_makes_nothing(server: S2Server, config: Any, code: str) -> None:
    assert create(server, config=config).code == code
    assert server.send("PUT", "streams/s", config).code == code
    assert listed(server) == []


def test_the_longest_age_is_kept_and_ends_nothing(server: S2Server) -> None:
    age = {"retention_policy": {"age": 2**64 - 1}, "delete_on_empty": {"min_age_secs": 2**64 - 1}}
    server.engine.start()
    assert create(server, config=age).status == 201
    server.add("s", "a")
    server.advance(3600)
    assert config_of(server) == {**DEFAULT, **age}
    assert server.read("seq_num=0").bodies == ["a"]
    server.add("s", trim(9), format="base64")
    server.advance(3600)
    assert server.check_tail("s").json["tail"]["seq_num"] == 2
    assert server.read("seq_num=0").status == 416


def test_there_must_be_a_basin(server: S2Server) -> None:
    for method, path, body in (
        ("GET", "streams", None),
        ("POST", "streams", {"stream": "s"}),
        ("PUT", "streams/s", None),
        ("GET", "streams/s", None),
        ("PATCH", "streams/s", {}),
        ("DELETE", "streams/s", None),
    ):
        reply = server.send(method, path, body, s2_basin="no-such-basin")
        assert reply.code == "404 basin_not_found"
        assert server.send(method, path, body, s2_basin="").code == "400 bad_header"
        assert server.send(method, path, body, s2_basin="BAD NAME").code == "400 bad_header"


# -- ensure


def test_put_makes_changes_or_leaves_a_stream(server: S2Server) -> None:
    reply = server.send("PUT", "streams/s")
    assert result_of(reply) == (201, "created")
    assert reply.json["name"] == "s"
    assert config_of(server) == DEFAULT
    assert result_of(server.send("PUT", "streams/s", OTHER)) == (200, "updated")
    assert config_of(server) == OTHER
    assert result_of(server.send("PUT", "streams/s", OTHER)) == (200, "noop")
    assert result_of(server.send("PUT", "streams/s", {})) == (200, "updated")
    assert config_of(server) == DEFAULT, "what is left out goes back to its default"


def test_put_keeps_records_and_the_token_of_creation(server: S2Server) -> None:
    create(server, token="t")
    server.add("s", "a")
    assert result_of(server.send("PUT", "streams/s", OTHER)) == (200, "updated")
    assert server.read("seq_num=0").bodies == ["a"]
    assert result_of(create(server, token="t")) == (201, "noop")


@pytest.mark.parametrize("name", [".", "..", "%00", "%ff", "x" * 513])
def test_a_bad_name_in_the_path(server: S2Server, name: str) -> None:
    for method in ("PUT", "GET", "PATCH", "DELETE"):
        assert server.send(method, f"streams/{name}", {}).code == "400 bad_path"


# -- reconfigure


@pytest.mark.parametrize(
    ("patch", "field", "expected"),
    [
        ({}, "storage_class", "standard"),
        ({"storage_class": "express"}, "storage_class", "express"),
        ({"storage_class": None}, "storage_class", "express"),
        ({"retention_policy": {"age": 5}}, "retention_policy", {"age": 5}),
        ({"retention_policy": None}, "retention_policy", {"age": 99}),
        (
            {"timestamping": {"mode": "arrival"}},
            "timestamping",
            {"mode": "arrival", "uncapped": True},
        ),
        (
            {"timestamping": {"uncapped": None}},
            "timestamping",
            {"mode": "client-require", "uncapped": False},
        ),
        ({"timestamping": None}, "timestamping", {"mode": "client-prefer", "uncapped": False}),
        ({"delete_on_empty": {"min_age_secs": 1}}, "delete_on_empty", {"min_age_secs": 1}),
        ({"delete_on_empty": None}, "delete_on_empty", {"min_age_secs": 0}),
    ],
)
def test_a_patch_keeps_resets_or_sets_each_field(
    server: S2Server, patch: dict[str, Any], field: str, expected: object
) -> None:
    create(server, config=OTHER)
    basin = {"default_stream_config": {"retention_policy": {"age": 99}}}
    server.send("PATCH", f"basins/{BASIN}", basin)
    reply = server.send("PATCH", "streams/s", patch)
    assert reply.status == 200
    assert reply.json == {**OTHER, field: expected} == config_of(server)


def test_a_patch_of_nothing(server: S2Server) -> None:
    assert server.send("PATCH", "streams/s", {}).code == "404 stream_not_found"
    create(server)
    assert server.send("PATCH", "streams/s").code == "400 bad_json"
    assert server.send("PATCH", "streams/s", {"retention_policy": {"age": 0}}).code == "422 invalid"
    assert config_of(server) == DEFAULT


def test_a_configuration_survives_a_restart(server: S2Server) -> None:
    create(server)
    server.send("PATCH", "streams/s", OTHER)
    server.add("s", {"body": "a", "timestamp": 1})
    with S2Server(server.runner.store) as restarted:
        assert config_of(restarted) == OTHER


# -- list


def test_streams_are_listed_page_by_page_in_the_order_of_their_names(server: S2Server) -> None:
    for name in ("b/1", "a", "c", "b/2"):
        create(server, name)
    assert listed(server) == listed(server, "limit=0") == ["a", "b/1", "b/2", "c"]
    assert listed(server, "prefix=b%2F") == ["b/1", "b/2"]
    assert listed(server, "prefix=b%2F&start_after=b%2F1") == ["b/2"]
    assert listed(server, "prefix=b%2F&start_after=a") == ["b/1", "b/2"]
    assert listed(server, "prefix=b%2F&start_after=z") == []
    page = server.fetch("GET", "streams", "limit=2&start_after=a").json
    assert [stream["name"] for stream in page["streams"]] == ["b/1", "b/2"]
    assert page["has_more"] is True
    assert server.fetch("GET", "streams", "limit=4").json["has_more"] is False


# -- delete


def test_a_deleted_stream_is_gone_and_its_name_free(server: S2Server) -> None:
    create(server)
    server.add("s", "a")
    reply = server.send("DELETE", "streams/s")
    assert (reply.status, reply.body) == (202, b"")
    assert server.send("DELETE", "streams/s").code == "404 stream_not_found"
    assert server.send("GET", "streams/s").code == "404 stream_not_found"
    assert listed(server) == []
    assert create(server).status == 201
    assert server.check_tail("s").json == {"tail": {"seq_num": 0, "timestamp": 0}}


def test_a_stream_that_forks_read_is_pending_until_they_are_gone(server: S2Server) -> None:
    create(server, token="t")
    server.add("s", "a")
    fork = ForkClaim(BASIN, "s")
    server.submit(Create(BASIN, "fork", server.clock.now_ms(), fork=fork))
    assert server.send("DELETE", "streams/s").status == 202
    assert server.send("DELETE", "streams/s").status == 202
    pending = "409 stream_deletion_pending"
    assert server.send("GET", "streams/s").code == pending
    assert server.send("PATCH", "streams/s", {}).code == pending
    assert server.send("PUT", "streams/s").code == pending
    assert create(server, token="t").code == pending
    assert server.add("s", "b").code == pending
    assert listed(server) == ["fork"]
    assert server.send("DELETE", "streams/fork").status == 202
    assert create(server).status == 201


# -- s2-stream-config


def test_a_stream_made_on_the_spot_is_as_the_request_says_over_the_basin(
    server: S2Server,
) -> None:
    server.make_basin(BASIN, create_on_append=True, create_on_read=True)
    header = '{"retention_policy": {"age": 5}}'
    assert server.add("s", "a", s2_stream_config=header).status == 200
    assert config_of(server) == {**DEFAULT, "retention_policy": {"age": 5}}
    assert server.add("s", "a", s2_stream_config='{"storage_class": "standard"}').status == 200
    assert config_of(server)["storage_class"] == "express", "it was there"
    assert server.check_tail("t", s2_stream_config=header).status == 200
    assert config_of(server, "t")["retention_policy"] == {"age": 5}


@pytest.mark.parametrize(
    "header", ["{", "[]", '{"retention_policy": {"age": 0}}', '{"timestamping": 1}']
)
def test_a_bad_header_is_refused_before_anything_is_looked_up(
    server: S2Server, header: str
) -> None:
    server.make_basin(BASIN, create_on_append=True, create_on_read=True)
    assert server.add("s", "a", s2_stream_config=header).code == "400 bad_header"
    assert server.check_tail("s", s2_stream_config=header).code == "400 bad_header"
    reply = server.add("s", "a", s2_stream_config=header, basin="no-such-basin")
    assert reply.code == "400 bad_header"
    assert listed(server) == []
