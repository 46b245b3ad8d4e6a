"""How a body is cut into lines and chunks, whatever pieces it arrives in."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import jsonmode
from headwater.core.errors import InvalidRequest
from headwater.dialects.durable import pieces
from headwater.dialects.durable.pieces import Chunks, JsonLines, Lines, Pieces, PieceTooLong

BYTES_MAX = 64


def cut_at(body: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The body in pieces, as reads might bring it."""
    bounds = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    return [body[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]


def drain(source: Pieces) -> list[pieces.Piece]:
    found = []
    while (piece := source.take()) is not None:
        found.append(piece)
    assert not source.ready
    return found


def feed_all(source: Pieces, reads: Sequence[bytes]) -> list[pieces.Piece]:
    """Everything that comes out, taken as early as possible."""
    found = []
    for read in reads:
        source.feed(read)
        found += drain(source)
    source.finish()
    return found + drain(source)


cuts = st.lists(st.integers(0, 1000), max_size=8)
texts = st.lists(st.sampled_from([b"", b"a", b"bc\r", b"\xff" * 5, b"longer text"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)


@given(texts, cuts, st.booleans())
def test_lines_are_the_same_however_they_arrive(
    lines: list[bytes], cuts: list[int], terminated: bool
) -> None:
    body = b"".join(line + b"\n" for line in lines)
    if not terminated:
        body = body.removesuffix(b"\n")
    found = feed_all(Lines(BYTES_MAX), cut_at(body, cuts))
    assert [piece.body for piece in found] == body.splitlines(keepends=True) or b"\r" in body
    assert b"".join(piece.body for piece in found) == body
    assert all(b"\n" not in piece.body[:-1] for piece in found)
    assert all(piece.parts == 1 for piece in found)


@given(st.lists(values, max_size=8), cuts, st.booleans(), st.sampled_from(["\n", "\r\n", " \n\n"]))
def test_json_lines_are_the_same_however_they_arrive(
    sent: list[object], cuts: list[int], single: bool, end: str
) -> None:
    lines = [json.dumps(value).encode() for value in sent]
    body = end.encode().join(lines)
    found = feed_all(JsonLines(1 << 20, single=single), cut_at(body, cuts))
    assert [message for piece in found for message in jsonmode.flatten(piece.body)] == lines
    assert sum(piece.parts for piece in found) == len(lines)
    if single:
        assert all(piece.parts == 1 for piece in found)


@given(st.lists(st.binary(max_size=6), max_size=6))
def test_chunks_are_what_arrived(reads: list[bytes]) -> None:
    found = feed_all(Chunks(), reads)
    assert [piece.body for piece in found] == [read for read in reads if read]


def test_a_line_that_arrives_byte_by_byte_is_one_line() -> None:
    found = feed_all(Lines(BYTES_MAX), [b"%c" % byte for byte in b"hello\nworld"])
    assert [piece.body for piece in found] == [b"hello\n", b"world"]


def test_nothing_is_ready_inside_a_line() -> None:
    source = Lines(BYTES_MAX)
    source.feed(b"begun")
    assert (source.ready, source.take()) == (False, None)
    source.feed(b" and ended\nbegun again")
    assert source.ready
    assert source.take() == (b"begun and ended\n", 1)
    assert (source.ready, source.take()) == (False, None)


@pytest.mark.parametrize("kind", ["text", "json", "chunks"])
def test_an_empty_body_has_no_pieces(kind: str) -> None:
    sources: dict[str, Pieces] = {
        "text": Lines(BYTES_MAX),
        "json": JsonLines(BYTES_MAX, single=False),
        "chunks": Chunks(),
    }
    assert feed_all(sources[kind], [b"", b""]) == []


@pytest.mark.parametrize("known", [False, True], ids=["before its end", "at its end"])
def test_a_line_may_be_as_long_as_a_body_and_no_longer(known: bool) -> None:
    end = b"\n" if known else b""
    source = Lines(BYTES_MAX)
    source.feed(b"x" * (BYTES_MAX - len(end)) + end)
    assert source.ready is known
    source = Lines(BYTES_MAX)
    source.feed(b"fits\n" + b"x" * (BYTES_MAX + 1 - len(end)) + end)
    assert source.take() == (b"fits\n", 1)
    assert source.ready, "there is an error to take"
    with pytest.raises(PieceTooLong):
        source.take()


# -- JSON


def test_lines_that_arrive_together_are_one_piece() -> None:
    found = feed_all(JsonLines(BYTES_MAX, single=False), [b'1\n\n {"a": 2} \r\n', b"[3]\n4"])
    assert found == [(b'[1,{"a": 2}]', 2), (b"[[3]]", 1), (b"[4]", 1)]


def test_a_piece_of_many_lines_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "GROUP_BYTES", 10)
    found = feed_all(JsonLines(BYTES_MAX, single=False), [b"1\n2\n3\n4\n5\n6\n7\n" + b"8" * 20])
    assert [piece.parts for piece in found] == [5, 2, 1]


@pytest.mark.parametrize(
    "line",
    [
        b"1,2",
        b"1 2",
        b"[1",
        b"1],[2",
        b'"a',
        b"nul",
        b"{",
        b"\xff",
        b'"\xff"',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b",",
        b"]",
    ],
)
@pytest.mark.parametrize("single", [False, True])
def test_the_lines_before_an_invalid_one_come_first(line: bytes, single: bool) -> None:
    source = JsonLines(1 << 20, single=single)
    source.feed(b"[]\n2\n" + line + b"\n4\n")
    taken = 0
    while taken < 2:
        piece = source.take()
        assert piece is not None
        taken += piece.parts
    assert source.ready
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="line=3"):
            source.take()


def test_what_is_accepted_here_is_accepted_wherever_it_is_parsed() -> None:
    """The deepest line that passes passes again under many more calls."""

    def passes(depth: int) -> bool:
        source = JsonLines(BYTES_MAX * 1000, single=False)
        source.feed(b"1\n%b%b\n" % (b"[" * depth, b"]" * depth))
        piece = source.take()
        return piece is not None and piece.parts == 2

    deepest = max(depth for depth in range(100, 2000) if passes(depth))

    def check(calls: int) -> list[bytes]:
        if calls:
            return check(calls - 1)
        return jsonmode.flatten(b"[%b%b]" % (b"[" * deepest, b"]" * deepest))

    assert check(jsonmode.DEPTH_SPARE - 10)


def test_lines_that_are_only_valid_together_are_refused() -> None:
    """`[1` and `2],3` make two values, if they are joined as a list."""
    source = JsonLines(BYTES_MAX, single=False)
    source.feed(b"[1\n2],3\n")
    with pytest.raises(InvalidRequest, match="line=1"):
        source.take()
