"""Appends: the same rows make the same ones, however Spark batches and orders them."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.spark import chunks
from headwater.spark.schema import to_spark
from headwater.wire import arrow

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(rows: list[dict[str, Any]], *columns: str) -> Any:
    kinds = {
        "value": pa.binary(),
        "key": pa.string(),
        "headers": HEADERS,
        "offset": pa.int64(),
        "stream": pa.string(),
    }
    fields = pa.schema([(name, kinds[name]) for name in columns])
    return pa.RecordBatch.from_pylist(rows, schema=fields)


pair = st.tuples(st.sampled_from(["key", "a", "b"]), st.one_of(st.none(), st.binary(max_size=3)))
row = st.fixed_dictionaries(
    {
        "value": st.binary(max_size=5),
        "key": st.one_of(st.none(), st.text(max_size=3)),
        "headers": st.one_of(st.none(), st.lists(pair, max_size=3)),
    }
)


def test_a_task_may_have_more_than_two_gibibytes_for_a_stream() -> None:
    found = chunks.records(batch([{"value": b"x"}], "value"), ())
    assert pa.types.is_large_binary(found.column("body").type)


@given(st.lists(row, max_size=20), st.sampled_from([(), (("c", "1"), ("d", "2"))]))
def test_headers_are_those_of_the_option_then_the_key_then_the_column(
    rows: list[dict[str, Any]], constant: tuple[tuple[str, str], ...]
) -> None:
    found = batch(
        [
            {
                **r,
                "headers": r["headers"]
                and [dict(zip(("key", "value"), p, strict=True)) for p in r["headers"]],
            }
            for r in rows
        ],
        "value",
        "key",
        "headers",
    )
    table = chunks.records(found, constant)
    for given_row, sent in zip(rows, table.to_pylist(), strict=True):
        expected = [(name.encode(), value.encode()) for name, value in constant]
        if given_row["key"] is not None:
            expected.append((b"key", given_row["key"].encode()))
        expected += [
            (name.encode(), value or b"")
            for name, value in given_row["headers"] or ()
            if name != "key"
        ]
        assert [(pair["name"], pair["value"]) for pair in sent["headers"]] == expected
        assert sent["body"] == given_row["value"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 300)
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 7)


@pytest.mark.usefixtures("small")
def test_pieces_are_as_large_as_they_may_be_and_hold_every_row() -> None:
    bodies = [os.urandom(size % 400) for size in range(0, 4000, 37)]
    table = chunks.records(batch([{"value": body} for body in bodies], "value"), ())
    pieces = [piece.column("body").to_pylist() for piece in chunks.cut(table)]
    assert [body for piece in pieces for body in piece] == bodies
    for piece, following in zip(pieces, pieces[1:], strict=False):
        size = sum(len(body) + chunks.ROW_BYTES for body in piece)
        more = size + len(following[0]) + chunks.ROW_BYTES
        assert len(piece) == 1 or size <= 300
        assert len(piece) == 7 or more > 300


@pytest.mark.usefixtures("small")
def test_headers_count_too() -> None:
    headers = [{"key": "name", "value": b"x" * 100}]
    found = batch([{"value": b"", "headers": headers}] * 10, "value", "headers")
    assert [piece.num_rows for piece in chunks.cut(chunks.records(found, ()))] == [2] * 5


@given(st.permutations(range(30)))
def test_arranged_rows_do_not_tell_how_they_came(order: list[int]) -> None:
    def arranged(numbers: list[int], *columns: str) -> list[Any]:
        rows = [
            {
                "value": b"%d" % (number % 7),
                "offset": number % 5,
                "headers": [{"key": "h", "value": b"%d" % number}],
            }
            for number in numbers
        ]
        table = chunks.arrange(chunks.records(batch(rows, *columns), ()))
        found: list[Any] = table.select(["body", "headers"]).to_pylist()
        return found

    for columns in (("value", "headers"), ("value", "headers", "offset")):
        assert arranged(order, *columns) == arranged(list(range(30)), *columns)


def test_what_is_sent_is_what_the_server_takes() -> None:
    found = batch([{"value": b"1", "key": "k"}, {"value": b"2"}], "value", "key")
    body = chunks.encode(chunks.records(found, (("a", "b"),)))
    sent = arrow.decode_records(bytes(body), bytes_max=1000, records_max=10)
    assert sent.bodies == [b"1", b"2"]
    assert sent.headers == [[(b"a", b"b"), (b"key", b"k")], [(b"a", b"b")]]


def test_header_names_that_are_not_text_are_shown_as_well_as_can_be() -> None:
    names = pa.array([[{"name": b"\xff", "value": b"1"}, {"name": b"ok", "value": b"2"}], []])
    columns = {
        "seq_num": pa.array([0, 1], pa.uint64()),
        "timestamp": pa.array([0, 1], pa.timestamp("ms", "UTC")),
        "body": pa.array([b"", b""], pa.binary()),
        "headers": names.cast(arrow.SCHEMA.field("headers").type),
        "flags": pa.array([1, 1], pa.uint8()),
    }
    found = to_spark(pa.RecordBatch.from_pydict(columns), "b", "s", headers=True)
    shown = found.column("headers").to_pylist()
    assert [[pair["key"] for pair in row] for row in shown] == [["\ufffd", "ok"], []]
