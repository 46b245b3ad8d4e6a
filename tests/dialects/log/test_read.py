"""GET records: ranges by number and by time, records and messages, as lines and as Arrow."""

from __future__ import annotations

import base64

import duckdb
import pytest

from headwater.wire import arrow
from tests.support.durable import JSON, NOW_MS
from tests.support.engines import small_sizes
from tests.support.log import LogServer, decode_table


def test_a_record_is_a_line_with_its_number_time_body_headers_and_flags(server: LogServer) -> None:
    server.make("s", b"one")
    server.clock.advance(2)
    server.append("s", b"two")
    assert server.records().lines == [
        {"seq_num": 0, "timestamp": NOW_MS, "body": "one", "headers": [], "flags": 1},
        {"seq_num": 1, "timestamp": NOW_MS + 2000, "body": "two", "headers": [], "flags": 1},
    ]


def test_a_body_that_is_not_text_is_base64(server: LogServer) -> None:
    server.make("s", b"\xff\x00\xfe")
    (line,) = server.records().lines
    assert "body" not in line
    assert base64.b64decode(line["body_base64"]) == b"\xff\x00\xfe"


def test_a_message_of_a_json_stream_is_its_value_as_it_was_sent(server: LogServer) -> None:
    server.make("s", b'[{"b":1,"a":1.50},"x"]', content_type=JSON)
    reply = server.records()
    assert b'"value":{"b":1,"a":1.50},' in reply.body
    assert [line["value"] for line in reply.lines] == [{"b": 1, "a": 1.5}, "x"]
    assert [line["flags"] for line in reply.lines] == [1, 0]


def test_a_value_of_several_lines_takes_one(server: LogServer) -> None:
    server.make("s", b'{"a":\n\r\n [1,\n2], "b":"\\n"}', content_type=JSON)
    (line,) = server.records().lines
    assert line["value"] == {"a": [1, 2], "b": "\n"}


def test_headers_that_are_not_text_are_base64(server: LogServer) -> None:
    server.make("s")
    server.add("s", [b"x"], [[(b"k", b"v"), (b"\xff", b"\xfe")]])
    (line,) = server.records().lines
    assert line["headers"] == [
        {"name": "k", "value": "v"},
        {"name_base64": "/w==", "value_base64": "/g=="},
    ]


def test_arrow_has_the_columns_that_are_promised(server: LogServer) -> None:
    server.make("s", b"one")
    server.add("s", [b"two", b""], [[(b"k", b"v")], []])
    table = server.records(arrow=True).table
    assert table.schema == arrow.SCHEMA
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("seq_num", "uint64"),
        ("timestamp", "timestamp[ms, tz=UTC]"),
        ("body", "binary"),
        ("headers", "list<item: struct<name: binary not null, value: binary not null> not null>"),
        ("flags", "uint8"),
    ]
    assert table.column("body").to_pylist() == [b"one", b"two", b""]
    assert table.column("flags").to_pylist() == [1, 1, 0]
    assert table.column("headers").to_pylist() == [[], [{"name": b"k", "value": b"v"}], []]


def test_duckdb_reads_it(server: LogServer) -> None:
    server.make("s", content_type=JSON)
    server.append("s", b"[%b]" % b",".join(b'{"n":%d}' % number for number in range(5000)))
    table = server.records(arrow=True).table
    assert table.num_rows == 5000
    with duckdb.connect() as connection:
        connection.register("records", table)
        found = connection.sql("select max(seq_num), sum((decode(body)->>'n')::int) from records")
        assert found.fetchall() == [(4999, sum(range(5000)))]


# -- ranges


@pytest.fixture
def ten(server: LogServer) -> LogServer:
    """Ten records, one a second."""
    server.make("s")
    for number in range(10):
        server.append("s", b"%d" % number)
        server.clock.advance(1)
    return server


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "0123456789"),
        ("from=0", "0123456789"),
        ("from=3", "3456789"),
        ("to=3", "012"),
        ("from=3&to=5", "34"),
        ("from=3&to=3", ""),
        ("from=10", ""),
        ("from=8&to=999999999999", "89"),
        ("from=2&limit=3", "234"),
        ("from=8&limit=3", "89"),
        ("limit=1", "0"),
        (f"from_time={NOW_MS + 3000}", "3456789"),
        (f"from_time={NOW_MS + 3001}", "456789"),
        (f"to_time={NOW_MS + 3000}", "012"),
        (f"from_time={NOW_MS + 2000}&to_time={NOW_MS + 4000}", "23"),
        (f"from=2&to_time={NOW_MS + 4000}", "23"),
        (f"from_time={NOW_MS + 2000}&to=4", "23"),
        ("from_time=2027-01-15T08:00:07Z", "789"),
        ("from_time=2027-01-15T08:00:07.001Z", "89"),
        ("to_time=2027-01-15T09:00:01%2B01:00", "0"),
        ("from_time=0", "0123456789"),
        ("from_time=2100-01-01T00:00:00Z", ""),
        ("to_time=0", ""),
        (f"from_time={NOW_MS + 5000}&to_time={NOW_MS}", ""),
        ("view=messages&from=3&limit=2", "34"),
    ],
)
def test_a_range_is_by_number_or_by_time(ten: LogServer, query: str, expected: str) -> None:
    assert "".join(line["body"] for line in ten.records("s", query).lines) == expected
    bodies = ten.records("s", query, arrow=True).table.column("body").to_pylist()
    assert b"".join(bodies).decode() == expected


