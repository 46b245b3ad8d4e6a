"""Session frames, beside the official SDK's own reader and writer."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from s2_sdk import Compression as SdkCompression
from s2_sdk._s2s import _protocol

from headwater.wire.s2 import frames
from headwater.wire.s2.frames import Compression, FrameReader
from headwater.wire.s2.records import WireError

bodies = st.one_of(st.binary(max_size=50), st.binary(min_size=1, max_size=9).map(lambda b: b * 400))


def frame(body: bytes, flag: int = 0) -> bytes:
    return (len(body) + 1).to_bytes(3, "big") + bytes((flag,)) + body


def feed(reader: FrameReader, data: bytes) -> list[bytes]:
    """Every body that is complete with this."""
    reader.feed(data)
    return list(iter(reader.next_body, None))


def write_with_sdk(body: bytes, compression: SdkCompression) -> bytes:
    packed, used = _protocol.maybe_compress(body, compression)
    written: bytes = _protocol.frame_message(_protocol.Message(packed, False, used))
    return written


def read_with_sdk(data: bytes) -> list[_protocol.Message]:
    async def pieces() -> AsyncIterator[bytes]:
        yield data

    async def read() -> list[_protocol.Message]:
        return [message async for message in _protocol.read_messages(pieces())]

    return asyncio.run(read())


@given(st.lists(bodies, max_size=4), st.sampled_from(Compression), st.booleans())
def test_the_sdk_reads_what_is_written(
    sent: list[bytes], compression: Compression, reconnect: bool
) -> None:
    data = b"".join(
        frames.encode_frame((body[:3], memoryview(body)[3:]), compression, reconnect=reconnect)
        for body in sent
    )

    found = read_with_sdk(data)

    assert [message.body for message in found] == sent
    assert all(message.reconnect_advised is reconnect for message in found)


@given(
    st.lists(st.tuples(bodies, st.sampled_from(SdkCompression)), max_size=4),
    st.lists(st.integers(1, 40), max_size=10),
)
def test_what_the_sdk_writes_is_read_however_it_is_cut(
    sent: list[tuple[bytes, SdkCompression]], cuts: list[int]
) -> None:
    data = b"".join(write_with_sdk(body, compression) for body, compression in sent)
    reader, found = FrameReader(), []
    for size in cuts:
        found += feed(reader, data[:size])
        data = data[size:]
    found += feed(reader, data)

    assert found == [body for body, _ in sent]
    assert reader.is_empty


def test_a_frame_that_is_not_whole_is_kept() -> None:
    reader = FrameReader()

    assert feed(reader, frame(b"abc")[:-1]) == []
    assert not reader.is_empty
    assert feed(reader, b"c") == [b"abc"]
    assert reader.is_empty


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\0",
        b"\x20\x00\x01\0",
        frame(b"x", 0x60),
        frame(b"\0\0{}", 0x80),
        frame(b"junk", 0x20),
        frame(zstandard.compress(b"x" * 100)[:-3], 0x20),
        frame(zstandard.compress(b"x" * 100) + b"more", 0x20),
        frame(b"junk", 0x40),
        frame(gzip.compress(b"x" * 100)[:-9], 0x40),
    ],
    ids=[
        "length 0",
        "over 2 MiB",
        "unknown compression",
        "terminal",
        "no zstd",
        "cut zstd",
        "more than zstd",
        "no gzip",
        "cut gzip",
    ],
)
def test_a_frame_that_breaks_a_rule_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        feed(FrameReader(), data)


def test_what_is_before_a_bad_frame_is_taken() -> None:
    reader = FrameReader()
    reader.feed(frame(b"good") + b"\0\0\0\0")

    assert reader.next_body() == b"good"
    with pytest.raises(WireError):
        reader.next_body()


def test_the_longest_frame_is_taken() -> None:
    body = bytes(frames.FRAME_BYTES_MAX - 1)

    assert feed(FrameReader(), frame(body)) == [body]
    with pytest.raises(WireError):
        feed(FrameReader(), frame(body + b"x"))


@pytest.mark.parametrize("told", [True, False])
def test_a_body_unpacks_to_2_mib_at_most(told: bool) -> None:
    body = bytes(frames.FRAME_BYTES_MAX - 1)
    compressor = zstandard.ZstdCompressor(write_content_size=told)

    assert feed(FrameReader(), frame(compressor.compress(body), 0x20)) == [body]
    assert feed(FrameReader(), frame(gzip.compress(body), 0x40)) == [body]
    for packed, flag in (
        (compressor.compress(body + b"x"), 0x20),
        (gzip.compress(body + b"x"), 0x40),
    ):
        with pytest.raises(WireError):
            feed(FrameReader(), frame(packed, flag))


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        (None, Compression.NONE),
        (b"", Compression.NONE),
        (b"br, deflate", Compression.NONE),
        (b"gzip", Compression.GZIP),
        (b"gzip, zstd", Compression.ZSTD),
        (b"ZSTD;q=0.1,gzip", Compression.ZSTD),
    ],
)
def test_zstd_is_chosen_wherever_it_is_mentioned(
    accepted: bytes | None, chosen: Compression
) -> None:
    assert frames.choose_compression(accepted) is chosen


def test_only_bodies_of_1_kib_are_compressed() -> None:
    small, large = bytes(1023), bytes(1024)

    assert frames.encode_frame((small,), Compression.ZSTD) == frame(small)
    assert frames.encode_frame((large,), Compression.ZSTD)[3] == 0x20
    assert frames.encode_frame((large,), Compression.GZIP)[3] == 0x40
    assert zlib.decompress(frames.encode_frame((large,), Compression.GZIP)[4:], 31) == large


def test_a_frame_can_be_made_to_ask_for_a_reconnect() -> None:
    body = bytes(2000)
    for compression in Compression:
        plain = frames.encode_frame((body,), compression)
        asking = frames.encode_frame((body,), compression, reconnect=True)
        assert frames.advise_reconnect(plain) == asking


def test_a_terminal_frame_has_the_status_and_the_error() -> None:
    data = frames.encode_terminal(503, b'{"code":"server_draining","message":"moving"}')

    assert data[3] == 0x80
    with pytest.raises(Exception, match="moving") as caught:
        read_with_sdk(data)
    assert type(caught.value).__name__ == "ServerDrainingError"
