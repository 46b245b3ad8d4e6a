"""Columns to Arrow and back, and what a client may send instead."""

from __future__ import annotations

import random  # noqa: TID251 (seeded)
import struct
import subprocess
import sys
from array import array
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import InvalidRequest
from headwater.core.limits import MIB
from headwater.core.records import HAS_HEADERS, HeaderColumns
from headwater.wire import arrow, arrow_check
from headwater.wire.arrow import Columns, Sent, decode_records, encode_batch, encode_schema
from headwater.wire.arrow_check import TooLarge, check_stream
from tests.support.log import HEADERS_TYPE, Pairs, decode_table, encode_records, encode_table

MUTATIONS = 4000
MARKS = [0, 1, -1, 2, 255, 2**31 - 1, -(2**31), 2**62, -(2**62), 2**63 - 1]


def decode(body: bytes, *, bytes_max: int = MIB, records_max: int = 1000) -> Sent:
    return decode_records(body, bytes_max=bytes_max, records_max=records_max)


def columns(
    bodies: list[bytes],
    *,
    separated: bool = False,
    headers: list[Pairs] | None = None,
    start: int = 0,
    stop: int | None = None,
) -> Columns:
    count = len(bodies)
    flags = bytearray(number % 4 for number in range(count))
    for index, pairs in enumerate(headers or ()):
        flags[index] |= HAS_HEADERS if pairs else 0
    return Columns(
        10 + start,
        array("Q", range(1000, 1000 + count)).tobytes(),
        array("I", map(len, bodies)),
        bytes(flags),
        b"".join(body + b"," if separated else body for body in bodies),
        separated,
        None if headers is None else HeaderColumns.of(headers),
        start,
        stop,
    )


def table_of(*parts: Columns) -> list[dict[str, Any]]:
    stream = bytes(encode_schema()) + bytes(encode_batch(parts)) + arrow.encode_end()
    found: list[dict[str, Any]] = decode_table(stream).to_pylist()
    return found


header_lists = st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), max_size=2)


@given(data=st.data())
def test_columns_of_several_runs_become_one_batch(data: st.DataObject) -> None:
    parts, expected = [], []
    for _ in range(data.draw(st.integers(1, 3))):
        bodies = data.draw(st.lists(st.binary(max_size=5), max_size=6))
        start = data.draw(st.integers(0, len(bodies)))
        stop = data.draw(st.none() | st.integers(start, len(bodies)))
        headers = None
        if data.draw(st.booleans()):
            headers = [data.draw(header_lists) for _ in bodies]
        part = columns(
            bodies, separated=data.draw(st.booleans()), headers=headers, start=start, stop=stop
        )
        parts.append(part)
        meant = range(len(bodies))[start:stop]
        assert part.rows == len(meant)
        for index in meant:
            pairs = headers[index] if headers else []
            expected.append(
                {
                    "seq_num": 10 + index,
                    "time": 1000 + index,
                    "body": bodies[index],
                    "headers": [{"name": name, "value": value} for name, value in pairs],
                    "flags": index % 4,
                }
            )
    found = table_of(*parts)
    for row in found:
        row["time"] = round(row.pop("timestamp").timestamp() * 1000)
    assert found == expected


def test_numbers_that_do_not_follow_one_another_are_kept() -> None:
    part = columns([b"a", b"b", b"c"])._replace(seq_num=[3, 7, 9], start=1)
    assert [row["seq_num"] for row in table_of(part)] == [7, 9]


def test_times_that_arrow_does_not_have_are_the_last_one_that_it_has() -> None:
    times = [1, 2**63 - 1, 2**63, 2**64 - 1]
    part = columns([b""] * 4)._replace(times=memoryview(array("Q", times)).cast("B"))

    batch = pa.ipc.read_record_batch(pa.py_buffer(encode_batch([part])), arrow.SCHEMA)

    found = batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert found == [1, 2**63 - 1, 2**63 - 1, 2**63 - 1]


def test_a_stream_without_batches_is_empty() -> None:
    assert decode_table(bytes(encode_schema()) + arrow.encode_end()).num_rows == 0


