"""Appending one batch: bodies, sizes, conditions, times, command records. S2 API: append."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
import s2_sdk._generated.s2.v1.s2_pb2 as pb
import zstandard

from headwater.wire.http import Request, Route
from tests.support.durable import NOW_MS
from tests.support.s2 import BASIN, PROTOBUF, S2Reply, S2Server, fence, trim

MIB = 1024 * 1024


@pytest.fixture
def stream(server: S2Server) -> S2Server:
    server.make_stream("s")
    return server


def message(*bodies: bytes, **conditions: Any) -> bytes:
    records = [pb.AppendRecord(body=body) for body in bodies]
    sent: bytes = pb.AppendInput(records=records, **conditions).SerializeToString()
    return sent


# -- Answers


def test_the_answer_tells_the_first_and_the_next_number(stream: S2Server) -> None:
    assert stream.add("s", "a", "b").json == {
        "start": {"seq_num": 0, "timestamp": NOW_MS},
        "end": {"seq_num": 2, "timestamp": NOW_MS},
        "tail": {"seq_num": 2, "timestamp": NOW_MS},
    }
    stream.advance(1.0)
    assert stream.add("s", "c").json["start"] == {"seq_num": 2, "timestamp": NOW_MS + 1000}


def test_the_tail_is_as_of_the_answer(stream: S2Server) -> None:
    """Appends of one commit: the first is answered when the second is durable too."""
    body = json.dumps({"records": [{"body": "x"}]}).encode()
    asked = [
        stream.ask("POST", "streams/s/records", "", body, content_type="application/json")
        for _ in range(2)
    ]
    first, second = (S2Reply(stream.runner.result(answer)).json for answer in asked)

    assert (first["end"]["seq_num"], first["tail"]["seq_num"]) == (1, 2)
    assert (second["end"]["seq_num"], second["tail"]["seq_num"]) == (2, 2)


@pytest.mark.parametrize("kind", [PROTOBUF, "application/x-protobuf", f"{PROTOBUF};v=1"])
def test_protobuf_is_taken_and_given(stream: S2Server, kind: str) -> None:
    ack = stream.post_protobuf("s", message(b"a", b"b"), content_type=kind).ack

    assert (ack.start.seq_num, ack.end.seq_num, ack.tail.seq_num) == (0, 2, 2)
    assert stream.read("seq_num=0").bodies == ["a", "b"]


def test_every_part_of_a_protobuf_answer_is_there_even_when_zero(stream: S2Server) -> None:
    body = pb.AppendInput(records=[pb.AppendRecord(timestamp=0)]).SerializeToString()

    ack = stream.post_protobuf("s", body).ack

    assert ack.HasField("start") and ack.HasField("end") and ack.HasField("tail")
    assert (ack.start.seq_num, ack.start.timestamp) == (0, 0)


def test_accept_chooses_the_answer_and_content_type_the_request(stream: S2Server) -> None:
    assert stream.post_protobuf("s", message(b"a"), accept="*/*").json["end"]["seq_num"] == 1
    body = json.dumps({"records": [{"body": "x"}]}).encode()
    assert stream.post_json("s", body, accept=PROTOBUF).ack.end.seq_num == 2


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.x+json"])
def test_every_json_type_is_json(stream: S2Server, kind: str) -> None:
    body = json.dumps({"records": [{"body": "x"}]}).encode()

    assert stream.post_json("s", body, content_type=kind).status == 200


def test_headers_keep_their_order_and_repeat(stream: S2Server) -> None:
    headers = [["b", "1"], ["a", ""], ["b", "1"]]
    stream.add("s", {"headers": headers, "body": "x"})

    assert stream.read("seq_num=0").records[0]["headers"] == headers


# -- Bad input


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"records": {}}',
        b'{"records": [1]}',
        b'{"records": [{"body": 1}]}',
        b'{"records": [{"body": null}]}',
        b'{"records": [{"headers": [["a"]]}]}',
        b'{"records": [{"headers": [["a", "b", "c"]]}]}',
        b'{"records": [{"headers": {"a": "b"}}]}',
        b'{"records": [{"timestamp": -1}]}',
        b'{"records": [{"timestamp": 1.5}]}',
        b'{"records": [{"timestamp": 18446744073709551616}]}',
        b'{"records": [{}], "match_seq_num": "1"}',
        b'{"records": [{}], "match_seq_num": 18446744073709551616}',
        b'{"records": [{}], "fencing_token": 7}',
        b'{"records": [{}], "fencing_token": "%b"}' % (b"x" * 37),
        b'{"records": [{"body": "\xff"}]}',
        b'{"records": [{"body": "\\ud800"}]}',
    ],
)
def test_what_is_not_an_append_in_json_is_bad_json(stream: S2Server, body: bytes) -> None:
    assert stream.post_json("s", body).code == "400 bad_json"
    assert stream.check_tail().tail == 0


@pytest.mark.parametrize("kind", ["", "text/plain", "application/octet-stream", "json"])
def test_another_content_type_is_bad_json(stream: S2Server, kind: str) -> None:
    body = json.dumps({"records": [{"body": "x"}]}).encode()

    assert stream.post_json("s", body, content_type=kind).code == "400 bad_json"


@pytest.mark.parametrize("body", [b"\xff", message(b"a")[:-1], b"\x0a\x02\x08", b"\x1a\x01\xff"])
def test_what_is_not_an_append_in_protobuf_is_bad_proto(stream: S2Server, body: bytes) -> None:
    assert stream.post_protobuf("s", body).code == "400 bad_proto"


def test_a_batch_has_1_to_1000_records(stream: S2Server) -> None:
    assert stream.add("s").code == "422 invalid"
    assert stream.post_protobuf("s", b"").code == "422 invalid"
    assert stream.add("s", *["x"] * 1001).code == "422 invalid"
    assert stream.add("s", *["x"] * 1000).status == 200


def test_a_batch_has_at_most_1_mib_metered(stream: S2Server) -> None:
    fitting = "x" * (MIB - 8)
    assert stream.add("s", fitting + "x").code == "422 invalid"
    assert stream.add("s", fitting).json["end"]["seq_num"] == 1
    half = "x" * (MIB // 2 - 8)
    assert stream.add("s", half, half).json["end"]["seq_num"] == 3
    assert stream.add("s", half, half + "x").code == "422 invalid"
    assert stream.add("s", {"headers": [["n", "v"]], "body": fitting[4:]}).status == 200
    assert stream.add("s", {"headers": [["n", "v"]], "body": fitting[3:]}).code == "422 invalid"


def test_bad_base64_is_invalid(stream: S2Server) -> None:
    for text in ("a", "a===", "%%%%", "QQ", "QQ==x"):
        assert stream.add("s", text, format="base64").code == "422 invalid"
    assert stream.add("s", {"headers": [["!", "QQ=="]]}, format="base64").code == "422 invalid"


def test_a_fencing_token_has_at_most_36_bytes(stream: S2Server) -> None:
    sent = message(b"a", fencing_token="é" * 18)
    assert stream.post_protobuf("s", sent).status == 412
    sent = message(b"a", fencing_token="é" * 18 + "x")
    assert stream.post_protobuf("s", sent).code == "422 invalid"


def test_an_unknown_format_is_a_bad_header(stream: S2Server) -> None:
    assert stream.add("s", "a", format="hex").code == "400 bad_header"


@pytest.mark.parametrize("path", ["%ff", "%00", ".", "..", "", "a" * 513])
def test_a_stream_name_that_cannot_be_is_a_bad_path(server: S2Server, path: str) -> None:
    body = json.dumps({"records": [{"body": "x"}]}).encode()

    assert server.post_json(path, body).code == "400 bad_path"


@pytest.mark.parametrize("basin", ["", "short", "UPPERCASE", "-begins-so", "ends-so-", "a" * 49])
def test_a_basin_that_is_missing_or_cannot_be_is_a_bad_header(server: S2Server, basin: str) -> None:
    body = json.dumps({"records": [{"body": "x"}]}).encode()

    assert server.post_json("s", body, s2_basin=basin).code == "400 bad_header"


def test_an_append_needs_a_basin_and_a_stream_that_are_there(server: S2Server) -> None:
    assert server.add("s", "a").code == "404 stream_not_found"
    assert server.add("s", "a", basin="another-basin").code == "404 basin_not_found"


def test_what_cannot_be_read_comes_before_what_is_not_there(server: S2Server) -> None:
    assert server.post_json("s", b"{").code == "400 bad_json"
    assert server.add("s").code == "422 invalid"


# -- Compressed bodies


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("zstd", zstandard.ZstdCompressor().compress), ("identity", bytes)],
)
def test_a_body_may_be_compressed(stream: S2Server, encoding: str, compress: Any) -> None:
    body = json.dumps({"records": [{"body": "x" * 2000}]}).encode()

    assert stream.post_json("s", compress(body), content_encoding=encoding).status == 200
    sent = compress(message(b"y"))
    assert stream.post_protobuf("s", sent, content_encoding=encoding).status == 200
    assert stream.read("seq_num=0").bodies == ["x" * 2000, "y"]


def test_a_body_that_is_not_compressed_as_it_says_is_refused(stream: S2Server) -> None:
    for encoding in ("gzip", "zstd"):
        assert stream.post_json("s", b"{}", content_encoding=encoding).code == "400 bad_json"
        reply = stream.post_protobuf("s", b"", content_encoding=encoding)
        assert reply.code == "400 bad_proto"
    assert stream.post_json("s", b"{}", content_encoding="br").code == "400 bad_header"


def test_the_largest_batch_fits_however_it_is_written(stream: S2Server) -> None:
    largest = {"records": [{"body": "\0" * (MIB - 8)}]}  # each byte as six
    body = json.dumps(largest).encode()
    request = Request("POST", "/v1/streams/s/records", "", {})
    route = stream.s2.begin(request)

    assert isinstance(route, Route)
    assert len(body) <= route.body_bytes_max <= 8 * MIB
    assert stream.post_json("s", body).status == 200


def test_a_body_that_unpacks_to_too_much_is_refused() -> None:
    with S2Server(body_bytes_max=MIB) as server:
        server.make_stream("s")
        for encoding, compress in (("gzip", gzip.compress), ("zstd", zstandard.compress)):
            sent = compress(bytes(MIB + 1))
            assert server.post_json("s", sent, content_encoding=encoding).code == "400 bad_json"


# -- Conditions


def test_match_seq_num_must_be_the_number_of_the_first_record(stream: S2Server) -> None:
    assert stream.add("s", "a", "b", match_seq_num=0).status == 200
    for wrong in (0, 1, 3):
        reply = stream.add("s", "c", match_seq_num=wrong)
        assert (reply.status, reply.json) == (412, {"seq_num_mismatch": 2})
    assert stream.add("s", "c", match_seq_num=2).status == 200


def test_a_fencing_token_must_be_the_streams(stream: S2Server) -> None:
    assert stream.add("s", "a", fencing_token="").status == 200
    reply = stream.add("s", "a", fencing_token="mine")
    assert (reply.status, reply.json) == (412, {"fencing_token_mismatch": ""})

    assert stream.add("s", fence("mine"), format="base64").status == 200
    assert stream.add("s", "b", fencing_token="mine").status == 200
    reply = stream.add("s", "c", fencing_token="")
    assert (reply.status, reply.json) == (412, {"fencing_token_mismatch": "mine"})
    assert stream.add("s", "not said, so not asked").status == 200


def test_the_token_is_judged_before_the_number(stream: S2Server) -> None:
    reply = stream.add("s", "a", fencing_token="x", match_seq_num=9)

    assert reply.json == {"fencing_token_mismatch": ""}


def test_a_fence_takes_effect_for_the_next_append(stream: S2Server) -> None:
    reply = stream.add("s", fence("new"), fence("newer"), format="base64", fencing_token="")
    assert reply.status == 200
    assert stream.add("s", "a", fencing_token="newer").status == 200
    assert stream.add("s", fence(""), format="base64").status == 200
    assert stream.add("s", "a", fencing_token="").status == 200


def test_a_refused_append_changes_nothing(stream: S2Server) -> None:
    stream.add("s", "a")
    stream.add("s", fence("x"), format="base64", match_seq_num=7)
    stream.add("s", "b", fencing_token="x")

    assert stream.check_tail().tail == 1


# -- Command records


@pytest.mark.parametrize(
    "record",
    [
        {"headers": [["", "unknown"]]},
        {"headers": [["", ""]]},
        {"headers": [["", "fence"], ["a", "b"]]},
        {"headers": [["a", "b"], ["", "fence"]]},
        {"headers": [["", "fence"]], "body": "x" * 37},
        {"headers": [["", "trim"]], "body": "1234567"},
        {"headers": [["", "trim"]], "body": "123456789"},
    ],
)
def test_a_command_that_is_none_is_invalid(stream: S2Server, record: dict[str, Any]) -> None:
    assert stream.add("s", "a", record).code == "422 invalid"
    assert stream.check_tail().tail == 0


def test_commands_take_numbers_and_are_read_back(stream: S2Server) -> None:
    stream.add("s", fence("tok"), trim(0), fence(""), format="base64")

    records = stream.read("seq_num=0", s2_format="base64").records
    assert [record["headers"] for record in records] == [
        fence("")["headers"],
        trim(0)["headers"],
        fence("")["headers"],
    ]
    assert records[0]["body"] == base64.b64encode(b"tok").decode()
    assert records[1]["body"] == base64.b64encode(bytes(8)).decode()
    assert "body" not in records[2]


def test_a_trim_is_delayed(stream: S2Server) -> None:
    stream.add("s", "a", "b", "c")
    stream.add("s", trim(2), format="base64")
    stream.advance(1.0)
    assert stream.read("seq_num=0").numbers == [0, 1, 2, 3]
    stream.advance(10.0)

    assert stream.read("seq_num=0").numbers == [2, 3]


def test_a_trim_goes_at_most_over_itself(stream: S2Server) -> None:
    stream.add("s", "a", "b")
    stream.add("s", trim(2**64 - 1), format="base64")
    stream.add("s", "c")
    stream.advance(10.0)

    assert stream.read("seq_num=0").numbers == [3]


# -- Times


def stamped(time_ms: int) -> dict[str, Any]:
    return {"timestamp": time_ms, "body": "x"}


def test_the_clients_time_is_kept(stream: S2Server) -> None:
    ack = stream.add("s", stamped(NOW_MS - 5), stamped(NOW_MS - 3)).json

    assert (ack["start"]["timestamp"], ack["end"]["timestamp"]) == (NOW_MS - 5, NOW_MS - 3)
    times = [record["timestamp"] for record in stream.read("seq_num=0").records]
    assert times == [NOW_MS - 5, NOW_MS - 3]


def test_a_time_in_the_future_is_capped_at_arrival(stream: S2Server) -> None:
    assert stream.add("s", stamped(NOW_MS + 5)).json["end"]["timestamp"] == NOW_MS


def test_a_time_in_the_future_is_kept_where_uncapped(server: S2Server) -> None:
    server.make_stream("s", uncapped=True)

    ack = server.add("s", stamped(2**64 - 1)).json
    assert ack["end"]["timestamp"] == 2**64 - 1
    assert server.check_tail().json["tail"]["timestamp"] == 2**64 - 1
    assert server.read("timestamp=18446744073709551615").numbers == [0]


def test_times_never_decrease(stream: S2Server) -> None:
    stream.add("s", stamped(NOW_MS - 5), stamped(NOW_MS - 9), stamped(NOW_MS - 2))
    stream.add("s", stamped(7))

    times = [record["timestamp"] for record in stream.read("seq_num=0").records]
    assert times == [NOW_MS - 5, NOW_MS - 5, NOW_MS - 2, NOW_MS - 2]


def test_arrival_mode_ignores_the_clients_time(server: S2Server) -> None:
    server.make_stream("s", timestamping="arrival")

    assert server.add("s", stamped(5)).json["end"]["timestamp"] == NOW_MS


def test_client_require_mode_refuses_a_record_without_a_time(server: S2Server) -> None:
    server.make_stream("s", timestamping="client-require")

    assert server.add("s", stamped(5), "x").code == "422 invalid"
    assert server.add("s", stamped(5)).status == 200


# -- Making streams


def test_an_append_makes_the_stream_where_the_basin_says_so(server: S2Server) -> None:
    server.make_basin("append-basin", create_on_append=True)
    config = json.dumps({"retention_policy": {"infinite": {}}})

    reply = server.add("s", "a", basin="append-basin", s2_stream_config=config)
    assert reply.json["end"]["seq_num"] == 1
    assert server.engine.open("append-basin", "s").state.retention is None
    assert server.add("s", "a", basin="append-basin").json["end"]["seq_num"] == 2


def test_a_failed_decode_never_makes_a_stream(server: S2Server) -> None:
    server.make_basin("append-basin", create_on_append=True)
    basin = {"s2_basin": "append-basin"}
    records = json.dumps({"records": [{"body": "x"}]}).encode()

    server.post_json("s", b"{", **basin)
    server.post_json("s", b'{"records": []}', **basin)
    server.post_json("s", b'{"records": [{"headers": [["", "x"]]}]}', **basin)
    server.post_json("s", b'{"records": [{"body": "x"}]}', s2_format="base64", **basin)
    server.post_protobuf("s", b"\xff", **basin)
    crowded = json.dumps({"records": [{"headers": [["a", ""]] * 65_536}]}).encode()
    assert server.post_json("s", crowded, **basin).code == "422 invalid"
    assert server.post_json("s", records, s2_stream_config="{", **basin).code == "400 bad_header"
    bad = '{"retention_policy": {"age": 0}}'
    assert server.post_json("s", records, s2_stream_config=bad, **basin).code == "400 bad_header"

    assert server.engine.shard.find("append-basin", "s") is None


def test_a_failed_condition_leaves_the_stream_made(server: S2Server) -> None:
    server.make_basin("append-basin", create_on_append=True)

    reply = server.add("s", "a", basin="append-basin", match_seq_num=4)

    assert reply.json == {"seq_num_mismatch": 0}
    assert server.check_tail(s2_basin="append-basin").tail == 0


def test_a_bad_config_header_is_refused_even_where_nothing_is_made(stream: S2Server) -> None:
    assert stream.add("s", "a", s2_stream_config="[]").code == "400 bad_header"
    assert stream.add("s", "a", s2_stream_config="{}").status == 200


# -- Read-only servers and limits


def test_a_read_only_server_takes_no_append() -> None:
    with S2Server(read_only=True) as server:
        server.make_stream("s")
        assert server.add("s", "a").code == "403 permission_denied"
        assert server.check_tail().status == 200


def test_every_record_of_a_batch_is_in_the_stream_or_none(stream: S2Server) -> None:
    stream.add("s", "a", {"headers": [["", "unknown"]]}, "b")

    assert stream.engine.open(BASIN, "s").tail.seq == 0
