"""What every dialect answers alike: security and CORS headers, preflights, the error body, URLs.

The blocks are constants, so that a response costs nothing to dress. They allow every origin; a
server configured otherwise (`cors_origins`) changes them at its edge, and no dialect knows.
"""

from __future__ import annotations

import msgspec

from headwater.wire.http import Header, HeaderBlock, Request, Response

ALLOWED_HEADERS = (
    b"Content-Type",
    b"Content-Encoding",
    b"Authorization",
    b"Accept",
    b"Cache-Control",
    b"If-Match",
    b"If-None-Match",
    b"Last-Event-ID",
    b"Prefer",
    b"Stream-Append",
    b"Stream-Seq",
    b"Stream-TTL",
    b"Stream-TTL-Anchor",
    b"Stream-Retention",
    b"Stream-Expires-At",
    b"Stream-Closed",
    b"Stream-Forked-From",
    b"Stream-Fork-Offset",
    b"Stream-Fork-Sub-Offset",
    b"Stream-Attrs",
    b"Stream-Record-Match",
    b"Stream-Snapshot-Match",
    b"Stream-No-Touch",
    b"Producer-Id",
    b"Producer-Epoch",
    b"Producer-Seq",
    b"S2-Basin",
    b"S2-Format",
    b"S2-Encryption-Key",
    b"S2-Request-Token",
    b"S2-Stream-Config",
    b"X-Request-Id",
    b"Traceparent",
    b"Tracestate",
)
"""What a page may send. Fetch: a wildcard would leave out Authorization, so each is named."""

EXPOSED_HEADERS = b"*"
"""A page may see every header of an answer. A wildcard is enough because no request carries
credentials by cookie (Fetch §3.2.5), and it keeps half a KiB out of every acknowledgement."""

PREFLIGHT_MAX_AGE_S = 24 * 3600
"""How long a browser may remember a preflight. Browsers cap it themselves."""

ALLOW_ORIGIN = b"access-control-allow-origin"
EXPOSE_HEADERS = b"access-control-expose-headers"

ANY_ORIGIN: Header = (ALLOW_ORIGIN, b"*")
JSON_TYPE: Header = (b"content-type", b"application/json")
NO_STORE: Header = (b"cache-control", b"no-store")
CHALLENGE: Header = (b"www-authenticate", b"Bearer")
"""On every 401. RFC 6750 §3."""

SECURITY_HEADERS = HeaderBlock(
    (
        (b"x-content-type-options", b"nosniff"),
        (b"cross-origin-resource-policy", b"cross-origin"),
        ANY_ORIGIN,
        (EXPOSE_HEADERS, EXPOSED_HEADERS),
    )
)
"""On every response, errors included. PROTOCOL §12.7."""

ERROR_HEADERS = SECURITY_HEADERS.extended(JSON_TYPE, NO_STORE)
"""On every error, and on answers about the server itself."""

_PREFLIGHT_HEADERS = HeaderBlock(
    (
        *(pair for pair in SECURITY_HEADERS.pairs if pair[0] != EXPOSE_HEADERS),
        (b"access-control-allow-headers", b", ".join(ALLOWED_HEADERS)),
        (b"access-control-max-age", b"%d" % PREFLIGHT_MAX_AGE_S),
    )
)

_encode = msgspec.json.Encoder().encode


def error_body(code: str, message: str) -> bytes:
    """The body of an error in every dialect but S2's."""
    return _encode({"error": {"code": code, "message": message}})


def error_response(
    status: int, code: str, message: str, headers: tuple[Header, ...] = ()
) -> Response:
    return Response(status, headers, error_body(code, message), base=ERROR_HEADERS)


def preflight(methods: str) -> Response:
    """The answer to OPTIONS, a browser's question before the real request. 204, for a day."""
    allowed = methods.encode()
    headers = ((b"access-control-allow-methods", allowed), (b"allow", allowed))
    return Response(204, headers, base=_PREFLIGHT_HEADERS)


def base_url(request: Request, public_url: str) -> str:
    """Scheme and authority under which clients reach this server, without a slash at the end.

    `public_url` if the operator set it. Otherwise what the request itself says, in which case
    trusted proxies have been heard already.
    """
    if public_url:
        return public_url
    scheme = "https" if request.secure else "http"
    host = request.headers.get(b"host", b"") or b"localhost"
    return f"{scheme}://{host.decode('latin-1')}"
