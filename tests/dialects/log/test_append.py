"""POST records: many records at once with headers of their own, all or none."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.core import limits
from tests.support.durable import BYTES, JSON, START, producer
from tests.support.engines import small_sizes
from tests.support.log import HEADERS_TYPE, LogServer, encode_records, encode_table


def test_records_are_added_together_with_their_headers(server: LogServer) -> None:
    server.make("s", b"before")
    reply = server.add("s", [b"a", b"", b"c"], [[(b"k", b"v")], [], [(b"k", b"w"), (b"k", b"")]])
    assert reply.json == {
        "first_seq": 1,
        "records": 3,
        "repeat": False,
        "tail": {"seq_num": 4, "byte": 8, "offset": "0000000000000004_0000000000000008"},
        "closed": False,
        "producer": None,
    }
    lines = server.records("s", "from=1").lines
    assert [line["body"] for line in lines] == ["a", "", "c"]
    assert [len(line["headers"]) for line in lines] == [1, 0, 2]
    assert [line["flags"] for line in lines] == [1, 0, 0]
    assert server.content() == b"beforeac"


def test_what_was_read_can_be_appended(server: LogServer) -> None:
    server.make("s")
    server.add("s", [b"a", b"b"], [[(b"k", b"v")], []])
    table = server.records("s", arrow=True).table.select(["body", "headers"])
    server.make("t")
    assert server.send("t", encode_table(table)).json["records"] == 2
    again = server.records("t", arrow=True).table.select(["body", "headers"])
    assert again.equals(table)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_bodies_are_any_kind_of_bytes(
    server: LogServer, kind: pa.DataType, compression: str | None
) -> None:
    server.make("s")
    table = pa.table({"body": pa.array(["a", "", "é"], kind)})
    body = encode_table(table, compression=compression, max_chunksize=2)
    assert server.send("s", body).status == 200
    assert [line["body"] for line in server.records().lines] == ["a", "", "é"]


def test_a_slice_of_a_table_is_what_is_in_it(server: LogServer) -> None:
    server.make("s")
    headers = pa.array([[{"name": b"%d" % n, "value": b""}] for n in range(9)], HEADERS_TYPE)
    table = pa.table({"body": [b"%d" % n for n in range(9)], "headers": headers})
    server.send("s", encode_table(table.slice(4, 3)))
    assert [line["body"] for line in server.records().lines] == ["4", "5", "6"]
    assert [line["headers"][0]["name"] for line in server.records().lines] == ["4", "5", "6"]


def test_a_null_list_of_headers_is_an_empty_one(server: LogServer) -> None:
    server.make("s")
    headers = pa.array([None, [{"name": b"k", "value": b"v"}], None], HEADERS_TYPE)
    server.send("s", encode_table(pa.table({"body": [b"a", b"b", b"c"], "headers": headers})))
    assert [len(line["headers"]) for line in server.records().lines] == [0, 1, 0]


def test_a_long_body_becomes_parts_and_its_headers_are_on_the_first(server: LogServer) -> None:
    with small_sizes():
        server.make("s")
        reply = server.add("s", [b"a" * 40, b"b"], [[(b"k", b"v")], []])
        assert (reply.json["first_seq"], reply.json["records"]) == (0, 4)
        lines = server.records().lines
        assert [line["flags"] for line in lines] == [3, 2, 0, 0]
        assert [len(line["headers"]) for line in lines] == [1, 0, 0, 0]
        (message, _) = server.records("s", "view=messages").lines
        assert (message["body"], len(message["headers"])) == ("a" * 40, 1)


def test_many_records_with_many_headers_are_all_there(server: LogServer) -> None:
    server.make("s")
    headers = [[(b"name", b"%d" % number * 20)] for number in range(5000)]
    server.add("s", [b"%d" % number for number in range(5000)], headers)
    found = server.records(arrow=True).table
    assert found.column("body").to_pylist() == [b"%d" % number for number in range(5000)]
    expected = [[{"name": name, "value": value}] for ((name, value),) in headers]
    assert found.column("headers").to_pylist() == expected


# -- conditions


def test_a_repeat_is_acknowledged_and_adds_nothing(server: LogServer) -> None:
    server.make("s")
    first = server.add("s", [b"a"], **producer("p", 0, 0)).json
    assert (first["first_seq"], first["producer"]) == (
        0,
        {"id": "p", "epoch": 0, "seq": 0, "last_seen_ms": server.clock.now_ms()},
    )
    again = server.add("s", [b"a"], **producer("p", 0, 0))
    assert (again.status, again.json["repeat"], again.json["first_seq"]) == (200, True, None)
    assert again.json["tail"]["seq_num"] == 1
    gap = server.add("s", [b"c"], **producer("p", 0, 2))
    assert (gap.status, gap.error, gap.headers["producer-expected-seq"]) == (
        409,
        "producer_gap",
        "1",
    )
    server.add("s", [b"b"], **producer("p", 3, 0))
    fenced = server.add("s", [b"b"], **producer("p", 1, 0))
    assert (fenced.status, fenced.error, fenced.headers["producer-epoch"]) == (
        403,
        "producer_fenced",
        "3",
    )


def test_both_dialects_share_their_producers(server: LogServer) -> None:
    server.make("s")
    server.add("s", [b"a"], **producer("p", 0, 0))
    assert server.post("s", b"a", content_type="text/plain", **producer("p", 0, 0)).status == 204
    assert server.post("s", b"b", content_type="text/plain", **producer("p", 0, 1)).status == 200
    assert server.add("s", [b"b"], **producer("p", 0, 1)).json["repeat"]
    assert server.content() == b"ab"


def test_if_match_is_the_tail_by_number(server: LogServer) -> None:
    server.make("s", b"x", b"y")
    for value in ("1", '"3"', "0"):
        reply = server.add("s", [b"z"], if_match=value)
        assert (reply.status, reply.error) == (412, "precondition_failed")
        assert reply.headers["log-tail-seq"] == "2"
    assert server.add("s", [b"z"], if_match="2").json["first_seq"] == 2
    assert server.add("s", [b"z"], if_match='"3"').json["first_seq"] == 3
    assert server.add("s", [b"z"], if_match="*").json["first_seq"] == 4


def test_a_repeat_is_told_before_if_match(server: LogServer) -> None:
    server.make("s")
    for repeat in (False, True):
        reply = server.add("s", [b"a"], if_match="0", **producer("p", 0, 0))
        assert (reply.status, reply.json["repeat"]) == (200, repeat)


def test_a_closed_stream_takes_nothing(server: LogServer) -> None:
    server.make("s", b"x")
    server.close("s")
    reply = server.add("s", [b"y"])
    assert (reply.status, reply.error, reply.headers["log-tail-seq"]) == (409, "stream_closed", "1")


def test_it_creates_nothing(server: LogServer) -> None:
    assert server.add("s", [b"y"]).error == "stream_not_found"
    assert server.head("s").status == 404


def test_an_append_renews_a_sliding_ttl(server: LogServer) -> None:
    server.make("s", stream_ttl="10")
    server.advance(8)
    server.add("s", [b"x"])
    server.advance(8)
    assert server.records().status == 200


# -- JSON


def test_each_body_of_a_json_stream_is_one_value(server: LogServer) -> None:
    server.make("s", content_type=JSON)
    assert server.add("s", [b' {"a":1}\n', b"[1,2]", b"null"]).status == 200
    assert server.content() == b'[{"a":1},[1,2],null]'
    assert [line["value"] for line in server.records().lines] == [{"a": 1}, [1, 2], None]


@pytest.mark.parametrize(
    "bad", [b"", b"1,2", b"{", b"\xff", b'"\xff"', b"1 2", b"nul", b"[" * 5000]
)
def test_one_bad_value_refuses_all_of_them(server: LogServer, bad: bytes) -> None:
    server.make("s", content_type=JSON)
    reply = server.add("s", [b"1", b"2", bad, b"3"], **producer("p", 0, 0))
    assert (reply.status, reply.error) == (422, "invalid_record")
    assert "record 2" in reply.message
    assert server.info()["tail"]["seq_num"] == 0
    assert server.info()["producers"] == []


# -- headers


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ([(b"", b"v")], "no name"),
        ([(b"k", b"v" * limits.RECORD_HEADERS_BYTES_MAX)], "bytes"),
        ([(b"k", b"v")] * 20_000, "bytes"),
    ],
    ids=["no name", "one too long", "too many"],
)
def test_headers_are_bounded(
    server: LogServer, pairs: list[tuple[bytes, bytes]], problem: str
) -> None:
    server.make("s")
    reply = server.add("s", [b"a", b"b"], [[], pairs])
    assert (reply.status, reply.error) == (422, "invalid_record")
    assert "record 1" in reply.message and problem in reply.message
    assert server.records().lines == []


# -- bodies that are not what they should be


def test_the_body_is_said_to_be_arrow(server: LogServer) -> None:
    server.make("s")
    for kind in ("", "application/json", "application/vnd.apache.arrow.file"):
        reply = server.add("s", [b"x"], content_type=kind)
        assert (reply.status, reply.error) == (400, "invalid_request")
        assert "Content-Type" in reply.message
    given = "Application/Vnd.Apache.Arrow.Stream; x=1"
    assert server.add("s", [b"x"], content_type=given).status == 200


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (pa.table({"value": [b"a"]}), "'value'"),
        (pa.table({"body": [b"a"], "seq_num": [1]}), "'seq_num'"),
        (pa.table({"body": [b"a"], "timestamp": [1]}), "'timestamp'"),
        (pa.table({"headers": pa.array([[]], HEADERS_TYPE)}), "one column body"),
        (pa.table([[b"a"], [b"b"]], ["body", "body"]), "one column body"),
        (pa.table({"body": [1, 2]}), "body is binary"),
        (pa.table({"body": pa.array([b"a", None])}), "null"),
        (pa.table({"body": pa.array([b"a"]).dictionary_encode()}), "dictionary"),
        (pa.table({"body": pa.array([b"a"], pa.binary_view())}), "body is binary"),
        (pa.table({"body": pa.array([b"ab"], pa.binary(2))}), "body is binary"),
        (pa.table({"body": [b"a"], "headers": ["k: v"]}), "headers is a list"),
        (pa.table({"body": [b"a"], "headers": [["k"]]}), "headers is a list"),
        (
            pa.table({"body": [b"a"], "headers": [[{"key": "k", "value": "v"}]]}),
            "headers is a list",
        ),
        (pa.table({"body": [b"a"], "headers": [[{"name": 1, "value": "v"}]]}), "headers.name"),
        (pa.table({"body": [b"a"], "headers": [[{"name": "k", "value": None}]]}), "headers.value"),
        (pa.table({"body": [b"a"], "headers": pa.array([[None]], HEADERS_TYPE)}), "null"),
        (
            pa.table(
                {
                    "body": [b"a"],
                    "headers": pa.array(
                        [[{"name": None, "value": b"v"}]],
                        HEADERS_TYPE,
                    ),
                }
            ),
            "headers.name",
        ),
        (pa.table({"body": pa.array([], pa.binary())}), "no records"),
    ],
)
def test_a_table_of_another_form_is_refused_by_name(
    server: LogServer, table: pa.Table, problem: str
) -> None:
    server.make("s")
    reply = server.send("s", encode_table(table))
    assert (reply.status, reply.error) == (400, "invalid_request")
    assert problem in reply.message


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"[1,2]", b"\xff" * 100, b"\xff\xff\xff\xff", b"\0" * 64, b"ARROW1\0\0" * 9],
)
def test_what_is_not_arrow_is_refused(server: LogServer, body: bytes) -> None:
    server.make("s")
    assert server.send("s", body).error == "invalid_request"


def test_two_streams_in_one_body_are_refused(server: LogServer) -> None:
    server.make("s")
    reply = server.send("s", encode_records([b"a"]) + encode_records([b"b"]))
    assert reply.error == "invalid_request" and "more after the end" in reply.message


def test_a_stream_cut_off_anywhere_is_refused_or_whole(server: LogServer) -> None:
    """Only the mark at the very end may be missing: that is how Arrow defines it."""
    server.make("s")
    whole = encode_records([b"a", b"b"])
    for size in range(len(whole)):
        reply = server.send("s", whole[:size])
        if size < len(whole) - 8:
            assert reply.error == "invalid_request", size
        else:
            assert reply.status == (200 if size == len(whole) - 8 else 400)
    assert [line["body"] for line in server.records().lines] == ["a", "b"]


# -- limits


def test_what_decompresses_to_too_much_is_refused_before_it_is_done() -> None:
    with LogServer(body_bytes_max=100_000) as server:
        server.make("s", content_type=BYTES)
        bomb = encode_table(pa.table({"body": [b"\0" * 50_000] * 3}), compression="zstd")
        assert len(bomb) < 2000
        reply = server.send("s", bomb)
        assert (reply.status, reply.error) == (413, "body_too_large")
        small = encode_table(pa.table({"body": [b"\0" * 50_000]}), compression="zstd")
        assert server.send("s", small).status == 200


def test_more_records_than_one_append_may_have_are_refused(
    server: LogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "APPEND_RECORDS_MAX", 3)
    server.make("s")
    assert server.add("s", [b""] * 4).error == "body_too_large"
    assert server.add("s", [b""] * 3).status == 200
    table = pa.table({"body": [b""] * 4})
    assert server.send("s", encode_table(table, max_chunksize=1)).status == 413


def test_a_read_only_server_takes_no_records() -> None:
    with LogServer(read_only=True) as server:
        server.make("s")
        reply = server.add("s", [b"x"])
        assert (reply.status, reply.error, reply.headers["allow"]) == (
            405,
            "read_only",
            "GET, HEAD, OPTIONS",
        )


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"if_match": "x"}, "If-Match"),
        ({"if_match": START}, "If-Match"),
        ({"if_match": ""}, "If-Match"),
        ({"producer_id": "p"}, "Producer-Epoch"),
        (producer("p", "x", 0), "Producer-Epoch"),
    ],
)
def test_a_bad_header_is_named(server: LogServer, headers: dict[str, str], field: str) -> None:
    server.make("s")
    reply = server.add("s", [b"x"], **headers)
    assert (reply.status, reply.error) == (400, "invalid_request")
    assert field in reply.message
    assert server.records().lines == []


def test_a_full_disk_refuses_the_append(server: LogServer) -> None:
    server.make("s")
    server.engine.sweeper.disk_low = True
    assert (server.add("s", [b"x"]).status, server.add("s", [b"x"]).error) == (507, "disk_full")