PROGRAM = """
import struct, sys
from headwater.core.records import HAS_HEADERS, HeaderColumns
from headwater.wire.arrow import Columns, encode_batch
times, lengths, flags = struct.pack("<2Q", 1, 2), struct.pack("<2I", 1, 1), bytes([HAS_HEADERS, 0])
headers = HeaderColumns.of([[(b"key", b"k")], []])
encode_batch([Columns(0, times, lengths, flags, b"ab", headers=headers)])
encode_batch([Columns(0, times, lengths, bytes(2), b"a,b,", separated=True)])
print("pandas" in sys.modules)
"""


def test_pandas_is_not_loaded_where_it_is_installed() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True).stdout
    assert said == b"False\n"


# -- what clients send


@given(
    rows=st.lists(st.tuples(st.binary(max_size=5), st.none() | header_lists), min_size=1),
    large=st.booleans(),
    compression=st.sampled_from([None, "zstd", "lz4"]),
    chunk=st.integers(1, 5),
    skip=st.integers(0, 2),
)
def test_what_is_sent_is_what_arrives(
    rows: list[tuple[bytes, Pairs | None]],
    large: bool,
    compression: str | None,
    chunk: int,
    skip: int,
) -> None:
    kind = pa.large_binary() if large else pa.binary()
    headers = [
        None if pairs is None else [{"name": name, "value": value} for name, value in pairs]
        for _, pairs in rows
    ]
    bodies = pa.array([body for body, _ in rows], kind)
    lists = pa.large_list(HEADERS_TYPE.value_type) if large else HEADERS_TYPE
    table = pa.table({"body": bodies, "headers": pa.array(headers, lists)})
    table = table.slice(min(skip, len(rows) - 1))
    sent = decode(encode_table(table, compression=compression, max_chunksize=chunk))
    expected = rows[min(skip, len(rows) - 1) :]
    assert sent.bodies == [body for body, _ in expected]
    pairs_sent = [list(pairs or []) for _, pairs in expected]
    assert sent.headers == (pairs_sent if any(pairs_sent) else None)


def test_columns_may_come_in_any_order() -> None:
    headers = pa.array([[{"name": "k", "value": b"v"}]])
    sent = decode(encode_table(pa.table({"headers": headers, "body": ["é"]})))
    assert sent == Sent(["é".encode()], [[(b"k", b"v")]])


def test_the_metadata_of_a_schema_does_not_matter() -> None:
    table = pa.table({"body": [b"x"]}).replace_schema_metadata({"pandas": "{}"})
    assert decode(encode_table(table)).bodies == [b"x"]


