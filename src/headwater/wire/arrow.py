"""Records to Arrow IPC streams and back. Arrow columnar format 1.5: IPC streaming.

A run's columns are nearly Arrow's: times and flags are taken as they lie, offsets are the running
sum of the lengths, and the bodies are one buffer. Nothing here looks at a record by itself.

pyarrow takes a while to import and 30 MB to hold, so whoever needs this module asks for it late. It
loads pandas too, if that is there, for any value of Python or numpy that is given to it: another 40
MB. So buffers are. What comes from a client goes through `arrow_check` before pyarrow sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

from headwater.core.errors import InvalidRequest
from headwater.core.records import HAS_HEADERS, SHOWN_FLAGS, HeaderColumns
from headwater.wire.arrow_check import check_stream
from headwater.wire.http import Buffer

_HEADER = pa.struct([pa.field("name", pa.binary(), False), pa.field("value", pa.binary(), False)])
_HEADERS = pa.list_(pa.field("item", _HEADER, False))
_TIMESTAMP = pa.timestamp("ms", "UTC")
_TIME_MAX = np.uint64(2**63 - 1)
"""Arrow has no later time. Clients of S2 may give any up to 2^64, which would be negative here."""

SCHEMA = pa.schema(
    [
        pa.field("seq_num", pa.uint64(), False),
        pa.field("timestamp", _TIMESTAMP, False),
        pa.field("body", pa.binary(), False),
        pa.field("headers", _HEADERS, False),
        pa.field("flags", pa.uint8(), False),
    ]
)
"""What a reader gets. Frozen: columns are only ever added at the end."""

_NO_HEADERS = pa.nulls(0, _HEADER)
_END = b"\xff\xff\xff\xff\0\0\0\0"


class Columns(NamedTuple):
    """Records of one run. Each column may hold more of them than are meant."""

    seq_num: int | Sequence[int]
    """Of the first record meant; or of each, when they do not follow one another."""
    times: Buffer
    """u64 each, milliseconds."""
    lengths: Any
    """u32 each, a buffer."""
    flags: Buffer
    """u8 each."""
    bodies: Buffer
    separated: bool = False
    """One byte that does not belong to it follows each body."""
    headers: HeaderColumns | None = None
    """Of the records whose flags say so, from the first on. None when no record has any."""
    start: int = 0
    stop: int | None = None
    """The records meant, by index; up to the last when None."""

    @property
    def rows(self) -> int:
        return (len(self.flags) if self.stop is None else self.stop) - self.start


def encode_schema() -> Buffer:
    """How a stream begins."""
    return memoryview(SCHEMA.serialize())


def encode_end() -> bytes:
    """How a stream ends, so that a reader can tell it is whole."""
    return _END


def encode_batch(parts: Sequence[Columns]) -> Buffer:
    """One record batch of all the parts."""
    columns = [
        _as_array(pa.uint64(), np.concatenate([_numbers(part) for part in parts])),
        _as_array(_TIMESTAMP, np.minimum(_joined(parts, "times", "<u8"), _TIME_MAX)),
        pa.concat_arrays([_bodies(part) for part in parts]),
        _headers(parts),
        _as_array(pa.uint8(), _joined(parts, "flags", "u1") & SHOWN_FLAGS),
    ]
    return memoryview(pa.RecordBatch.from_arrays(columns, schema=SCHEMA).serialize())


def _numbers(part: Columns) -> Any:
    if isinstance(part.seq_num, int):
        return np.arange(part.seq_num, part.seq_num + part.rows, dtype=np.uint64)
    return np.asarray(part.seq_num, dtype=np.uint64)[part.start : part.stop]


def _joined(parts: Sequence[Columns], name: str, kind: str) -> Any:
    columns = [np.frombuffer(getattr(part, name), kind)[part.start : part.stop] for part in parts]
    return np.concatenate(columns)


def _as_array(arrow_type: Any, values: Any) -> Any:
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(values)])


def _bodies(part: Columns) -> Any:
    lengths = np.frombuffer(part.lengths, "<u4")[: part.stop]
    count = len(lengths)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths + 1 if part.separated else lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(part.bodies)]
    found = pa.Array.from_buffers(pa.binary(), count, buffers)[part.start :]
    return pc.binary_slice(found, 0, -1) if part.separated else found


def _headers(parts: Sequence[Columns]) -> Any:
    if all(part.headers is None for part in parts):
        offsets = np.zeros(sum(part.rows for part in parts) + 1, np.int32)
        return _lists(offsets, _NO_HEADERS)
    return pa.concat_arrays([_header_lists(part) for part in parts])


def _header_lists(part: Columns) -> Any:
    ends = np.zeros(part.rows + 1, np.int32)
    if part.headers is None:
        return _lists(ends, _NO_HEADERS)
    have = np.frombuffer(part.flags, "u1") & HAS_HEADERS != 0
    counts = np.zeros(len(have), np.int32)
    counts[have] = np.frombuffer(part.headers.pairs, "<u2")[: np.count_nonzero(have)]
    np.cumsum(counts[part.start : part.stop], out=ends[1:])
    before = int(counts[: part.start].sum())
    every = _texts(part.headers)
    names = np.arange(2 * before, 2 * (before + int(ends[-1])), 2)
    pairs = [every.take(_as_array(pa.int64(), at)) for at in (names, names + 1)]
    found = pa.StructArray.from_arrays(pairs, fields=list(_HEADER))
    return _lists(ends, found)


def _lists(ends: Any, values: Any) -> Any:
    return pa.ListArray.from_arrays(_as_array(pa.int32(), ends), values, type=_HEADERS)


def _texts(headers: HeaderColumns) -> Any:
    """Names and values by turns."""
    lengths = np.frombuffer(headers.lengths, "<u4")
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(headers.texts)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


# -- what clients send


class Sent(NamedTuple):
    """The records of an append."""

    bodies: list[bytes]
    headers: list[list[tuple[bytes, bytes]]] | None


def decode_records(body: bytes, *, bytes_max: int, records_max: int) -> Sent:
    """The records in an IPC stream with the columns `body` and perhaps `headers`.

    Raises InvalidRequest naming what is wrong, and `TooLarge` past the limits, of which
    `bytes_max` is for the buffers once they are decompressed.
    """
    check_stream(body, bytes_max=bytes_max, rows_max=records_max)
    try:
        with ipc.open_stream(pa.py_buffer(body)) as reader:
            _check_schema(reader.schema)
            batches = list(reader)
            for batch in batches:
                # Offsets that lead out of their buffer are found here, and nowhere earlier.
                batch.validate(full=True)
        return _take(batches)
    except InvalidRequest:
        raise
    except Exception as error:  # pyarrow raises its own, OSError, ValueError, UnicodeDecodeError …
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidRequest(f"the body is not a valid Arrow IPC stream: {text}") from error


def _check_schema(schema: Any) -> None:
    names = list(schema.names)
    for name in names:
        if name not in ("body", "headers"):
            raise InvalidRequest(f"column {name!r} is not taken; send body, and headers if any")
    if names.count("body") != 1 or names.count("headers") > 1:
        raise InvalidRequest("send one column body, and at most one column headers")
    _check_bytes(schema.field("body").type, "body")
    if "headers" in names:
        _check_headers(schema.field("headers").type)


def _check_bytes(found: Any, what: str) -> None:
    kinds = (pa.types.is_binary, pa.types.is_large_binary)
    texts = (pa.types.is_string, pa.types.is_large_string)
    if not any(is_kind(found) for is_kind in (*kinds, *texts)):
        raise InvalidRequest(f"{what} is binary or string. received={found}")


def _check_headers(found: Any) -> None:
    is_list = pa.types.is_list(found) or pa.types.is_large_list(found)
    if not is_list or not pa.types.is_struct(found.value_type):
        raise InvalidRequest(f"headers is a list of structs name, value. received={found}")
    struct = found.value_type
    if [struct.field(at).name for at in range(struct.num_fields)] != ["name", "value"]:
        raise InvalidRequest(f"headers is a list of structs name, value. received={found}")
    for at in range(2):
        _check_bytes(struct.field(at).type, f"headers.{struct.field(at).name}")


def _take(batches: Sequence[Any]) -> Sent:
    bodies: list[bytes] = []
    headers: list[list[tuple[bytes, bytes]]] = []
    for batch in batches:
        bodies += _values(batch.column("body"), "body")
        if "headers" in batch.schema.names:
            headers += _pairs(batch.column("headers"))
    if not bodies:
        raise InvalidRequest("the Arrow stream has no records; send at least one")
    return Sent(bodies, headers if any(headers) else None)


def _values(column: Any, what: str) -> list[bytes]:
    """The values of a column, cut out of its buffers. Validated before, so they are inside."""
    if column.null_count:
        raise InvalidRequest(f"{what} has a null; every value is needed")
    _, offsets, data = column.buffers()
    if not len(column):
        return []
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    kind = np.dtype("<i8" if wide else "<i4")
    ends = np.frombuffer(offsets, kind, len(column) + 1, column.offset * kind.itemsize)
    low, high = int(ends[0]), int(ends[-1])
    joined = b"" if data is None else memoryview(data)[low:high].tobytes()
    at = (ends - low).tolist()
    return [joined[start:stop] for start, stop in zip(at, at[1:], strict=False)]


def _pairs(column: Any) -> list[list[tuple[bytes, bytes]]]:
    """The headers of each record; a null list is an empty one."""
    flat = column.flatten()
    if flat.null_count:
        raise InvalidRequest("headers has a null in a list; every header is needed")
    names, values = flat.flatten()
    pairs = list(zip(_values(names, "headers.name"), _values(values, "headers.value"), strict=True))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    found, at = [], 0
    for length in lengths:
        found.append(pairs[at : at + length])
        at += length
    return found
