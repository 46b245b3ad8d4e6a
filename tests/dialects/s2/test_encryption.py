"""Encryption with keys of the clients, over every way that S2 has to append and read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import s2_sdk._generated.s2.v1.s2_pb2 as pb

from headwater.core.records import COMMAND
from tests.support.durable import JSON, Follower
from tests.support.keys import CIPHERS, KEY, OTHER_KEY
from tests.support.s2 import BASIN, PROTOBUF, SESSION, S2Reply, S2Server, encode, fence, trim

NO_KEYS = ["", "c2hvcnQ=", "not base64 at all", KEY[:-1], KEY + KEY]


class Server(S2Server):
    """One whose basin encrypts, with one stream."""

    def __init__(self, cipher: str) -> None:
        super().__init__()
        self.cipher = cipher
        self.make_basin(BASIN, stream_cipher=cipher)
        assert self.send("POST", "streams", {"stream": "s"}).json["cipher"] == cipher

    def seal(self, *records: dict[str, Any] | str, key: str = KEY, **given: Any) -> S2Reply:
        reply = self.add("s", *records, s2_encryption_key=key, **given)
        assert reply.status == 200, reply
        return reply

    def read_all(self, key: str = KEY) -> S2Reply:
        return self.read("seq_num=0", s2_encryption_key=key)


@pytest.fixture(params=CIPHERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(request.param) as server:
        yield server


def text_of(body: bytes) -> str:
    return body.decode("latin-1")


# -- keys


@pytest.mark.parametrize("key", NO_KEYS)
def test_a_key_is_asked_for_before_anything_happens(server: Server, key: str) -> None:
    server.seal("a")
    batch = pb.AppendInput(records=[pb.AppendRecord(body=b"x")]).SerializeToString()
    replies = [
        server.add("s", "b", s2_encryption_key=key),
        server.post_protobuf("s", batch, s2_encryption_key=key),
        server.read("seq_num=0", s2_encryption_key=key),
        server.read("wait=5", s2_encryption_key=key),
        server.read("seq_num=0", s2_encryption_key=key, accept="text/event-stream"),
        server.read("seq_num=0", s2_encryption_key=key, content_type=SESSION),
        server.fetch("POST", "streams/s/records", content_type=SESSION, s2_encryption_key=key),
    ]
    for reply in replies:
        assert reply.code == "400 bad_header"
        assert server.cipher in reply.json["message"]
        assert not key or key not in reply.json["message"]
    assert server.check_tail().tail == 1


def test_another_key_appends_and_reads_what_it_appended(server: Server) -> None:
    server.seal("a", "b")
    server.seal("c", key=OTHER_KEY)
    assert server.read("seq_num=0&count=2", s2_encryption_key=KEY).bodies == ["a", "b"]
    assert server.read("seq_num=2", s2_encryption_key=OTHER_KEY).bodies == ["c"]
    for key in (KEY, OTHER_KEY):
        assert server.read_all(key).code == "400 decryption_failed"


def test_a_key_on_a_plain_stream_is_ignored(server: Server) -> None:
    server.make_basin(BASIN)
    server.send("POST", "streams", {"stream": "plain"})
    for key in (*NO_KEYS, KEY):
        assert server.add("plain", "a", s2_encryption_key=key).status == 200
        assert server.read("seq_num=0", name="plain", s2_encryption_key=key).status == 200


def test_the_cipher_is_that_of_the_creation(server: Server) -> None:
    server.make_basin(BASIN)
    listed = server.fetch("GET", "streams").json["streams"]
    assert [stream["cipher"] for stream in listed] == [server.cipher]
    assert server.add("s", "a").code == "400 bad_header"
    server.seal("a")
    assert server.read_all().bodies == ["a"]


def test_the_tail_needs_no_key(server: Server) -> None:
    server.seal("a")
    assert server.check_tail().tail == 1


# -- appending


def test_headers_and_times_come_back(server: Server) -> None:
    given = {"headers": [["name", "value"], ["name", ""]], "body": "text", "timestamp": 5}
    server.seal(given)
    (record,) = server.read_all().records
    assert (record["headers"], record["body"], record["timestamp"]) == (
        given["headers"],
        "text",
        5,
    )
    reply = server.read("seq_num=0", accept=PROTOBUF, s2_encryption_key=KEY)
    (found,) = reply.batch.records
    assert (found.body, found.headers[0].value) == (b"text", b"value")


def test_sizes_are_those_of_the_text(server: Server) -> None:
    server.seal("x" * 100, "y" * 100)
    assert server.read("seq_num=0&bytes=108", s2_encryption_key=KEY).numbers == [0]
    assert server.read("seq_num=0&bytes=216", s2_encryption_key=KEY).numbers == [0, 1]
    largest = "z" * (1024 * 1024 - 8)
    server.seal(largest)
    assert server.read("seq_num=2", s2_encryption_key=KEY).bodies == [largest]


def test_conditions_and_commands_work_as_ever(server: Server) -> None:
    server.seal("a", match_seq_num=0)
    late = server.add("s", "b", match_seq_num=0, s2_encryption_key=KEY)
    assert (late.status, late.json) == (412, {"seq_num_mismatch": 1})
    server.seal(fence("mine"), {"body": encode("b")}, format="base64")
    fenced = server.add("s", "c", fencing_token="other", s2_encryption_key=KEY)
    assert (fenced.status, fenced.json) == (412, {"fencing_token_mismatch": "mine"})
    records = server.read_all().records
    assert [record.get("body") for record in records] == ["a", "mine", "b"]
    assert records[1]["headers"] == [["", "fence"]]


def test_command_records_are_stored_in_clear(server: Server) -> None:
    server.seal({"body": encode("secret")}, fence("token"), format="base64")
    stream = server.engine.open(BASIN, "s")
    run = server.engine.shard.read_run(stream.state.id, stream.state.first_seq)
    assert bytes(run.record_bodies()[1]) == b"token" and run.flags[1] & COMMAND
    assert b"secret" not in run.data


def test_a_trim_is_obeyed(server: Server) -> None:
    server.seal("a", "b")
    server.seal(trim(2), format="base64")
    server.advance(10)
    assert server.read_all().numbers == [2]


def test_an_append_that_breaks_a_rule_adds_nothing(server: Server) -> None:
    nameless = {"headers": [["", "x"], ["a", "b"]]}
    assert server.add("s", "a", nameless, s2_encryption_key=KEY).code == "422 invalid"
    assert server.add("s", {"headers": [["", "what"]]}, s2_encryption_key=KEY).code == "422 invalid"
    assert server.check_tail().tail == 0


def test_an_append_may_make_the_stream(server: Server) -> None:
    server.make_basin(BASIN, stream_cipher=server.cipher, create_on_append=True)
    assert server.add("new", "a", s2_encryption_key=KEY).status == 200
    assert server.read("seq_num=0", name="new", s2_encryption_key=KEY).bodies == ["a"]
    assert server.add("newer", "a").code == "400 bad_header"


# -- sessions


def test_a_session_appends_sealed(server: Server) -> None:
    session = server.append_session("s", s2_encryption_key=KEY)
    session.send(b"a", b"b")
    session.send(b"c", match_seq_num=2)
    session.end()
    assert session.acks == [(0, 2, 2), (2, 3, 3)] and session.ended
    assert server.read_all().bodies == ["a", "b", "c"]


def test_a_session_may_make_the_stream(server: Server) -> None:
    server.make_basin(BASIN, stream_cipher=server.cipher, create_on_append=True)
    session = server.append_session("new", s2_encryption_key=KEY)
    session.send(b"a")
    session.end()
    assert session.acks == [(0, 1, 1)]
    refused = server.fetch("POST", "streams/newer/records", content_type=SESSION)
    assert refused.code == "400 bad_header" and server.cipher in refused.json["message"]
    assert server.check_tail("newer").status == 404


def test_nothing_behind_a_refusal_is_appended(server: Server) -> None:
    session = server.append_session("s", s2_encryption_key=KEY)
    session.send(b"a", settle=False)
    session.send(b"b", match_seq_num=9, settle=False)
    session.send(b"c")
    assert session.acks == [(0, 1, 1)] and session.frames[-1].status == 412
    assert server.read_all().bodies == ["a"]


def test_a_read_session_catches_up_and_follows(server: Server) -> None:
    server.seal("a", "b")
    session = server.session("seq_num=0", s2_encryption_key=KEY)
    server.seal("c")
    bodies = [record.body for frame in session.frames for record in frame.batch.records]
    assert bodies == [b"a", b"b", b"c"]


def test_a_read_session_ends_at_a_record_of_another_key(server: Server) -> None:
    server.seal("a", "b")
    session = server.session("seq_num=0", s2_encryption_key=KEY)
    server.seal("c", key=OTHER_KEY)
    assert session.numbers == [0, 1] and session.ended
    last = session.frames[-1]
    assert (last.status, last.error["code"]) == (400, "decryption_failed")
    again = server.session("seq_num=0", s2_encryption_key=KEY)
    assert again.numbers == [0, 1] and again.frames[-1].status == 400


@pytest.mark.parametrize("bound", ["count=2", "until={time}", "bytes=20", "bytes=18"])
def test_a_read_needs_no_key_of_what_lies_behind_its_bounds(server: Server, bound: str) -> None:
    server.seal("a", "b")
    server.advance(1)
    time_ms = server.seal("c", key=OTHER_KEY).json["start"]["timestamp"]
    query = "seq_num=0&" + bound.format(time=time_ms)
    batch = server.read(query, s2_encryption_key=KEY)
    session = server.session(query, s2_encryption_key=KEY)
    events = server.events(query, s2_encryption_key=KEY)
    assert batch.numbers == session.numbers == [0, 1]
    assert session.ended and not session.frames[-1].flag
    assert events.received.endswith(b"data: [DONE]\n\n")


def test_a_bound_that_lets_a_record_of_another_key_in_does_not_help(server: Server) -> None:
    server.seal("a", "b")
    time_ms = server.seal("c", key=OTHER_KEY).json["start"]["timestamp"]
    for bound in ("count=3", f"until={time_ms + 1}", "bytes=27"):
        query = f"seq_num=0&{bound}"
        assert server.read(query, s2_encryption_key=KEY).code == "400 decryption_failed"
        assert server.session(query, s2_encryption_key=KEY).frames[-1].status == 400


@pytest.mark.parametrize("records", [["x"] * 1000, ["x" * 500_000, "y" * 500_000]])
def test_a_full_batch_needs_no_key_of_the_record_behind_it(
    server: Server, records: list[str]
) -> None:
    server.seal(*records)
    server.seal("z" * 50_000, key=OTHER_KEY)
    assert len(server.read_all().records) == len(records)


def test_an_event_stream_ends_with_an_error(server: Server) -> None:
    server.seal("a")
    events = server.events("seq_num=0", s2_encryption_key=KEY)
    server.seal("b")
    assert b'"body":"a"' in events.received and b'"body":"b"' in events.received
    server.seal("c", key=OTHER_KEY)
    assert b"event: error" in events.received and b"decryption_failed" in events.received
    assert events.ended and not events.writer.aborted


def test_sessions_with_keys_of_their_own_share_nothing(server: Server) -> None:
    sessions = [server.session("seq_num=0", s2_encryption_key=KEY) for _ in range(10)]
    others = [server.session("seq_num=0", s2_encryption_key=OTHER_KEY) for _ in range(10)]
    server.seal("for some only")
    for session in sessions:
        assert b"for some only" in session.received and not session.ended
    for other in others:
        assert b"some" not in other.received
        assert other.frames[-1].error["code"] == "decryption_failed"


def test_a_read_that_waits_is_answered(server: Server) -> None:
    right = server.wait("wait=30", s2_encryption_key=KEY)
    wrong = server.wait("wait=30", s2_encryption_key=OTHER_KEY)
    server.seal("a")
    assert right.found.bodies == ["a"]
    assert wrong.found.code == "400 decryption_failed"


# -- the other dialect


def test_one_stream_in_both_dialects(server: Server) -> None:
    server.make_basin("durable-streams", stream_cipher=server.cipher)
    server.make("j", content_type=JSON)
    server.append("j", b'[{"a": 1}, 2]', s2_encryption_key=KEY)
    assert server.add("j", "[3]", basin="durable-streams", s2_encryption_key=KEY).status == 200
    refused = server.add("j", "no JSON", basin="durable-streams", s2_encryption_key=KEY)
    assert refused.code == "422 invalid"
    assert json.loads(server.get("j", "-1", s2_encryption_key=KEY).body) == [{"a": 1}, 2, [3]]
    read = server.read("seq_num=0", name="j", s2_basin="durable-streams", s2_encryption_key=KEY)
    assert read.bodies == ['{"a": 1}', "2", "[3]"]


def test_live_readers_of_the_other_dialect_get_what_s2_appends(server: Server) -> None:
    server.make_basin("durable-streams", stream_cipher=server.cipher)
    server.make("t")
    follower: Follower = server.follow("t", "-1", s2_encryption_key=KEY)
    given = [fence("x"), {"body": encode("hello")}]
    server.add("t", *given, format="base64", basin="durable-streams", s2_encryption_key=KEY)
    assert follower.text == "hello"


def test_a_long_message_is_parts_here(server: Server) -> None:
    server.make_basin("durable-streams", stream_cipher=server.cipher)
    server.make("t", content_type="application/octet-stream")
    text = bytes(range(256)) * 8192
    server.append("t", text, s2_encryption_key=KEY)
    session = server.session(
        "seq_num=0", name="t", s2_basin="durable-streams", s2_encryption_key=KEY
    )
    records = [record for frame in session.frames for record in frame.batch.records]
    assert b"".join(record.body for record in records) == text
    marks = [text_of(record.headers[0].value) for record in records]
    assert marks == [f"{number}/3" for number in (1, 2, 3)]
