"""One stream, every dialect: what one of them wrote, the others read and follow."""

from __future__ import annotations

import json

import pytest

from headwater.core.limits import RECORD_BODY_BYTES_MAX
from tests.support.durable import BYTES, JSON, START
from tests.support.s2 import S2Server, fence, trim

BASIN = "durable-streams"
"""The bucket that both dialects have."""


def add(server: S2Server, name: str, *records: object, **options: str) -> None:
    reply = server.add(name, *records, basin=BASIN, **options)  # type: ignore[arg-type]
    assert reply.status == 200, reply


def read(server: S2Server, name: str, query: str = "seq_num=0", **headers: str) -> list[str]:
    return server.read(query, name=name, s2_basin=BASIN, **headers).bodies


def test_what_s2_appended_is_read_over_durable_streams(server: S2Server) -> None:
    server.make_stream("s", basin=BASIN)
    add(server, "s", {"headers": [["k", "v"]], "body": "one "}, "two ")
    add(server, "s", "three")

    assert server.content("s") == b"one two three"
    assert server.head("s").headers["content-type"] == BYTES


def test_what_durable_streams_appended_is_read_by_s2(server: S2Server) -> None:
    server.make("s", b"one", b"two")

    reply = server.read("seq_num=0", name="s", s2_basin=BASIN)
    assert reply.bodies == ["one", "two"]
    assert reply.tail == 2


def test_names_with_slashes_are_one_segment_for_s2(server: S2Server) -> None:
    server.make("a/b c", b"x")

    assert read(server, "a%2Fb%20c") == ["x"]


def test_each_follows_what_the_other_appends(server: S2Server) -> None:
    server.make("s", b"a")
    durable = server.follow("s", START)
    session = server.session("seq_num=0", name="s", s2_basin=BASIN)
    server.append("s", b"b")
    add(server, "s", "c")

    assert durable.text == "abc"
    assert session.numbers == [0, 1, 2]
    assert [frame.batch.records[-1].body for frame in session.frames if frame.batch.records] == [
        b"a",
        b"b",
        b"c",
    ]


def test_a_long_poll_is_answered_by_an_append_of_the_other(server: S2Server) -> None:
    tail = server.make("s", b"a")
    poll = server.poll("s", tail)
    add(server, "s", "b")
    assert poll.reply.body == b"b"

    waiting = server.wait("seq_num=2&wait=10", name="s", s2_basin=BASIN)
    server.append("s", b"c")
    assert waiting.found.bodies == ["c"]


def test_command_records_add_no_bytes_and_advance_the_offset(server: S2Server) -> None:
    server.make_stream("s", basin=BASIN)
    add(server, "s", {"body": "YQ=="}, fence("token"), {"body": "Yg=="}, format="base64")

    reply = server.get("s", START)
    assert reply.body == b"ab"
    assert reply.next.startswith("0000000000000003_0000000000000002")
    assert server.get("s", reply.next).body == b""


def test_a_follower_is_not_shown_a_command(server: S2Server) -> None:
    server.make_stream("s", basin=BASIN)
    poll = server.poll("s", "now")
    add(server, "s", fence("token"), format="base64")
    add(server, "s", "a")

    reply = poll.reply
    assert reply.body in (b"", b"a")
    assert server.content("s") == b"a"


def test_trimmed_data_answers_410_there(server: S2Server) -> None:
    server.make_stream("s", basin=BASIN)
    add(server, "s", "a", "b", "c")
    second = server.get("s", START).next
    add(server, "s", trim(2), format="base64")
    server.advance(10.0)

    reply = server.get("s", START)
    assert (reply.status, reply.error) == (410, "offset_trimmed")
    assert reply.next.startswith("0000000000000002_")
    assert server.content("s", "-1") == b"c"
    assert server.get("s", second).status == 200
    assert read(server, "s", "seq_num=0", s2_format="raw")[0] == "c"


