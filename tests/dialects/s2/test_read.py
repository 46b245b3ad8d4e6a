"""Reading one batch: every row and sentence of the API's page on reading. S2 API: read."""

from __future__ import annotations

import json

import pytest

from headwater.core.errors import Corruption, OffsetTrimmed
from headwater.core.types import SeqNum
from headwater.engine.records import RecordCursor, Span
from tests.support.durable import NOW_MS
from tests.support.s2 import BASIN, PROTOBUF, S2Server, trim

DAYS_S = 24 * 3600


@pytest.fixture
def filled(server: S2Server) -> S2Server:
    """Records 0 to 4, a second apart."""
    server.make_stream("s")
    server.fill("s", "a", "b", "c", "d", "e", seconds=1.0)
    return server


def trimmed(server: S2Server, to: int) -> None:
    """Drop the records before `to`; the record that says so is the last one."""
    assert server.add("s", trim(to), format="base64").status == 200
    server.advance(10.0)


# -- Starting point


def test_seq_num_starts_at_the_first_record_with_that_number_or_more(filled: S2Server) -> None:
    reply = filled.read("seq_num=2")

    assert reply.numbers == [2, 3, 4]
    assert reply.bodies == ["c", "d", "e"]


def test_seq_num_before_what_is_kept_starts_at_the_first_record_kept(filled: S2Server) -> None:
    trimmed(filled, 3)

    assert filled.read("seq_num=1").numbers == [3, 4, 5]


def test_timestamp_starts_at_the_first_record_of_that_time_or_later(filled: S2Server) -> None:
    assert filled.read(f"timestamp={NOW_MS + 2000}").numbers == [2, 3, 4]
    assert filled.read(f"timestamp={NOW_MS + 2001}").numbers == [3, 4]
    assert filled.read("timestamp=0").numbers == [0, 1, 2, 3, 4]


def test_timestamp_among_records_of_one_time_starts_at_the_first_of_them(
    server: S2Server,
) -> None:
    server.make_stream("s")
    server.add("s", "a", "b", "c")

    assert server.read(f"timestamp={NOW_MS}").numbers == [0, 1, 2]


def test_tail_offset_starts_so_many_records_before_the_tail(filled: S2Server) -> None:
    assert filled.read("tail_offset=2").numbers == [3, 4]


def test_tail_offset_is_saturated_at_the_start_of_the_stream(filled: S2Server) -> None:
    assert filled.read("tail_offset=100").numbers == [0, 1, 2, 3, 4]


def test_tail_offset_saturates_at_the_first_record_kept(filled: S2Server) -> None:
    trimmed(filled, 4)

    assert filled.read("tail_offset=100").numbers == [4, 5]


@pytest.mark.parametrize(
    "query",
    [
        "seq_num=0&timestamp=0",
        "seq_num=0&tail_offset=0",
        "timestamp=0&tail_offset=0",
        "seq_num=0&timestamp=0&tail_offset=0",
    ],
)
def test_at_most_one_starting_selector_may_be_given(filled: S2Server, query: str) -> None:
    assert filled.read(query).code == "422 invalid"


def test_no_selector_is_tail_offset_0(filled: S2Server) -> None:
    for query in ("", "tail_offset=0"):
        reply = filled.read(query)
        assert (reply.status, reply.tail) == (416, 5)


def test_tail_offset_0_starts_at_the_tail_where_no_record_is_yet(filled: S2Server) -> None:
    poll = filled.wait("tail_offset=0&wait=10")
    filled.fill("s", "f")

    assert poll.found.numbers == [5]


@pytest.mark.parametrize("start", ["seq_num=9", f"timestamp={NOW_MS + DAYS_S * 1000}"])
def test_clamp_moves_a_start_beyond_the_tail_to_the_tail(filled: S2Server, start: str) -> None:
    poll = filled.wait(f"{start}&clamp=true&wait=10")
    assert poll.waiting
    filled.fill("s", "f")

    assert poll.found.numbers == [5]


