"""SQL over streams and tables: what of a statement is ours, and what comes back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from headwater.client import Client, ClientError
from headwater.client.protocol import Request
from headwater.pipeline import adhoc
from headwater.pipeline.adhoc import Call, Prepared, QueryError, parse, prepare
from headwater.pipeline.context import Context
from headwater.pipeline.sampling import Fields, find_some, sample
from headwater.pipeline.spec import Streams
from tests.pipeline.support import Desk
from tests.support.inprocess import serving
from tests.support.keys import CIPHERS, KEY
from tests.support.log import encode_records


@pytest.mark.parametrize(
    ("statement", "rewritten", "calls"),
    [
        pytest.param(
            "select * from stream('a/*') where x = 'stream(''b'')'",
            "select * from headwater_0   where x = 'stream(''b'')'",
            [Call("stream", "a/*", {}, "stream('a/*')")],
            id="texts are left alone",
        ),
        pytest.param(
            "select * from STREAM ( 'a', bucket => 'b' ) s join lake('./x', format => 'parquet') t",
            f"select * from {'headwater_0':29} s join {'headwater_1':32} t",
            [
                Call("stream", "a", {"bucket": "b"}, "STREAM ( 'a', bucket => 'b' )"),
                Call("lake", "./x", {"format": "parquet"}, "lake('./x', format => 'parquet')"),
            ],
            id="two with options",
        ),
        pytest.param(
            "select upstream('a') -- stream('b')\nfrom t",
            "select upstream('a') -- stream('b')\nfrom t",
            [],
            id="other functions and comments",
        ),
    ],
)
def test_calls_become_views(statement: str, rewritten: str, calls: list[Call]) -> None:
    """Views as long as the calls: what Spark says of places in the statement stays true."""
    assert parse(statement) == (rewritten, calls)
    assert Prepared(rewritten, calls, [], []).in_words_of_the_user(rewritten) == statement


def test_a_view_is_no_part_of_the_word_that_follows_the_call() -> None:
    for call in ("lake('a')", "stream('a')", "stream('a/*')"):
        assert parse(f"select n from {call}where n")[0].split() == [
            *("select", "n", "from", "headwater_0", "where", "n")
        ]


def test_streams_that_nobody_has_are_told_of() -> None:
    with serving() as server, Client(server.url) as client:
        client.create("headwater-pipelines", "own", "application/json")
        client.append("headwater-pipelines", "own", encode_records([b'{"state": "running"}']))
        context = Context(server.url)
        with pytest.raises(QueryError, match="there is no stream a in the bucket b; bucket =>"):
            prepare("select * from stream('a', bucket => 'b')", context)
        some = prepare("select * from stream('a/*')", context)
        every = prepare("select * from stream('**', bucket => '*')", context)
    assert some.notes == ["no stream in the bucket durable-streams matches a/*"]
    assert every.notes == ["no stream in any bucket matches **"]
    assert every.views[0].columns == {}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("stream()", "needs a name"),
        ("stream(orders)", "cannot read 'orders'"),
        ("stream('a', bukcet => 'b')", "did you mean bucket?"),
        ("stream('a', 'b')", "takes one name"),
        ("stream('a', buckets => 'b')", "has no option buckets; did you mean bucket?"),
        ("lake('a', zzz => 'b')", "has no option zzz; it has format"),
        ("lake('a', format => 'hudi')", "format is one of"),
    ],
)
def test_what_is_wrong_with_a_call(call: str, said: str) -> None:
    with pytest.raises(QueryError, match=said.replace("?", r"\?")):
        parse(f"select * from {call}")


def test_json_fields_are_found_by_looking_at_records() -> None:
    with serving() as server, Client(server.url) as client:
        for name, bodies in {
            "s/1": [b'{"a": 1, "b": "x"}', b"[1]"],
            "s/2": [b'{"a": "text", "c": {"d": 1}}', b'{"offset": 5}'],
            "t": [b'{"z": true}'],
        }.items():
            client.create("b", name, "application/json")
            client.append("b", name, encode_records(bodies))

        def look(name: str, known: dict[str, str] | None = None) -> dict[str, Fields]:
            return sample(client, find_some(client, Streams((name,), "b")), known)

        found = look("s/*")
        assert found == {
            "a": ("string", ("a",)),
            "b": ("string", ("b",)),
            "c": ("string", ("c",)),
            "offset_": ("long", ("offset", "offset_")),
        }
        assert look("t") == {"z": ("boolean", ("z",))}
        archived = look("none", {"day_": "long", "d": "double"})
        assert archived == {"day_": ("long", ("day_", "day")), "d": ("double", ("d",))}
        assert look("none") == {}


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_streams_and_tables_in_one_statement(desk: Desk) -> None:
    desk.put("orders/1", {"item": "a", "price": 2}, {"item": "b", "price": 1.5})
    desk.put("orders/2", {"item": "a", "price": 4})
    archive = """
        archive: {streams: "orders/*", bucket: "{bucket}", to: "{folder}/lake", trim: true}
        """
    desk.run_once(desk.load(archive))
    desk.put("orders/2", {"item": "b", "price": 10})

    def ask(statement: str) -> list[tuple[Any, ...]]:
        filled = statement.replace("BUCKET", desk.bucket).replace("LAKE", f"{desk.folder}/lake")
        return [tuple(row) for row in adhoc.query(desk.spark, filled, desk.context).collect()]

    live = "stream('orders/*', bucket => 'BUCKET')"
    both = "stream('orders/*', bucket => 'BUCKET', archive => 'LAKE')"
    assert ask(f"select item, price from {live}") == [("b", 10)]
    assert ask("select count(*), sum(price) from lake('LAKE')") == [(3, 7.5)]
    assert ask(f"select item, sum(price) from {both} group by item order by item") == [
        ("a", 6.0),
        ("b", 11.5),
    ]


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_fields_whose_names_cannot_be_those_of_columns(desk: Desk) -> None:
    desk.put(
        "odd",
        {"key": "k", "value": 5, "first name": "Ann", "a.b": 1, "Id": 1, "": True, "x`y": 0.5},
        {"timestamp": "t", "first_name": "Bob", "id": 2},
    )
    names = ["key_", "value_", "timestamp_", "first_name", "a_b", "Id", "`_`", "x_y"]
    expected = [
        ("k", 5, None, "Ann", 1, 1, True, 0.5),
        (None, None, "t", "Bob", None, 2, None, None),
    ]

    def ask(*more: str) -> list[tuple[Any, ...]]:
        stream = ", ".join(("'odd'", f"bucket => '{desk.bucket}'", *more))
        statement = f"select {', '.join(names)} from stream({stream}) order by offset"
        return [tuple(row) for row in adhoc.query(desk.spark, statement, desk.context).collect()]

    assert ask() == expected
    archive = 'archive: {streams: odd, bucket: "{bucket}", to: "{folder}/lake", trim: true}'
    desk.run_once(desk.load(archive))
    assert desk.bodies("odd") == []
    assert ask(f"archive => '{desk.folder}/lake'") == expected


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_encrypted_streams_are_read_with_the_key(desk: Desk) -> None:
    kind = {"Content-Type": "application/json"}
    basin = json.dumps({"basin": desk.bucket, "config": {"stream_cipher": CIPHERS[0]}}).encode()
    desk.client.fetch(Request("POST", "/v1/basins", kind, basin))
    context = replace(desk.context, encryption_key=KEY)
    with context.client() as client:
        client.create(desk.bucket, "sealed", "application/json")
        client.append(desk.bucket, "sealed", encode_records([b'{"a": 1}', b'{"a": 2}']))
    statement = f"select sum(a) from stream('sealed', bucket => '{desk.bucket}')"
    assert adhoc.query(desk.spark, statement, context).collect()[0][0] == 3
    with pytest.raises(ClientError, match="S2-Encryption-Key"):
        adhoc.query(desk.spark, statement, desk.context)