def test_a_long_message_comes_in_parts(server: S2Server) -> None:
    message = b"x" * RECORD_BODY_BYTES_MAX + b"y" * 10
    server.make("s", b"before", message, b"after", content_type=BYTES)

    batch = server.read("seq_num=1&count=2", name="s", s2_basin=BASIN)
    assert batch.records[0]["headers"] == [["headwater-part", "1/2"]]
    assert batch.records[1]["headers"] == [["headwater-part", "2/2"]]
    assert "".join(batch.bodies).encode() == message
    assert server.read("seq_num=3", name="s", s2_basin=BASIN).records[0].get("headers") is None


def test_a_read_from_the_middle_of_a_message_knows_its_parts(server: S2Server) -> None:
    server.make("s", b"x" * (2 * RECORD_BODY_BYTES_MAX + 1), content_type=BYTES)

    for query in ("seq_num=1&count=1", "tail_offset=2&count=1"):
        records = server.read(query, name="s", s2_basin=BASIN).records
        assert records[0]["headers"] == [["headwater-part", "2/3"]]


def test_a_session_shows_parts_too(server: S2Server) -> None:
    server.make("s", b"x" * (2 * RECORD_BODY_BYTES_MAX + 1), content_type=BYTES)

    session = server.session("seq_num=0&wait=0", name="s", s2_basin=BASIN)
    found = [
        header.value
        for frame in session.frames
        for r in frame.batch.records
        for header in r.headers
    ]
    assert found == [b"1/3", b"2/3", b"3/3"]


def test_a_record_of_s2_is_one_message_however_long(server: S2Server) -> None:
    server.make_stream("s", basin=BASIN)
    body = "x" * (1024 * 1024 - 8)
    add(server, "s", body)

    reply = server.read("seq_num=0", name="s", s2_basin=BASIN)
    assert reply.bodies == [body]
    assert "headers" not in reply.records[0]
    assert server.content("s") == body.encode()


# -- JSON


def test_messages_of_a_json_stream_are_records_without_commas(server: S2Server) -> None:
    server.make("s", b'[{"a": 1}, 2, "x"]', content_type=JSON)

    assert read(server, "s") == ['{"a": 1}', "2", '"x"']


def test_each_record_appended_to_a_json_stream_is_one_value(server: S2Server) -> None:
    server.make("s", b'{"a":1}', content_type=JSON)
    add(server, "s", '{"b":2}', " 3 ")

    assert json.loads(server.content("s")) == [{"a": 1}, {"b": 2}, 3]


@pytest.mark.parametrize("body", ["", "nope", "1 2", "{", '{"a":1},{"b":2}'])
def test_an_append_that_is_no_json_is_refused_whole(server: S2Server, body: str) -> None:
    server.make("s", b"1", content_type=JSON)

    assert server.add("s", "2", body, basin=BASIN).code == "422 invalid"
    assert read(server, "s") == ["1"]


def test_an_array_appended_by_s2_is_one_record(server: S2Server) -> None:
    server.make("s", b"1", content_type=JSON)
    add(server, "s", "[2,3]")

    assert read(server, "s") == ["1", "[2,3]"]
    assert json.loads(server.content("s")) == [1, [2, 3]]


def test_a_command_on_a_json_stream_leaves_the_array_whole(server: S2Server) -> None:
    server.make("s", b"1", content_type=JSON)
    add(server, "s", fence("t"), {"body": "Mg=="}, format="base64")
    add(server, "s", fence(""), format="base64")

    assert json.loads(server.content("s")) == [1, 2]
    assert read(server, "s") == ["1", "t", "2", ""]


# -- Closed streams and forks


def test_a_closed_stream_takes_no_appends(server: S2Server) -> None:
    server.make("s", b"a")
    server.close("s")

    assert server.add("s", "b", basin=BASIN).code == "409 stream_closed"
    reply = server.read("seq_num=0&wait=10", name="s", s2_basin=BASIN)
    assert (reply.bodies, reply.tail) == (["a"], 1)
    assert server.wait("seq_num=1&wait=10", name="s", s2_basin=BASIN).found.records == []