@pytest.mark.parametrize("clamp", ["", "&clamp=false"])
@pytest.mark.parametrize("start", ["seq_num=6", f"timestamp={NOW_MS + 4001}"])
@pytest.mark.parametrize("wait", ["", "&wait=0", "&wait=10"])
def test_without_clamp_a_start_beyond_the_tail_is_416(
    filled: S2Server, start: str, clamp: str, wait: str
) -> None:
    reply = filled.read(f"{start}{clamp}{wait}")

    assert reply.status == 416
    assert reply.json == {"tail": {"seq_num": 5, "timestamp": NOW_MS + 4000}}


# -- Bounds


def test_count_stops_after_so_many_records(filled: S2Server) -> None:
    reply = filled.read("seq_num=1&count=2")

    assert reply.numbers == [1, 2]
    assert reply.tail is None


def test_count_is_at_most_1000_for_a_single_batch(server: S2Server) -> None:
    server.make_stream("s")
    for _ in range(3):
        server.add("s", *["x"] * 500)

    for query in ("seq_num=0", "seq_num=0&count=5000", "seq_num=0&count=1000"):
        assert server.read(query).numbers == list(range(1000))


def test_bytes_limits_the_metered_bytes(filled: S2Server) -> None:
    """A record of one byte and no headers counts for nine."""
    assert filled.read("seq_num=0&bytes=27").numbers == [0, 1, 2]
    assert filled.read("seq_num=0&bytes=26").numbers == [0, 1]


def test_bytes_counts_headers(server: S2Server) -> None:
    server.make_stream("s")
    server.add("s", {"headers": [["ab", "c"], ["d", ""]], "body": "xyz"}, "x")

    size = 8 + 2 * 2 + len("abcd") + len("xyz")
    assert server.read(f"seq_num=0&bytes={size - 1}").numbers == []
    assert server.read(f"seq_num=0&bytes={size + 8}").numbers == [0]
    assert server.read(f"seq_num=0&bytes={size + 9}").numbers == [0, 1]


def test_bytes_is_at_most_1_mib_for_a_single_batch(server: S2Server) -> None:
    server.make_stream("s")
    for _ in range(5):
        server.add("s", "x" * 250_000)

    for query in ("seq_num=0", "seq_num=0&bytes=9999999"):
        assert server.read(query).numbers == [0, 1, 2, 3]


def test_a_record_of_the_largest_size_is_read_whole(server: S2Server) -> None:
    server.make_stream("s")
    body = "x" * (1024 * 1024 - 8)
    assert server.add("s", body).status == 200

    assert server.read("seq_num=0").bodies == [body]


def test_until_stops_before_records_of_that_time_or_later(filled: S2Server) -> None:
    assert filled.read(f"seq_num=0&until={NOW_MS + 2000}").numbers == [0, 1]
    assert filled.read(f"seq_num=0&until={NOW_MS + 2001}").numbers == [0, 1, 2]


def test_of_several_bounds_the_first_one_reached_stops_the_read(filled: S2Server) -> None:
    until = f"until={NOW_MS + 3000}"
    assert filled.read(f"seq_num=0&count=2&bytes=1000&{until}").numbers == [0, 1]
    assert filled.read(f"seq_num=0&count=4&bytes=9&{until}").numbers == [0]
    assert filled.read(f"seq_num=0&count=4&bytes=1000&{until}").numbers == [0, 1, 2]


@pytest.mark.parametrize("bound", ["count=0", "bytes=0", "bytes=8", "until=0", f"until={NOW_MS}"])
@pytest.mark.parametrize("wait", ["", "&wait=5"])
def test_a_bound_may_leave_the_batch_empty(filled: S2Server, bound: str, wait: str) -> None:
    reply = filled.read(f"seq_num=0&{bound}{wait}")

    assert reply.json == {"records": []}


