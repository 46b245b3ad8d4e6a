"""Every key of the store, drawn and frozen. Integers are big-endian so that keys sort by them.

    m <name>                     store facts: format, tag, next id
    n <bucket> 00 <name>         stream name  -> internal id (u64)
    s <id u64>                   checkpoint of a stream (MessagePack of StreamState)
    r <id u64> <first seq u64>   a run or packed chunk of records (see runs.py)
    e <time ms u64> <id u64>     when to look at a stream: expired, or to be trimmed? -> empty
    g <id u64>                   records waiting to be removed -> empty
    d <collection> 00 <name>     documents of the server's own: subscriptions, keys
    p <upload u64> <piece u32>   bytes of a snapshot, piece by piece
    u <upload u64>               an upload that is no stream's snapshot yet -> empty

Frozen: a new layout gets a new first byte, and the reader keeps both.
"""

from __future__ import annotations

import struct

from headwater.core.types import SeqNum, StreamId, TimestampMs

_U64 = struct.Struct(">Q")
_RUN = struct.Struct(">cQQ")
_DEADLINE = struct.Struct(">cQQ")
_PIECE = struct.Struct(">cQI")

STORE_FORMAT = b"1"
FORMAT = b"mformat"
STORE_TAG = b"mtag"
NEXT_ID = b"mnext-id"

NAME_PREFIX = b"n"
STATE_PREFIX = b"s"
RUN_PREFIX = b"r"
DEADLINE_PREFIX = b"e"
GARBAGE_PREFIX = b"g"
DOCUMENT_PREFIX = b"d"
PIECE_PREFIX = b"p"
UPLOAD_PREFIX = b"u"

BUCKETS = "bucket"
"""The collection of documents that describe buckets."""

SHARD_SHIFT = 48


def name(bucket: str, stream: str) -> bytes:
    return b"n%b\0%b" % (bucket.encode(), stream.encode())


def split_name(key: bytes) -> tuple[str, str]:
    bucket, stream = key[1:].split(b"\0", 1)
    return bucket.decode(), stream.decode()


def state(stream_id: StreamId) -> bytes:
    return b"s" + _U64.pack(stream_id)


def run(stream_id: StreamId, first: SeqNum) -> bytes:
    return _RUN.pack(b"r", stream_id, first)


def split_run(key: bytes) -> tuple[StreamId, SeqNum]:
    _, stream_id, first = _RUN.unpack(key)
    return StreamId(stream_id), SeqNum(first)


def run_end(stream_id: StreamId) -> bytes:
    """Sorts after every run of the stream."""
    return b"r" + _U64.pack(stream_id + 1)


def deadline(at_ms: TimestampMs, stream_id: StreamId) -> bytes:
    return _DEADLINE.pack(b"e", at_ms, stream_id)


def split_deadline(key: bytes) -> tuple[TimestampMs, StreamId]:
    _, at_ms, stream_id = _DEADLINE.unpack(key)
    return TimestampMs(at_ms), StreamId(stream_id)


def garbage(stream_id: StreamId) -> bytes:
    return b"g" + _U64.pack(stream_id)


def split_garbage(key: bytes) -> StreamId:
    return StreamId(_U64.unpack(key[1:])[0])


def document(collection: str, document_name: str) -> bytes:
    return b"d%b\0%b" % (collection.encode(), document_name.encode())


def split_document(key: bytes) -> tuple[str, str]:
    collection, document_name = key[1:].split(b"\0", 1)
    return collection.decode(), document_name.decode()


def piece(upload: int, number: int) -> bytes:
    return _PIECE.pack(b"p", upload, number)


def split_piece(key: bytes) -> tuple[int, int]:
    _, upload, number = _PIECE.unpack(key)
    return upload, number


def pieces_end(upload: int) -> bytes:
    """Sorts after every piece of the upload."""
    return piece(upload, 2**32 - 1)


def unpublished(upload: int) -> bytes:
    return b"u" + _U64.pack(upload)


def split_unpublished(key: bytes) -> int:
    return unpack_id(key[1:])


def pack_id(stream_id: int) -> bytes:
    return _U64.pack(stream_id)


def unpack_id(value: bytes) -> int:
    return int(_U64.unpack(value)[0])


def prefix_end(prefix: bytes) -> bytes:
    """The smallest key after every key with this prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