def test_a_fork_is_read_with_what_it_inherited(server: S2Server) -> None:
    server.make("s", b"a", b"b", b"c")
    server.fork("f")
    server.append("f", b"own")
    server.append("s", b"not inherited")

    reply = server.read("seq_num=0", name="f", s2_basin=BASIN)
    assert reply.numbers == [0, 1, 2, 3]
    assert reply.bodies == ["a", "b", "c", "own"]
    assert server.session("seq_num=1&wait=0", name="f", s2_basin=BASIN).numbers == [1, 2, 3]


def test_the_tail_of_a_fork_has_the_time_of_what_it_inherited(server: S2Server) -> None:
    offset = server.make("s", b"a")
    first = server.check_tail("s", s2_basin=BASIN).json
    server.advance(5.0)
    server.append("s", b"b")
    server.fork("f", stream_fork_offset=offset)

    assert server.check_tail("f", s2_basin=BASIN).json == first
    time_ms = first["tail"]["timestamp"]
    assert server.read(f"timestamp={time_ms + 1}", name="f", s2_basin=BASIN).status == 416


def test_a_fork_inside_a_message_shows_its_part_of_it(server: S2Server) -> None:
    server.make("s", b"abcdef", content_type=BYTES)
    server.fork("f", stream_fork_offset=START, stream_fork_sub_offset="4")

    assert read(server, "f") == ["abcd"]


def test_a_fork_inside_a_long_message_counts_the_parts_it_has(server: S2Server) -> None:
    server.make("s", b"x" * (2 * RECORD_BODY_BYTES_MAX + 1), content_type=BYTES)
    cut = str(RECORD_BODY_BYTES_MAX + 5)
    server.fork("f", stream_fork_offset=START, stream_fork_sub_offset=cut)

    records = server.read("seq_num=0&count=2", name="f", s2_basin=BASIN).records
    assert [record["headers"] for record in records] == [
        [["headwater-part", "1/2"]],
        [["headwater-part", "2/2"]],
    ]
    assert len(records[1]["body"]) == 5


def test_a_deleted_stream_that_has_forks_is_being_deleted_for_s2(server: S2Server) -> None:
    server.make("s", b"a")
    server.fork("f")
    server.delete("s")

    for reply in (
        server.read("seq_num=0", name="s", s2_basin=BASIN),
        server.check_tail("s", s2_basin=BASIN),
        server.add("s", "b", basin=BASIN),
    ):
        assert reply.code == "409 stream_deletion_pending"


def test_a_bucket_whose_name_no_basin_has_can_be_used(server: S2Server) -> None:
    server.make_basin("B.1")
    server.make_stream("s", basin="B.1")

    assert server.add("s", "a", basin="B.1").status == 200
    assert server.read("seq_num=0", s2_basin="B.1").bodies == ["a"]


def test_reading_renews_a_sliding_ttl_as_elsewhere(server: S2Server) -> None:
    server.make("s", b"a", stream_ttl="10")
    for _ in range(4):
        server.advance(8.0)
        assert read(server, "s") == ["a"]
    server.advance(20.0)

    assert server.read("seq_num=0", name="s", s2_basin=BASIN).code == "404 stream_not_found"


def test_the_host_may_name_the_basin() -> None:
    with S2Server(domain="b.example.com") as server:
        server.make_stream("s")
        host = "basin-of-tests.b.example.com:4437"
        assert server.check_tail(s2_basin="", host=host).status == 200
        assert server.check_tail(s2_basin="", host=host.upper()).status == 200
        for other in ("", "b.example.com", "x.example.com", "short.b.example.com"):
            assert server.check_tail(s2_basin="", host=other).code == "400 bad_header"
        reply = server.check_tail(s2_basin="another-basin", host=host)
        assert reply.code == "404 basin_not_found"
