"""Header blocks of HTTP/2: what a request's may say, and how a response's is written.

Clients repeat themselves, so a block that left the dynamic table alone is judged
once and remembered until the table changes. Responses never use the dynamic table: their blocks
depend on no connection, and what does not change in them is encoded once. RFC 9113 §8, RFC 7541.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headwater.server.http1_request import SINGLE_VALUED, Refusal
from headwater.server.http2_frames import PROTOCOL_ERROR, StreamFailed
from headwater.server.http2_hpack import STATIC, BlockDecoder
from headwater.server.serving import ServerLimits, Serving
from headwater.wire.http import Header, HeaderBlock, Response

CACHED_BLOCKS_MAX = 64
CACHED_BLOCK_BYTES_MAX = 4096
CACHED_NAMES_MAX = 1024
CACHED_BASES_MAX = 256

# A client that is over the limit reads a 431; one that is this many times over it reads nothing.
DECODED_BYTES_FACTOR = 4

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_PATH = re.compile(rb"/[!-~]*|\*")
_AUTHORITY = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]+")
_BAD_VALUE = re.compile(rb"[\0\r\n]|^[ \t]|[ \t]\Z")

# RFC 9113 §8.2.2: these are about one HTTP/1.1 connection and make a request malformed.
CONNECTION_HEADERS = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
_PSEUDO_HEADERS = frozenset((b":method", b":scheme", b":path", b":authority"))


class Head:
    """What a request's header block says. Shared by the requests that repeat it."""

    __slots__ = ("expects_continue", "headers", "length", "method", "path", "query", "refusal")

    def __init__(self) -> None:
        self.method = ""
        self.path = ""
        self.query = ""
        self.headers: dict[bytes, bytes] = {}
        self.length = -1  # not said
        self.expects_continue = False
        self.refusal: Refusal | None = None


class HeaderDecoder:
    """Blocks of one connection to heads."""

    __slots__ = ("_blocks", "_changes", "_heads", "_limits")

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        bytes_max = limits.header_bytes_max + limits.request_line_bytes_max
        self._blocks = BlockDecoder(DECODED_BYTES_FACTOR * bytes_max)
        self._changes = 0
        self._heads: dict[bytes, Head] = {}

    def decode(self, block: bytes) -> Head:
        """StreamFailed if the request is malformed, ConnectionFailed if the block is."""
        head = self._heads.get(block)
        if head is not None:
            return head
        fields = self.decode_fields(block)
        head = parse_head(fields, self._limits)
        # A block that changes the table means something else the next time.
        if self._changes != self._blocks.changes:
            self._changes = self._blocks.changes
        elif len(block) <= CACHED_BLOCK_BYTES_MAX:
            if len(self._heads) >= CACHED_BLOCKS_MAX:
                self._heads.clear()
            self._heads[block] = head
        return head

    def decode_fields(self, block: bytes) -> list[tuple[bytes, bytes]]:
        fields = self._blocks.decode(block)
        if self._changes != self._blocks.changes:
            self._heads.clear()
        return fields


def parse_head(fields: list[tuple[bytes, bytes]], limits: ServerLimits) -> Head:
    """RFC 9113 §8.3. What is well formed but not acceptable is in `refusal`."""
    head = Head()
    pseudo: dict[bytes, bytes] = {}
    headers = head.headers
    total = 0
    for name, value in fields:
        total += len(name) + len(value) + 4
        if name[:1] == b":":
            if headers or name in pseudo or name not in _PSEUDO_HEADERS:
                raise _malformed("pseudo-header is unknown, repeated or misplaced")
            pseudo[name] = value
            continue
        check_field(name, value)
        if name not in headers:
            headers[name] = value
        elif name in SINGLE_VALUED:
            raise _malformed("repeated header")
        else:
            separator = b"; " if name == b"cookie" else b", "  # RFC 9113 §8.2.3
            headers[name] = headers[name] + separator + value
    _parse_pseudo(head, pseudo)
    _parse_length(head)
    if len(fields) - len(pseudo) > limits.header_count_max:
        head.refusal = Refusal(431, "too many headers")
    elif len(pseudo.get(b":path", b"")) > limits.request_line_bytes_max:
        head.refusal = Refusal(414, "request target is too long")
    elif total - len(pseudo.get(b":path", b"")) > limits.header_bytes_max:
        head.refusal = Refusal(431, "request headers are too large")
    return head


def check_field(name: bytes, value: bytes) -> None:
    """RFC 9113 §8.2.1 and §8.2.2."""
    if _TOKEN.fullmatch(name) is None:
        raise _malformed("invalid header name")
    if name in CONNECTION_HEADERS or (name == b"te" and value != b"trailers"):
        raise _malformed("connection-specific header")
    if _BAD_VALUE.search(value) is not None:
        raise _malformed("invalid header value")


def check_trailers(fields: list[tuple[bytes, bytes]]) -> None:
    """They are dropped (RFC 9110 §6.5.1), but must be trailers."""
    for name, value in fields:
        check_field(name, value)


