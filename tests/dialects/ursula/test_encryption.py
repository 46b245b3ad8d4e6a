"""Encrypted streams under /{bucket}/: batches, records by number, bootstrap, no snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from headwater.wire.http import StreamedResponse
from tests.support.durable import JSON, TEXT, Headers, Reply, Writer, producer, token
from tests.support.keys import CIPHERS, WITH_KEY, WITH_OTHER, encrypt_bucket
from tests.support.ursula import UrsulaServer


@pytest.fixture(params=CIPHERS)
def server(request: pytest.FixtureRequest) -> Iterator[UrsulaServer]:
    with UrsulaServer() as server:
        encrypt_bucket(server.runner, "demo", request.param)
        yield server


def code(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.error


def frames(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def read_whole(server: UrsulaServer, name: str, /, **headers: str) -> tuple[Reply, Writer]:
    reply = server.request("GET", name, **headers)
    writer = Writer()
    if isinstance(reply.response, StreamedResponse):
        reply.response.start(writer)
        for _ in range(100):
            server.runner.turn()
    return reply, writer


def test_only_streams_of_that_bucket_are_encrypted(server: UrsulaServer) -> None:
    server.make("demo/s")
    server.make("other/s")
    assert code(server.post("demo/s", b"x", content_type=TEXT)) == (400, "key_required")
    assert server.post("other/s", b"x", content_type=TEXT).status == 204


def test_a_byte_position_is_one_of_what_was_written(server: UrsulaServer) -> None:
    server.make("demo/s")
    server.append("demo/s", b"one ", b"two", **WITH_KEY)
    assert server.get("demo/s", "4", **WITH_KEY).body == b"two"
    server.fork("demo/f", "demo/s", stream_fork_offset="4")
    server.append("demo/f", b"more", **WITH_KEY)
    assert server.get("demo/f", "-1", **WITH_KEY).body == b"one more"


def test_a_batch_is_sealed_frame_by_frame(server: UrsulaServer) -> None:
    server.make("demo/j", content_type=JSON)
    headers: Headers = {"content_type": JSON, **WITH_KEY}
    each = server.post("demo/j/append-batch", frames(b"1", b"[2,3]"), **headers)
    assert [item["status"] for item in json.loads(each.body)] == [204, 204]
    whole = server.post("demo/j/append-batch", frames(b"4", b"5"), **headers, **producer())
    assert json.loads(whole.body)[1]["stream_record_start"] == 4
    again = server.post("demo/j/append-batch", frames(b"4", b"5"), **headers, **producer())
    assert again.status == 200
    assert server.get("demo/j", "-1", **WITH_KEY).body == b"[1,2,3,4,5]"
    without = server.post("demo/j/append-batch", frames(b"6"), content_type=JSON)
    assert json.loads(without.body) == [{"status": 400}]
    refused = server.post("demo/j/append-batch", frames(b"6"), content_type=JSON, **producer(seq=1))
    assert code(refused) == (400, "key_required")


def test_records_have_their_numbers_and_forms(server: UrsulaServer) -> None:
    server.make("demo/j", content_type=JSON)
    server.append("demo/j", b'[{"a": 1}, 2, 3]', **WITH_KEY)
    found = server.query("demo/j", "record=1&max_records=1&record_view=envelope", **WITH_KEY)
    assert found.body == b'{"record":1,"value":2}\n'
    lines = server.get("demo/j", "-1", accept="application/x-ndjson", **WITH_KEY)
    assert lines.body == b'{"a": 1}\n2\n3\n'
    assert lines.headers["cache-control"] == "no-store" and "etag" not in lines.headers
    follower = server.follow_query("demo/j", "record=2&record_view=envelope&live=sse", **WITH_KEY)
    assert follower.data == ['{"record":2,"value":3}']


def test_bootstrap_shows_the_messages_to_who_has_the_key(server: UrsulaServer) -> None:
    server.make("demo/s")
    server.append("demo/s", b"one", b"two", **WITH_KEY)
    reply, writer = read_whole(server, "demo/s/bootstrap", **WITH_KEY)
    received = b"".join(bytes(part) for part in writer.writes)
    assert writer.finished and received.index(b"one") < received.index(b"two")
    assert reply.headers["cache-control"] == "no-store"
    assert code(server.get("demo/s/bootstrap")) == (400, "key_required")
    refused = server.get("demo/s/bootstrap", **WITH_OTHER)
    assert code(refused) == (400, "decryption_failed")


def test_bootstrap_breaks_off_at_a_record_of_another_key(server: UrsulaServer) -> None:
    server.make("demo/s")
    server.append("demo/s", b"one", **WITH_KEY)
    server.append("demo/s", b"two", **WITH_OTHER)
    _, writer = read_whole(server, "demo/s/bootstrap", **WITH_KEY)
    assert writer.aborted and not writer.finished


def test_a_snapshot_would_be_in_clear_and_is_refused(server: UrsulaServer) -> None:
    server.make("demo/s")
    server.append("demo/s", b"one", **WITH_KEY)
    reply = server.request("PUT", f"demo/s/snapshot/{token(1, 3)}", "", b"state", **WITH_KEY)
    assert code(reply) == (409, "conflict")
    assert "encrypted" in reply.body.decode()
    assert server.request("GET", "demo/s/snapshot").status == 404