def test_until_not_after_a_timestamp_start_is_refused(filled: S2Server) -> None:
    for until in (1000, 999):
        assert filled.read(f"timestamp=1000&until={until}").code == "422 invalid"
    assert filled.read(f"timestamp={NOW_MS}&until={NOW_MS + 1}").numbers == [0]


# -- Waiting at the tail


def test_a_single_batch_read_returns_at_once_by_default(filled: S2Server) -> None:
    assert not filled.wait("seq_num=0").waiting
    assert not filled.wait("seq_num=5").waiting


def test_a_single_batch_read_with_wait_returns_what_is_there_at_once(filled: S2Server) -> None:
    poll = filled.wait("seq_num=3&wait=10")

    assert poll.found.numbers == [3, 4]


def test_a_single_batch_read_waits_for_the_first_batch_that_comes(filled: S2Server) -> None:
    poll = filled.wait("seq_num=5&wait=10")
    filled.advance(5.0)
    assert poll.waiting
    filled.add("s", "f", "g")

    assert poll.found.numbers == [5, 6]
    assert poll.found.tail == 7
    assert filled.engine.followers == 0


def test_if_the_wait_elapses_the_batch_is_empty(filled: S2Server) -> None:
    poll = filled.wait("seq_num=5&wait=10")
    filled.advance(9.9)
    assert poll.waiting
    filled.advance(0.2)

    assert poll.found.records == []
    assert poll.found.tail == 5
    assert filled.engine.followers == 0


def test_a_single_batch_read_waits_for_60_seconds_at_most(filled: S2Server) -> None:
    poll = filled.wait("seq_num=5&wait=3600")
    filled.advance(59.5)
    assert poll.waiting
    filled.advance(1.0)

    assert poll.found.records == []


def test_a_read_that_waits_keeps_to_its_bounds(filled: S2Server) -> None:
    poll = filled.wait("seq_num=5&wait=10&count=1")
    filled.add("s", "f", "g")
    assert poll.found.numbers == [5]

    poll = filled.wait("seq_num=7&wait=10&bytes=8")
    filled.add("s", "h")
    assert poll.found.json == {"records": []}


def test_a_read_does_not_wait_when_no_record_can_come_within_its_bounds(filled: S2Server) -> None:
    for bound in ("count=0", "bytes=0", f"until={NOW_MS}"):
        poll = filled.wait(f"seq_num=5&wait=10&{bound}")
        assert poll.found.records == []


def test_a_reader_that_goes_away_is_forgotten(filled: S2Server) -> None:
    poll = filled.wait("seq_num=5&wait=10")
    assert filled.engine.followers == 1
    poll.cancel()

    assert filled.engine.followers == 0


def test_a_server_that_stops_answers_the_reads_that_wait(filled: S2Server) -> None:
    poll = filled.wait("seq_num=5&wait=10")
    filled.data.end_waits()

    assert poll.found.records == []


# -- When reads return 416


@pytest.mark.parametrize(
    ("query", "beyond"),
    [
        ("seq_num=5", False),
        ("seq_num=6", True),
        (f"timestamp={NOW_MS + 4000}", False),
        (f"timestamp={NOW_MS + 4001}", True),
        ("tail_offset=0", False),
    ],
)
def test_with_wait_416_is_for_starts_beyond_the_tail(
    filled: S2Server, query: str, beyond: bool
) -> None:
    poll = filled.wait(f"{query}&wait=5")

    if beyond:
        assert (poll.found.status, poll.found.tail) == (416, 5)
    else:
        assert poll.waiting or poll.found.status == 200


def test_with_wait_an_empty_stream_is_waited_for(server: S2Server) -> None:
    server.make_stream("s")
    for start in ("seq_num=0", "timestamp=0", "tail_offset=0", "tail_offset=7"):
        poll = server.wait(f"{start}&wait=1")
        assert poll.waiting
        server.advance(1.1)
        assert poll.found.records == []


