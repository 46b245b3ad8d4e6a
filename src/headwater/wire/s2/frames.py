"""Frames of an S2S session. S2 API: sessions.

    length   u24, big-endian   of all that follows
    flag     u8                bit 7 terminal, bits 6-5 compression, bit 4 reconnect advised
    body     a protobuf message, or of a terminal frame: u16 status, then the JSON of the error

A body is compressed by itself, and only when it has COMPRESS_BYTES_MIN. A terminal frame always
means failure; a session that is over simply ends.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from enum import IntEnum

import zstandard

from headwater.wire.http import Buffer
from headwater.wire.s2.records import WireError

FRAME_BYTES_MAX = 2 * 1024 * 1024
"""Of flag and body, and of a body after decompression with its flag."""
COMPRESS_BYTES_MIN = 1024
LENGTH_BYTES = 3

TERMINAL = 0x80
RECONNECT = 0x10
"""A server that is about to stop asks its client to move."""
_COMPRESSION_SHIFT = 5
_COMPRESSION_MASK = 0x60

GZIP_LEVEL = 1
ZSTD_LEVEL = 1


class Compression(IntEnum):
    """How the body of a frame is compressed. The numbers are on the wire."""

    NONE = 0
    ZSTD = 1
    GZIP = 2


def choose_compression(accept_encoding: bytes | None) -> Compression:
    """The one to answer with: zstd where it is mentioned at all, else gzip."""
    named = {
        part.partition(b";")[0].strip().lower() for part in (accept_encoding or b"").split(b",")
    }
    if b"zstd" in named:
        return Compression.ZSTD
    return Compression.GZIP if b"gzip" in named else Compression.NONE


class FrameReader:
    """Cuts what arrives into the bodies of its frames.

    Bodies are unpacked one by one, as they are asked for: a few bytes can unpack to megabytes.
    """

    __slots__ = ("_at", "_kept")

    def __init__(self) -> None:
        self._kept = bytearray()
        self._at = 0
        """Where the next frame begins."""

    @property
    def is_empty(self) -> bool:
        """Between two frames: the body may end here."""
        return self._at == len(self._kept)

    def feed(self, data: Buffer) -> None:
        """Keep what has arrived, for `next_body`."""
        del self._kept[: self._at]
        self._at = 0
        self._kept += data

    def next_body(self) -> bytes | None:
        """The next body, decompressed, if it is there to its end. Raises WireError."""
        kept, at = self._kept, self._at
        if len(kept) - at < LENGTH_BYTES + 1:
            return None
        size = int.from_bytes(kept[at : at + LENGTH_BYTES], "big")
        if not 1 <= size <= FRAME_BYTES_MAX:
            raise WireError(f"a frame has 1 to {FRAME_BYTES_MAX} bytes. bytes={size}")
        end = at + LENGTH_BYTES + size
        if len(kept) < end:
            return None
        self._at = end
        body = bytes(memoryview(kept)[at + LENGTH_BYTES + 1 : end])
        return _open_body(kept[at + LENGTH_BYTES], body)


def _open_body(flag: int, body: bytes) -> bytes:
    if flag & TERMINAL:
        raise WireError("a client sends no terminal frame")
    compression = (flag & _COMPRESSION_MASK) >> _COMPRESSION_SHIFT
    if compression == Compression.NONE:
        return body
    if compression == Compression.ZSTD:
        return decompress_zstd(body, FRAME_BYTES_MAX - 1)
    if compression == Compression.GZIP:
        return decompress_gzip(body, FRAME_BYTES_MAX - 1)
    raise WireError("a frame's compression is none, zstd or gzip")


def decompress_zstd(data: bytes, bytes_max: int) -> bytes:
    """At most `bytes_max` bytes. Raises WireError."""
    try:
        told = zstandard.get_frame_parameters(data).content_size
        if zstandard.CONTENTSIZE_UNKNOWN > told > bytes_max:
            raise WireError(f"unpacked it is over {bytes_max} bytes")
        # Where the data does not tell its size, `bytes_max` is what may come out.
        return zstandard.ZstdDecompressor().decompress(
            data, max_output_size=bytes_max, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise WireError(f"not zstd data, or too much: {error}") from None


def decompress_gzip(data: bytes, bytes_max: int) -> bytes:
    """At most `bytes_max` bytes. Raises WireError."""
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        unpacked = unpacker.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise WireError(f"not gzip data: {error}") from None
    if len(unpacked) > bytes_max:
        raise WireError(f"unpacked it is over {bytes_max} bytes")
    if not unpacker.eof:
        raise WireError("gzip data is cut short")
    return unpacked


def encode_frame(
    pieces: Sequence[Buffer],
    compression: Compression = Compression.NONE,
    *,
    reconnect: bool = False,
) -> bytes:
    """A regular frame around a message that comes in pieces."""
    size = sum(map(len, pieces))
    flag = RECONNECT if reconnect else 0
    if compression is not Compression.NONE and size >= COMPRESS_BYTES_MIN:
        packed = _compress(compression, b"".join(pieces))
        flag |= compression << _COMPRESSION_SHIFT
        return (len(packed) + 1).to_bytes(LENGTH_BYTES, "big") + bytes((flag,)) + packed
    head = (size + 1).to_bytes(LENGTH_BYTES, "big") + bytes((flag,))
    return b"".join((head, *pieces))


def _compress(compression: Compression, body: bytes) -> bytes:
    if compression is Compression.ZSTD:
        return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(body)
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


def advise_reconnect(frame: bytes) -> bytes:
    """The same regular frame, asking its client to move."""
    return b"%b%c%b" % (frame[:LENGTH_BYTES], frame[LENGTH_BYTES] | RECONNECT, frame[4:])


def encode_terminal(status: int, error: bytes) -> bytes:
    """The frame that ends a session with an error."""
    return b"".join(
        (
            (len(error) + 3).to_bytes(LENGTH_BYTES, "big"),
            bytes((TERMINAL,)),
            status.to_bytes(2, "big"),
            error,
        )
    )
