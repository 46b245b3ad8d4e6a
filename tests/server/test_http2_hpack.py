"""Header blocks: our decoder beside the `hpack` package's, our encoder read by it."""

from __future__ import annotations

import hpack
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.server.http2_frames import ConnectionFailed
from headwater.server.http2_headers import HeadEncoder
from headwater.server.http2_hpack import BlockDecoder
from headwater.server.serving import ServerLimits, Serving
from headwater.wire.http import HeaderBlock, Response
from tests.server.http1_harness import EchoApplication, ManualClock

NAMES = st.sampled_from([b":path", b"content-type", b"x-a", b"x-b", b"date", b"x-" + b"n" * 200])
VALUES = st.binary(max_size=40) | st.sampled_from([b"", b"/", b"v" * 130, b"w" * 4000])
FIELDS = st.lists(st.tuples(NAMES, VALUES, st.booleans()), max_size=8)


def outcome_of_hpack(decoder: hpack.Decoder, block: bytes) -> list[tuple[bytes, bytes]] | None:
    try:
        return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except (hpack.HPACKError, IndexError):
        return None


def outcome_of_ours(decoder: BlockDecoder, block: bytes) -> list[tuple[bytes, bytes]] | None:
    try:
        return decoder.decode(block)
    except ConnectionFailed:
        return None


@given(
    blocks=st.lists(FIELDS, max_size=10),
    sizes=st.lists(st.integers(0, 4096), max_size=3),
    huffman=st.booleans(),
)
def test_what_an_encoder_writes_is_read_back(
    blocks: list[list[tuple[bytes, bytes, bool]]], sizes: list[int], huffman: bool
) -> None:
    encoder = hpack.Encoder()
    ours = BlockDecoder(1 << 20)
    for number, fields in enumerate(blocks):
        if number < len(sizes):
            encoder.header_table_size = sizes[number]
        block = encoder.encode(fields, huffman=huffman)
        assert ours.decode(block) == [(name, value) for name, value, _ in fields]


@settings(max_examples=400)
@given(blocks=st.lists(st.binary(max_size=12), max_size=12))
def test_any_bytes_mean_the_same_to_both(blocks: list[bytes]) -> None:
    ours, theirs = BlockDecoder(1 << 20), hpack.Decoder(1 << 20)
    for block in blocks:
        expected = outcome_of_hpack(theirs, block)
        assert outcome_of_ours(ours, block) == expected
        if expected is None:
            return


@given(
    status=st.sampled_from([200, 201, 204, 404, 412, 500]),
    fields=st.lists(
        st.tuples(
            st.sampled_from([b"x-a", b"etag", b"Content-Type", b"stream-next-offset"]),
            st.text("abc 09-_", max_size=300).map(str.encode),
        ),
        max_size=5,
    ),
    length=st.none() | st.integers(0, 10**9),
)
def test_responses_are_read_by_hpack(
    status: int, fields: list[tuple[bytes, bytes]], length: int | None
) -> None:
    serving = Serving(
        EchoApplication(),
        clock=ManualClock(),
        limits=ServerLimits(),
        on_response=None,
        h2_factory=None,
    )
    encoder = HeadEncoder(serving)
    response = Response(status, fields, base=HeaderBlock(((b"vary", b"accept"),)))
    for _ in range(2):
        block = encoder.encode(response, "id-1", length)
        read = [(bytes(n), bytes(v)) for n, v in hpack.Decoder().decode(block, raw=True)]
        own = [(name.lower(), value) for name, value in fields]
        expected = [(b":status", b"%d" % status), (b"date", serving.date)]
        expected += [(b"x-request-id", b"id-1"), (b"vary", b"accept"), *own]
        if length is not None:
            expected.append((b"content-length", b"%d" % length))
        assert read == expected
