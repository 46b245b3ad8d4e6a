"""HTTP/2 frames: their numbers, their nine-byte header, and what ends a stream or a connection.

    length     u24    of the payload
    type       u8
    flags      u8
    stream id  u31    behind one reserved bit

No I/O. RFC 9113 §4 and §6.
"""

from __future__ import annotations

from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113 §3.4

FRAME_HEADER_BYTES = 9
_FRAME_HEADER = Struct(">IBI")  # length and type share the first word
_U32 = Struct(">I")
_SETTING = Struct(">HI")

# Frame types.
DATA = 0x0
HEADERS = 0x1
PRIORITY = 0x2
RST_STREAM = 0x3
SETTINGS = 0x4
PUSH_PROMISE = 0x5
PING = 0x6
GOAWAY = 0x7
WINDOW_UPDATE = 0x8
CONTINUATION = 0x9

# Flags. ACK and END_STREAM share a bit.
END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITIZED = 0x20

# Settings.
HEADER_TABLE_SIZE = 0x1
ENABLE_PUSH = 0x2
MAX_CONCURRENT_STREAMS = 0x3
INITIAL_WINDOW_SIZE = 0x4
MAX_FRAME_SIZE = 0x5
MAX_HEADER_LIST_SIZE = 0x6

# Error codes.
NO_ERROR = 0x0
PROTOCOL_ERROR = 0x1
INTERNAL_ERROR = 0x2
FLOW_CONTROL_ERROR = 0x3
STREAM_CLOSED = 0x5
FRAME_SIZE_ERROR = 0x6
REFUSED_STREAM = 0x7
CANCEL = 0x8
COMPRESSION_ERROR = 0x9
ENHANCE_YOUR_CALM = 0xB

WINDOW_BYTES_MAX = 2**31 - 1
DEFAULT_WINDOW_BYTES = 65_535
DEFAULT_FRAME_BYTES = 16_384
FRAME_BYTES_LIMIT = 2**24 - 1


class ConnectionFailed(Exception):
    """The connection cannot go on: GOAWAY, then the end. RFC 9113 §5.4.1."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class StreamFailed(Exception):
    """One stream cannot go on: RST_STREAM. RFC 9113 §5.4.2."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def pack_header(size: int, kind: int, flags: int, stream_id: int) -> bytes:
    return _FRAME_HEADER.pack(size << 8 | kind, flags, stream_id)


def unpack_header(data: bytes, start: int) -> tuple[int, int, int, int]:
    """Size, type, flags and stream id of the frame that begins at `start`."""
    word, flags, stream_id = _FRAME_HEADER.unpack_from(data, start)
    return word >> 8, word & 0xFF, flags, stream_id & 0x7FFFFFFF


def pack_settings(settings: dict[int, int]) -> bytes:
    payload = b"".join(_SETTING.pack(*setting) for setting in settings.items())
    return pack_header(len(payload), SETTINGS, 0, 0) + payload


def unpack_settings(payload: bytes) -> list[tuple[int, int]]:
    if len(payload) % _SETTING.size:
        raise ConnectionFailed(FRAME_SIZE_ERROR, "settings frame is cut short")
    return list(_SETTING.iter_unpack(payload))


def pack_window_update(stream_id: int, size: int) -> bytes:
    return pack_header(4, WINDOW_UPDATE, 0, stream_id) + _U32.pack(size)


def pack_reset(stream_id: int, code: int) -> bytes:
    return pack_header(4, RST_STREAM, 0, stream_id) + _U32.pack(code)


def pack_goaway(last_stream_id: int, code: int, message: str) -> bytes:
    text = message.encode()
    payload = _U32.pack(last_stream_id) + _U32.pack(code) + text
    return pack_header(len(payload), GOAWAY, 0, 0) + payload


def unpack_u31(payload: bytes, start: int = 0) -> int:
    word: int = _U32.unpack_from(payload, start)[0]
    return word & 0x7FFFFFFF


def strip_padding(payload: bytes, flags: int) -> bytes:
    """RFC 9113 §6.1: padding as long as the payload or longer ends the connection."""
    if not flags & PADDED:
        return payload
    if not payload:
        raise ConnectionFailed(FRAME_SIZE_ERROR, "padded frame is empty")
    padding = payload[0]
    if padding >= len(payload):
        raise ConnectionFailed(PROTOCOL_ERROR, "padding is longer than its frame")
    return payload[1 : len(payload) - padding]


def strip_priority(payload: bytes, flags: int) -> bytes:
    """RFC 9113 §5.3.2: priorities are deprecated, and ignored here."""
    if not flags & PRIORITIZED:
        return payload
    if len(payload) < 5:
        raise ConnectionFailed(FRAME_SIZE_ERROR, "headers frame is cut short")
    return payload[5:]