@pytest.mark.parametrize("wait", ["", "&wait=0"])
@pytest.mark.parametrize(
    "query",
    [
        "tail_offset=0",
        "seq_num=5",
        "seq_num=6",
        f"timestamp={NOW_MS + 4001}",
        "seq_num=5&count=3",
        "seq_num=5&until=1",
    ],
)
def test_without_wait_416_is_for_every_read_that_finds_no_record(
    filled: S2Server, query: str, wait: str
) -> None:
    reply = filled.read(query + wait)

    assert reply.status == 416
    assert reply.json == {"tail": {"seq_num": 5, "timestamp": NOW_MS + 4000}}


@pytest.mark.parametrize("query", ["seq_num=0", "timestamp=0", "tail_offset=0", "tail_offset=9"])
def test_without_wait_an_empty_stream_is_416(server: S2Server, query: str) -> None:
    server.make_stream("s")

    assert server.read(query).json == {"tail": {"seq_num": 0, "timestamp": 0}}


def test_a_stream_whose_records_are_all_trimmed_is_empty(filled: S2Server) -> None:
    trimmed(filled, 6)

    for query in ("seq_num=0", "timestamp=0", "tail_offset=3"):
        reply = filled.read(query)
        assert (reply.status, reply.tail) == (416, 6)


def test_starting_exactly_at_the_tail_is_valid(filled: S2Server) -> None:
    assert filled.wait("seq_num=5&wait=5").waiting
    assert filled.read("seq_num=5").status == 416


@pytest.mark.parametrize("start", ["seq_num=5", "seq_num=9", f"timestamp={NOW_MS * 2}"])
def test_clamp_without_wait_still_gives_416_at_the_tail(filled: S2Server, start: str) -> None:
    """It moves the start to the tail, not to the last record."""
    assert filled.read(f"{start}&clamp=true").status == 416


def test_clamp_changes_no_start_that_is_not_beyond_the_tail(filled: S2Server) -> None:
    assert filled.read("seq_num=3&clamp=true").numbers == [3, 4]


# -- The answer


def test_the_tail_is_told_by_every_batch_that_reaches_it(filled: S2Server) -> None:
    assert filled.read("seq_num=0").json["tail"] == {"seq_num": 5, "timestamp": NOW_MS + 4000}
    assert filled.read("seq_num=3&count=2").tail == 5
    assert filled.read("seq_num=3&count=1").tail is None


def test_empty_headers_and_bodies_are_left_out(server: S2Server) -> None:
    server.make_stream("s")
    server.add("s", {}, {"headers": [["k", "v"], ["k", ""]]})

    assert server.read("seq_num=0").records == [
        {"seq_num": 0, "timestamp": NOW_MS},
        {"seq_num": 1, "timestamp": NOW_MS, "headers": [["k", "v"], ["k", ""]]},
    ]


@pytest.mark.parametrize("name", ["base64", "json-binsafe"])
def test_base64_shows_bytes_as_they_are(server: S2Server, name: str) -> None:
    server.make_stream("s")
    server.add("s", {"headers": [["/w==", ""]], "body": "AP8="}, format=name)

    assert server.read("seq_num=0", s2_format=name).records[0] == {
        "seq_num": 0,
        "timestamp": NOW_MS,
        "headers": [["/w==", ""]],
        "body": "AP8=",
    }


@pytest.mark.parametrize("name", ["", "raw", "json", " raw "])
def test_raw_shows_text(server: S2Server, name: str) -> None:
    server.make_stream("s")
    server.add("s", {"body": "w6n/"}, format="base64")

    assert server.read("seq_num=0", s2_format=name).bodies == ["é\ufffd"]


def test_an_unknown_format_is_a_bad_header(filled: S2Server) -> None:
    assert filled.read("seq_num=0", s2_format="hex").code == "400 bad_header"