def test_a_range_says_what_it_is(ten: LogServer) -> None:
    headers = ten.records("s", "from=3&to=99").headers
    found = {name: value for name, value in headers.items() if name.startswith("log-")}
    assert found == {
        "log-version": "1",
        "log-stream-id": ten.info()["id"],
        "log-from-seq": "3",
        "log-to-seq": "10",
        "log-first-seq": "0",
        "log-tail-seq": "10",
    }


def test_what_is_appended_later_is_not_part_of_the_range(ten: LogServer) -> None:
    download = ten.download("s", slow=True, arrow=True)
    ten.append("s", b"late")
    while not download.writer.finished:
        download.drain()
    assert decode_table(download.received).num_rows == 10


def test_past_the_tail_is_416_with_the_tail(ten: LogServer) -> None:
    reply = ten.records("s", "from=11")
    assert (reply.status, reply.error) == (416, "range_not_satisfiable")
    assert reply.headers["log-tail-seq"] == "10"


def test_an_empty_stream_is_an_empty_answer(server: LogServer) -> None:
    server.make("s")
    assert server.records().body == b""
    assert server.records(arrow=True).table.num_rows == 0


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("from=x", "from"),
        ("from=-1", "from"),
        ("from=", "from"),
        ("from=1.5", "from"),
        ("from=99999999999999999999", "from"),
        ("from=%C2%B2", "from"),
        ("to=x", "to"),
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("from_time=yesterday", "from_time"),
        ("to_time=2027-01-15", "to_time"),
        ("from=1&from_time=1", "from_time"),
        ("to=1&to_time=1", "to_time"),
        ("from=5&to=3", "to is before from"),
        ("view=both", "view"),
        ("from=1&from=2", "from"),
        ("form=1", "'form'"),
        ("from=%FF", "from"),
        ("offset=-1", "'offset'"),
    ],
)
def test_a_bad_parameter_is_named(ten: LogServer, query: str, field: str) -> None:
    reply = ten.records("s", query)
    assert (reply.status, reply.error) == (400, "invalid_request")
    assert field in reply.message


def test_trimmed_records_are_410_with_the_first_that_is_retained(server: LogServer) -> None:
    server.make("s", *(b"%d" % number for number in range(10)), stream_retention="records=4")
    server.advance(2)
    for query in ("from=0", "from=5"):
        reply = server.records("s", query)
        assert (reply.status, reply.error) == (410, "offset_trimmed")
        assert reply.headers["log-first-seq"] == "6"
    assert [line["seq_num"] for line in server.records().lines] == [6, 7, 8, 9]
    assert server.records("s", "to=3").lines == []
    assert [line["seq_num"] for line in server.records("s", "from_time=0").lines] == [6, 7, 8, 9]


# -- streams that are not there


def test_no_such_stream_is_404(server: LogServer) -> None:
    for path in ("records/durable-streams/none", "records/other/none", "info/other/none"):
        reply = server.fetch(path)
        assert (reply.status, reply.error) == (404, "stream_not_found")


def test_a_stream_that_is_kept_for_its_forks_is_410(server: LogServer) -> None:
    server.make("s", b"x")
    server.fork("f")
    server.delete("s")
    for path in ("records/durable-streams/s", "info/durable-streams/s"):
        assert server.fetch(path).error == "stream_gone"
    assert [line["body"] for line in server.records("f").lines] == ["x"]


def test_an_expired_stream_is_404(server: LogServer) -> None:
    server.make("s", b"x", stream_ttl="10")
    server.clock.advance(11)
    assert server.records().status == 404


def test_names_have_segments_and_escapes(server: LogServer) -> None:
    for name in ("a/b/c", "a%2Fb", "%C3%A9"):
        server.make(name, name.encode())
        assert server.records(name).lines[0]["body"] == name
    assert server.records("a%2fb").lines[0]["body"] == "a%2Fb"
    assert server.fetch("records/durable-streams/%FF").status == 400
    assert server.fetch("records/du%72able-streams/a/b/c").status == 200


