"""Compression of catch-up reads: asked for, worth it, told to caches, and never of live reads."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator

import pytest
import zstandard

from headwater.dialects.compression import choose
from tests.support.durable import DurableServer

TEXT = b"tick tock " * 1000
DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "zstd": lambda data: zstandard.ZstdDecompressor().decompress(data),
}


@pytest.fixture
def server() -> Iterator[DurableServer]:
    with DurableServer() as server:
        yield server


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, None),
        (b"", None),
        (b"gzip", "gzip"),
        (b"gzip, deflate, br, zstd", "zstd"),
        (b"gzip;q=1.0, zstd;q=0.5", "gzip"),
        (b"gzip;q=0, zstd;q=0", None),
        (b"*", "zstd"),
        (b"*;q=0.1, gzip;q=0.2", "gzip"),
        (b"identity", None),
        (b"gzip;q=high", None),
        (b"GZIP", "gzip"),
    ],
)
def test_which_coding_is_chosen(accept: bytes | None, chosen: str | None) -> None:
    assert choose(accept) == chosen


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_read_is_compressed_for_who_asks(server: DurableServer, coding: str) -> None:
    server.make("s", TEXT)
    reply = server.get("s", "-1", accept_encoding=coding)
    assert (reply.headers["content-encoding"], reply.headers["vary"]) == (coding, "accept-encoding")
    assert len(reply.body) < len(TEXT) / 10
    assert DECODERS[coding](reply.body) == TEXT
    assert reply.etag.endswith(f'-{coding}"')


def test_a_plain_answer_varies_too(server: DurableServer) -> None:
    server.make("s", TEXT)
    reply = server.get()
    assert reply.headers["vary"] == "accept-encoding"
    assert "content-encoding" not in reply.headers


def test_either_tag_is_recognised(server: DurableServer) -> None:
    server.make("s", TEXT)
    tags = [server.get("s", "-1", accept_encoding=coding).etag for coding in ("", "gzip", "zstd")]
    assert len(set(tags)) == 3
    for tag in tags:
        assert server.get("s", "-1", if_none_match=tag, accept_encoding="gzip").status == 304


def test_small_answers_are_left_alone(server: DurableServer) -> None:
    server.make("s", b"short")
    assert "content-encoding" not in server.get("s", "-1", accept_encoding="gzip").headers


def test_live_answers_are_never_compressed(server: DurableServer) -> None:
    server.make("s", TEXT)
    polled = server.poll("s", "-1", accept_encoding="gzip").reply
    assert polled.body == TEXT and "content-encoding" not in polled.headers
    followed = server.follow("s", "-1", accept_encoding="gzip")
    assert followed.text == TEXT.decode()


def test_errors_pass_through(server: DurableServer) -> None:
    assert server.get("none", "-1", accept_encoding="gzip").status == 404