SEEDS = [
    encode_records([b"a", b"", b"ccc", b"d" * 40], [[(b"x", b"y")], [], [], [(b"k", b"")] * 3]),
    encode_records([b"a" * 9] * 7),
    encode_table(pa.table({"body": [b"a", b"bb"] * 50}), compression="zstd", max_chunksize=30),
    encode_table(pa.table({"body": ["a", "é"] * 50}), compression="lz4"),
    encode_table(pa.table({"body": pa.array(["a", "é", ""], pa.large_string())})),
]


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_a_spoiled_stream_is_refused_or_read_and_never_more_than_that(number: int) -> None:
    """Bytes changed, removed, put in and cut off, thousands of times: errors only, no crash."""
    chance = random.Random(number)
    outcomes = {"read": 0, "refused": 0, "too large": 0}
    before = pa.total_allocated_bytes()
    for _ in range(MUTATIONS // len(SEEDS)):
        spoiled = spoil(SEEDS[number], chance)
        try:
            decode(spoiled, bytes_max=64 * 1024)
            outcomes["read"] += 1
        except InvalidRequest as error:
            assert str(error)
            outcomes["refused"] += 1
        except TooLarge:
            outcomes["too large"] += 1
    assert outcomes["read"] and outcomes["refused"]
    assert pa.total_allocated_bytes() - before < MIB
    assert pa.default_memory_pool().max_memory() < 512 * MIB


def spoil(body: bytes, chance: random.Random) -> bytes:
    found = bytearray(body)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        if not found:
            break
        at = chance.randrange(len(found))
        match chance.randrange(5):
            case 0:
                found[at] = chance.randrange(256)
            case 1:
                size = chance.choice([2, 4, 8])
                mark = chance.choice(MARKS) % (1 << 8 * size)
                at -= at % size
                found[at : at + size] = mark.to_bytes(size, "little")[: len(found) - at]
            case 2:
                del found[at : at + chance.randrange(1, 16)]
            case 3:
                found[at:at] = chance.randbytes(chance.randrange(1, 9))
            case _:
                del found[at:]
    return bytes(found)


@given(body=st.binary(max_size=200))
def test_any_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode(body)


@given(rest=st.binary(max_size=200))
def test_any_bytes_after_a_schema_are_refused_or_empty(rest: bytes) -> None:
    schema = bytes(pa.schema([("body", pa.binary())]).serialize())
    with pytest.raises((InvalidRequest, TooLarge)):
        decode(schema + rest)


# -- claims that are too large


def test_rows_are_counted_before_anything_is_unpacked() -> None:
    body = encode_table(pa.table({"body": [b""] * 100}), max_chunksize=40)
    check_stream(body, bytes_max=MIB, rows_max=100)
    with pytest.raises(TooLarge, match="at most 99 records"):
        check_stream(body, bytes_max=MIB, rows_max=99)


def test_rows_of_nothing_cannot_be_claimed() -> None:
    """A column of nulls has no buffers, and may be as long as it likes."""
    body = encode_table(pa.table({"nothing": pa.nulls(7777)}))
    claim = struct.pack("<q", 7777)
    assert claim in body
    for rows, error in ((2**40, TooLarge), (2**63 - 1, TooLarge), (-1, InvalidRequest)):
        with pytest.raises(error):
            decode(body.replace(claim, struct.pack("<q", rows)))


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_claim_of_terabytes_is_refused_at_once(compression: str) -> None:
    body = encode_table(pa.table({"body": [b"x" * 1000]}), compression=compression)
    claim = struct.pack("<q", 1000)
    assert body.count(claim) >= 1
    at = body.rindex(claim)
    for size, error in ((2**41, TooLarge), (2**63 - 1, TooLarge), (-2, InvalidRequest)):
        spoiled = body[:at] + struct.pack("<q", size) + body[at + 8 :]
        with pytest.raises(error):
            decode(spoiled)
    # Less than it is: found when it is unpacked.
    with pytest.raises(InvalidRequest):
        decode(body[:at] + struct.pack("<q", 10) + body[at + 8 :])


def test_many_batches_and_many_buffers_are_not_even_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = encode_table(pa.table({"body": [b"x"] * 9}), max_chunksize=1)
    assert len(decode(body).bodies) == 9
    monkeypatch.setattr(arrow_check, "BATCHES_MAX", 8)
    with pytest.raises(TooLarge, match="batches"):
        decode(body)
    wide = encode_table(pa.table({f"column{number}": [b"x"] for number in range(30)}))
    with pytest.raises(InvalidRequest, match="other columns"):
        decode(wide)


def test_decompressed_bytes_are_what_counts() -> None:
    body = encode_table(pa.table({"body": [b"\0" * 100_000]}), compression="zstd")
    assert len(body) < 1000
    with pytest.raises(TooLarge, match="once decompressed"):
        decode(body, bytes_max=99_999)
    assert decode(body, bytes_max=110_000).bodies == [b"\0" * 100_000]


def test_a_message_of_another_kind_is_refused() -> None:
    table = pa.table({"body": pa.array([b"a"]).dictionary_encode()})
    with pytest.raises(InvalidRequest, match="dictionary"):
        decode(encode_table(table))
    whole = encode_records([b"a"])
    schema = bytes(pa.schema([("body", pa.binary())]).serialize())
    with pytest.raises(InvalidRequest, match="one schema"):
        decode(whole[len(schema) :])
    with pytest.raises(InvalidRequest, match="one schema"):
        decode(schema + whole)