# -- form


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "application/x-ndjson"),
        ("*/*", "application/x-ndjson"),
        ("application/json", "application/x-ndjson"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream"),
        ("Application/Vnd.Apache.Arrow.Stream", "application/vnd.apache.arrow.stream"),
        ("text/html, application/vnd.apache.arrow.stream;q=0.1", "arrow"),
        ("application/x-ndjson, application/vnd.apache.arrow.stream", "arrow"),
        ("application/x-ndjson, application/vnd.apache.arrow.stream;q=0.9", "ndjson"),
        ("application/vnd.apache.arrow.stream;q=0", "ndjson"),
        ("application/vnd.apache.arrow.stream;q=x", "ndjson"),
        ("application/vnd.apache.arrow.stream;v=1;q=1", "arrow"),
    ],
)
def test_the_client_chooses_the_form(server: LogServer, accept: str, kind: str) -> None:
    server.make("s", b"x")
    reply = server.fetch("records/durable-streams/s", accept=accept)
    assert kind in reply.headers["content-type"]
    assert reply.headers["vary"] == "accept"


def test_head_tells_the_range_and_sends_nothing(server: LogServer) -> None:
    server.make("s", b"x", b"y")
    reply = server.fetch("records/durable-streams/s", "from=1", method="HEAD")
    assert (reply.status, reply.headers["log-to-seq"], reply.body) == (200, "2", b"")


def test_reading_does_not_renew_a_sliding_ttl(server: LogServer) -> None:
    server.make("s", b"x", stream_ttl="10")
    for _ in range(3):
        server.advance(3)
        assert server.records().status == 200
        assert server.info()["lifetime"]["expires_at_ms"] == NOW_MS + 10_000
        assert server.listed() == ["s"]
    server.advance(3)
    assert server.records().status == 404


# -- long messages


def test_parts_of_a_long_message_are_records_or_one_message(server: LogServer) -> None:
    with small_sizes():
        server.make("s", b"short", b"a" * 40, b"end")
        lines = server.records().lines
        assert [(line["seq_num"], line["body"], line["flags"]) for line in lines] == [
            (0, "short", 1),
            (1, "a" * 16, 3),
            (2, "a" * 16, 2),
            (3, "a" * 8, 0),
            (4, "end", 1),
        ]
        lines = server.records("s", "view=messages").lines
        assert [(line["seq_num"], line["body"], line["flags"]) for line in lines] == [
            (0, "short", 1),
            (1, "a" * 40, 1),
            (4, "end", 1),
        ]


def test_a_message_belongs_to_the_range_that_has_its_first_record(server: LogServer) -> None:
    with small_sizes():
        server.make("s", b"short", b"a" * 40, b"end")
        whole = server.records("s", "view=messages").lines
        for cut in range(6):
            for arrow_form in (False, True):
                found = []
                for query in (f"view=messages&to={cut}", f"view=messages&from={cut}"):
                    reply = server.records("s", query, arrow=arrow_form)
                    bodies = (
                        [body.decode() for body in reply.table.column("body").to_pylist()]
                        if arrow_form
                        else [line["body"] for line in reply.lines]
                    )
                    found += bodies
                assert found == [line["body"] for line in whole], cut


def test_a_part_of_a_json_message_is_not_a_value(server: LogServer) -> None:
    with small_sizes():
        server.make("s", b'["' + b"x" * 30 + b'",1]', content_type=JSON)
        lines = server.records().lines
        assert [("value" in line, "body" in line) for line in lines] == [
            (False, True),
            (False, True),
            (True, False),
        ]
        assert [line["value"] for line in server.records("s", "view=messages").lines] == [
            "x" * 30,
            1,
        ]
        (second,) = server.records("s", "from=1&to=2").lines
        assert "body" in second


def test_a_fork_may_end_inside_a_record(server: LogServer) -> None:
    with small_sizes():
        tail = server.make("s", b"first")
        server.append("s", b"0123456789abcdef-second-part")
        server.fork("f", "s", stream_fork_offset=tail, stream_fork_sub_offset="18")
        server.append("f", b"own")
        lines = server.records("f").lines
        assert [(line["body"], line["flags"]) for line in lines] == [
            ("first", 1),
            ("0123456789abcdef", 3),
            ("-s", 0),
            ("own", 1),
        ]
        joined = ["first", "0123456789abcdef-s", "own"]
        assert [line["body"] for line in server.records("f", "view=messages").lines] == joined
        server.fork("g", "s", stream_fork_offset=tail, stream_fork_sub_offset="10")
        table = server.records("g", arrow=True).table
        assert table.column("body").to_pylist() == [b"first", b"0123456789"]
        assert table.column("flags").to_pylist() == [1, 1]