def _parse_pseudo(head: Head, pseudo: dict[bytes, bytes]) -> None:
    method = pseudo.get(b":method", b"")
    if _METHOD.fullmatch(method) is None:
        raise _malformed("invalid :method")
    head.method = method.decode()
    authority = pseudo.get(b":authority")
    host = head.headers.get(b"host")
    if authority is not None:
        # RFC 9113 §8.3.1: a Host that says something else is a way to be understood twice.
        if host is not None and host != authority:
            raise _malformed("host differs from :authority")
        head.headers[b"host"] = host = authority
    if head.method == "CONNECT":
        head.refusal = Refusal(501, "this is not a proxy")
        return
    path = pseudo.get(b":path", b"")
    if not pseudo.get(b":scheme") or _PATH.fullmatch(path) is None:
        raise _malformed("missing or invalid :scheme or :path")
    if path == b"*" and head.method != "OPTIONS":
        raise _malformed("invalid :path")
    if host is None:
        head.refusal = Refusal(400, "missing host header")
    elif _AUTHORITY.fullmatch(host) is None:
        head.refusal = Refusal(400, "invalid host header")
    elif b"#" in path:
        head.refusal = Refusal(400, "request target has a fragment")
    head.path, _, head.query = path.decode().partition("?")


def _parse_length(head: Head) -> None:
    length = head.headers.get(b"content-length")
    if length is not None:
        if not length.isdigit() or len(length) > 19:
            raise _malformed("invalid content-length")
        head.length = int(length)
    expect = head.headers.get(b"expect")
    if expect is not None:
        if expect.lower() == b"100-continue":
            head.expects_continue = True
        else:
            head.refusal = head.refusal or Refusal(417, "unknown expectation")


def _malformed(message: str) -> StreamFailed:
    return StreamFailed(PROTOCOL_ERROR, message)


# RFC 7541 §6.2.2: a literal that is not indexed, with a name from the static table if it is there.
_STATIC_NAMES: dict[bytes, int] = {}
for _index, (_name, _value) in enumerate(STATIC, 1):
    _STATIC_NAMES.setdefault(_name, _index)
_STATIC_STATUSES = {200: 0x88, 204: 0x89, 206: 0x8A, 304: 0x8B, 400: 0x8C, 404: 0x8D, 500: 0x8E}
_LENGTHS = tuple(bytes((size,)) for size in range(127))

CONTINUE_BLOCK = b"\x08\x03100"
"""`:status: 100`."""

TABLE_EMPTIED = b"\x20"
"""Size update to 0, due when a client lowers the size of a table that we never fill."""


def _encode_integer(value: int, prefix_bits: int) -> bytes:
    """RFC 7541 §5.1, with zeros before the prefix."""
    prefix_max = (1 << prefix_bits) - 1
    if value < prefix_max:
        return bytes((value,))
    out = bytearray((prefix_max,))
    value -= prefix_max
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encode_string(text: bytes) -> bytes:
    size = len(text)
    return (_LENGTHS[size] if size < 127 else _encode_integer(size, 7)) + text


class HeadEncoder:
    """Response heads of all connections of one server."""

    __slots__ = ("_bases", "_date", "_names", "_prefixes", "_serving")

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._names: dict[bytes, bytes] = {}
        self._bases: dict[HeaderBlock, bytes] = {}
        self._prefixes: dict[int, bytes] = {}
        self._date = b""

    def encode(self, response: Response, request_id: str, length: int | None) -> bytes:
        """ValueError if a value cannot be sent. Connection-specific headers are left out."""
        serving = self._serving
        if serving.date is not self._date:
            self._date = serving.date
            self._prefixes.clear()
        status = response.status
        prefix = self._prefixes.get(status)
        if prefix is None:
            prefix = self._prefixes[status] = self._encode_prefix(status)
        base = self._bases.get(response.base)
        if base is None:
            base = self._encode_base(response.base)
        block = prefix + _encode_string(request_id.encode()) + base
        if response.headers:
            block += self._encode_fields(response.headers)
        if length is not None:
            block += b"\x0f\x0d" + _encode_string(b"%d" % length)  # static entry 28
        return block

    def _encode_prefix(self, status: int) -> bytes:
        """Status, date, and the name of the request id that follows."""
        indexed = _STATIC_STATUSES.get(status)
        line = bytes((indexed,)) if indexed else b"\x08" + _encode_string(b"%d" % status)
        date = self._encode_fields(((b"date", self._date),))
        return line + date + self._encode_name(b"x-request-id")

    def _encode_base(self, base: HeaderBlock) -> bytes:
        encoded = self._encode_fields(base.pairs)
        if len(self._bases) >= CACHED_BASES_MAX:
            self._bases.clear()
        self._bases[base] = encoded
        return encoded

    def _encode_fields(self, fields: Iterable[Header]) -> bytes:
        names = self._names
        block = b""
        for name, value in fields:
            if b"\n" in value or b"\r" in value or b"\0" in value:
                raise ValueError("a response header contains a line break")
            encoded = names.get(name)
            if encoded is None:
                encoded = self._encode_name(name)
            if encoded:
                size = len(value)
                length = _LENGTHS[size] if size < 127 else _encode_integer(size, 7)
                block += encoded + length + value
        return block

    def _encode_name(self, name: bytes) -> bytes:
        """Empty for a name that HTTP/2 does not have."""
        lowered = name.lower()
        if lowered in CONNECTION_HEADERS:
            return b""
        if _TOKEN.fullmatch(lowered) is None:
            raise ValueError("a response header has an invalid name")
        index = _STATIC_NAMES.get(lowered)
        encoded = _encode_integer(index, 4) if index else b"\0" + _encode_string(lowered)
        if len(self._names) >= CACHED_NAMES_MAX:
            self._names.clear()
        self._names[name] = encoded
        return encoded