@pytest.mark.parametrize("accept", [PROTOBUF, "application/x-protobuf", f"{PROTOBUF}, */*"])
def test_protobuf_is_sent_to_who_asks_for_it(filled: S2Server, accept: str) -> None:
    batch = filled.read("seq_num=1&count=2", accept=accept).batch

    assert [(record.seq_num, record.body) for record in batch.records] == [(1, b"b"), (2, b"c")]
    assert batch.records[0].timestamp == NOW_MS + 1000
    assert not batch.HasField("tail")
    tail = filled.read("seq_num=4", accept=accept).batch.tail
    assert (tail.seq_num, tail.timestamp) == (5, NOW_MS + 4000)


def test_an_error_is_json_whatever_was_asked_for(filled: S2Server) -> None:
    assert filled.read("seq_num=9", accept=PROTOBUF).tail == 5
    assert filled.read("seq_num=x", accept=PROTOBUF).code == "400 bad_query"


@pytest.mark.parametrize(
    "query",
    [
        "seq_num=-1",
        "seq_num=1.5",
        "seq_num=",
        "seq_num=18446744073709551616",
        "timestamp=now",
        "tail_offset=+1",
        "count=-1",
        "bytes=1k",
        "until=never",
        "wait=4294967296",
        "wait=1.5",
        "clamp=yes",
        "clamp=",
        "seq_num=1&seq_num=1",
        "clamp=true&clamp=true",
        "seq_num=%ff",
    ],
)
def test_a_value_that_cannot_be_read_is_a_bad_query(filled: S2Server, query: str) -> None:
    assert filled.read(query).code == "400 bad_query"


def test_parameters_of_no_meaning_are_ignored(filled: S2Server) -> None:
    assert filled.read("seq_num=4&pretty=1&x").numbers == [4]


def test_a_seq_num_of_64_bits_is_beyond_the_tail(filled: S2Server) -> None:
    assert filled.read("seq_num=18446744073709551615").status == 416


def test_reading_needs_a_basin_and_a_stream_that_are_there(server: S2Server) -> None:
    assert server.read("seq_num=0").code == "404 stream_not_found"
    assert server.read("seq_num=0", s2_basin="another-basin").code == "404 basin_not_found"


def test_a_read_over_many_runs_is_one_batch(server: S2Server) -> None:
    server.make_stream("s")
    server.engine.packer.enabled = False
    for number in range(300):
        server.add("s", json.dumps(number))

    reply = server.read("seq_num=0")

    assert reply.numbers == list(range(300))
    assert reply.bodies == [str(number) for number in range(300)]


def test_a_long_read_gives_way_to_others_and_is_whole(server: S2Server) -> None:
    server.make_stream("s")
    for _ in range(9):
        server.add("s", *["x" * 1000] * 120)

    reply = server.read("seq_num=0")

    assert reply.numbers == list(range(1000))


def test_compressed_for_who_asks_for_it(server: S2Server) -> None:
    server.make_stream("s")
    server.add("s", "x" * 5000)

    reply = server.read("seq_num=0", accept_encoding="zstd")
    assert reply.headers["content-encoding"] == "zstd"
    assert len(reply.body) < 200
    assert "content-encoding" not in server.read("seq_num=0").headers


# -- Check tail


def test_the_tail_of_an_empty_stream_is_0_0(server: S2Server) -> None:
    server.make_stream("s")

    assert server.check_tail().json == {"tail": {"seq_num": 0, "timestamp": 0}}


def test_the_tail_is_the_next_number_and_the_last_time(filled: S2Server) -> None:
    assert filled.check_tail().json == {"tail": {"seq_num": 5, "timestamp": NOW_MS + 4000}}


def test_the_tail_stays_when_everything_is_trimmed(filled: S2Server) -> None:
    trimmed(filled, 6)

    assert filled.check_tail().json == {"tail": {"seq_num": 6, "timestamp": NOW_MS + 5000}}


def test_the_tail_of_no_stream_is_not_found(server: S2Server) -> None:
    assert server.check_tail().code == "404 stream_not_found"
    assert server.check_tail(s2_basin="another-basin").code == "404 basin_not_found"


