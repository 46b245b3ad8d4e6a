"""POST {stream}/append-batch: frames, per-frame results, producers. Ursula: append-batch."""

from __future__ import annotations

import json

import pytest

from tests.support.durable import BYTES, JSON, TEXT, producer, token
from tests.support.ursula import UrsulaServer


def frames(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def test_each_frame_is_an_append(server: UrsulaServer) -> None:
    server.make("demo/s", content_type=BYTES)
    reply = server.post("demo/s/append-batch", frames(b"ab", b"c"))
    assert reply.status == 200
    assert json.loads(reply.body) == [{"status": 204}, {"status": 204}]
    assert reply.next == token(2, 3)
    assert server.content("demo/s") == b"abc"


def test_json_frames_are_flattened_and_numbered(server: UrsulaServer) -> None:
    server.make("demo/s", b"0", content_type=JSON)
    reply = server.post("demo/s/append-batch", frames(b"[1,2]", b"3"), content_type=JSON)
    assert json.loads(reply.body) == [
        {"status": 204, "stream_record_start": 1, "stream_record_next": 3},
        {"status": 204, "stream_record_start": 3, "stream_record_next": 4},
    ]
    assert server.get("demo/s").body == b"[0,1,2,3]"


def test_json_one_invalid_frame_refuses_the_call(server: UrsulaServer) -> None:
    server.make("demo/s", content_type=JSON)
    assert server.post("demo/s/append-batch", frames(b"1", b"{"), content_type=JSON).status == 400
    assert server.get("demo/s").body == b"[]"


@pytest.mark.parametrize(
    "body", [b"", b"\0\0\0", frames(b"ab")[:-1], b"\xff\xff\xff\xff", frames(b"a") + b"\0"]
)
def test_an_empty_batch_and_a_cut_frame_are_400(server: UrsulaServer, body: bytes) -> None:
    server.make("demo/s", content_type=BYTES)
    assert server.post("demo/s/append-batch", body).status == 400
    assert server.content("demo/s") == b""


def test_more_than_512_frames_are_413(server: UrsulaServer) -> None:
    server.make("demo/s", content_type=BYTES)
    assert server.post("demo/s/append-batch", frames(*[b"x"] * 513)).status == 413
    assert server.post("demo/s/append-batch", frames(*[b"x"] * 512)).status == 200
    assert server.content("demo/s") == b"x" * 512


def test_an_empty_frame_is_refused_alone(server: UrsulaServer) -> None:
    server.make("demo/s", content_type=BYTES)
    reply = server.post("demo/s/append-batch", frames(b"a", b"", b"b"))
    assert [item["status"] for item in json.loads(reply.body)] == [204, 400, 204]
    assert server.content("demo/s") == b"ab"


def test_what_is_refused_says_its_status(server: UrsulaServer) -> None:
    reply = server.post("demo/none/append-batch", frames(b"a"))
    assert json.loads(reply.body) == [{"status": 404}]
    server.make("demo/s")
    reply = server.post("demo/s/append-batch", frames(b"a"), content_type=BYTES)
    assert json.loads(reply.body) == [{"status": 409}]
    server.close("demo/s")
    reply = server.post("demo/s/append-batch", frames(b"a"), content_type=TEXT)
    assert json.loads(reply.body) == [{"status": 409}]


def test_prefer_return_minimal(server: UrsulaServer) -> None:
    server.make("demo/s", content_type=BYTES)
    quiet = {"prefer": "return=minimal"}
    assert server.post("demo/s/append-batch", frames(b"a", b"b"), **quiet).status == 204
    assert server.post("demo/s/append-batch", frames(b"a", b""), **quiet).status == 200
    server.make("demo/j", content_type=JSON)
    numbered = server.post("demo/j/append-batch", frames(b"1"), content_type=JSON, **quiet)
    assert numbered.status == 200


def test_a_producer_makes_it_one_batch(server: UrsulaServer) -> None:
    server.make("demo/s", content_type=BYTES)
    body = frames(b"a", b"b")
    first = server.post("demo/s/append-batch", body, **producer())
    assert (first.status, first.headers["producer-seq"]) == (200, "0")
    assert json.loads(first.body) == [{"status": 204}, {"status": 204}]
    again = server.post("demo/s/append-batch", body, **producer())
    assert again.status == 200
    assert server.content("demo/s") == b"ab"
    assert server.post("demo/s/append-batch", body, **producer(seq=2)).status == 409
    assert server.post("demo/s/append-batch", frames(b"a", b""), **producer(seq=1)).status == 400
    assert server.post("demo/none/append-batch", body, **producer()).status == 404
    wrong = server.post("demo/s/append-batch", body, content_type=TEXT, **producer(seq=1))
    assert wrong.status == 409


def test_only_post(server: UrsulaServer) -> None:
    reply = server.request("GET", "demo/s/append-batch")
    assert (reply.status, reply.headers["allow"]) == (405, "POST, OPTIONS")
