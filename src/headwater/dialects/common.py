"""What every HTTP answer shares: security and CORS headers, the error body, preflight."""

from __future__ import annotations

import msgspec

from headwater.wire.http import Header, HeaderBlock, Response

NO_STORE: Header = (b"cache-control", b"no-store")

ALLOWED_HEADERS = (
    b"Content-Type, Authorization, If-None-Match, If-Match, Accept, Last-Event-ID, Stream-Seq, "
    b"Stream-TTL, Stream-Expires-At, Stream-TTL-Anchor, Stream-Closed, Stream-Forked-From, "
    b"Stream-Fork-Offset, Stream-Fork-Sub-Offset, Stream-Attrs, Stream-No-Touch, Producer-Id, "
    b"Producer-Epoch, Producer-Seq, Traceparent, X-Request-Id"
)
EXPOSED_HEADERS = (
    b"Stream-Next-Offset, Stream-Up-To-Date, Stream-Closed, Stream-Cursor, Stream-TTL, "
    b"Stream-Expires-At, Stream-TTL-Remaining, Stream-TTL-Anchor, Stream-SSE-Data-Encoding, "
    b"Producer-Epoch, Producer-Seq, Producer-Expected-Seq, Producer-Received-Seq, ETag, "
    b"Location, Retry-After, X-Request-Id"
)

SECURITY_HEADERS = HeaderBlock(
    (
        (b"x-content-type-options", b"nosniff"),
        (b"cross-origin-resource-policy", b"cross-origin"),
        (b"access-control-allow-origin", b"*"),
        (b"access-control-expose-headers", EXPOSED_HEADERS),
    )
)


def error_body(code: str, message: str) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": message}})


def preflight(methods: str) -> Response:
    """The answer to OPTIONS: anybody may call, with the headers of the protocols."""
    return Response(
        204,
        (
            (b"allow", methods.encode()),
            (b"access-control-allow-methods", methods.encode()),
            (b"access-control-allow-headers", ALLOWED_HEADERS),
            (b"access-control-max-age", b"86400"),
        ),
        base=SECURITY_HEADERS,
    )