# -- Making streams


def test_a_read_makes_the_stream_where_the_basin_says_so(server: S2Server) -> None:
    server.make_basin("reading-basin", create_on_read=True)

    reply = server.read("seq_num=0", s2_basin="reading-basin")
    assert reply.json == {"tail": {"seq_num": 0, "timestamp": 0}}
    assert server.check_tail("other", s2_basin="reading-basin").status == 200
    assert server.engine.open("reading-basin", "s").state.retention is not None
    assert server.engine.open("reading-basin", "other")


def test_a_read_that_cannot_be_understood_makes_no_stream(server: S2Server) -> None:
    server.make_basin("reading-basin", create_on_read=True)
    basin = {"s2_basin": "reading-basin"}

    for query in ("seq_num=x", "seq_num=1&timestamp=1", "timestamp=5&until=5"):
        assert server.read(query, **basin).status in (400, 422)
    assert server.read("seq_num=0", s2_format="hex", **basin).code == "400 bad_header"
    assert server.read("seq_num=0", s2_stream_config="{", **basin).code == "400 bad_header"
    assert server.engine.shard.find("reading-basin", "s") is None


def test_an_append_basin_makes_no_stream_for_a_read(server: S2Server) -> None:
    server.make_basin("append-basin", create_on_append=True)

    assert server.read("seq_num=0", s2_basin="append-basin").code == "404 stream_not_found"


def test_the_request_says_what_a_stream_it_makes_is_like(server: S2Server) -> None:
    server.make_basin("reading-basin", create_on_read=True)
    config = json.dumps({"timestamping": {"mode": "arrival"}, "storage_class": "standard"})

    server.read("seq_num=0", s2_basin="reading-basin", s2_stream_config=config)
    server.read(
        "seq_num=0",
        s2_basin="reading-basin",
        s2_stream_config=json.dumps({"timestamping": {"mode": "client-require"}}),
    )

    state = server.engine.open("reading-basin", "s").state
    assert (state.timestamping, state.storage_class) == ("arrival", "standard")


# -- What happens meanwhile


def test_records_trimmed_during_a_read_are_passed_over(
    server: S2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two steps: what was read before is a batch, else the read begins after them."""
    server.make_stream("s")
    for _ in range(9):
        server.add("s", *["x" * 1000] * 120)
    reads = 0
    step = RecordCursor.step

    def trimming(cursor: RecordCursor) -> list[Span]:
        nonlocal reads
        reads += 1
        if reads == at:
            raise OffsetTrimmed(server.engine.open(BASIN, "s").tail._replace(seq=SeqNum(1000)))
        return step(cursor)

    monkeypatch.setattr(RecordCursor, "step", trimming)
    at = 2
    first = server.read("seq_num=0").numbers
    assert first == list(range(len(first))) and 0 < len(first) < 1000
    reads, at = 0, 1
    assert server.read("seq_num=0").numbers == list(range(1000, 1080))


def test_damage_found_by_a_read_that_waited_is_an_error(
    filled: S2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = filled.wait("seq_num=5&wait=10")

    def fail(*_: object) -> None:
        raise Corruption("a run fails its checksum")

    monkeypatch.setattr(filled.engine.shard, "read_runs", fail)
    filled.fill("s", "f")

    assert poll.found.code == "500 storage"


def test_a_long_batch_that_was_waited_for_is_whole(server: S2Server) -> None:
    server.make_stream("s")
    poll = server.wait("seq_num=0&wait=10")
    session = server.append_session()
    for _ in range(9):
        session.send(*[b"x" * 1000] * 120, settle=False)
    server.settle()

    assert poll.found.numbers == list(range(120)) or poll.found.numbers == list(range(1000))


def test_a_client_that_has_half_closed_is_not_kept_waiting(filled: S2Server) -> None:
    poll = filled.wait("seq_num=5&wait=10")
    assert poll.answer is not None
    poll.answer.hurry()

    assert poll.found.records == []
