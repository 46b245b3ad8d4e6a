"""One table from error to response, for the S2 API. S2 API: error codes.

A body is `{"code", "message"}`, or one of three facts without a code: the fencing token, the next
sequence number, the tail. The same bodies end a session as a terminal frame or an `error` event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from headwater.core.errors import (
    BucketDeleting,
    BucketExists,
    BucketNotFound,
    CipherExhausted,
    Conflict,
    ContentTypeMismatch,
    Corruption,
    DecryptionFailed,
    DiskFull,
    FencingTokenMismatch,
    ForkRefused,
    InvalidOffset,
    InvalidRecord,
    InvalidRequest,
    KeyRequired,
    NotFound,
    OffsetTrimmed,
    Overloaded,
    PermissionDenied,
    PreconditionFailed,
    ProducerFenced,
    ProducerGap,
    ReadOnly,
    SequenceRegression,
    StorageFailed,
    StreamClosed,
    StreamExists,
    StreamGone,
    StreamNotFound,
    TooManyRequests,
    Unauthenticated,
)
from headwater.dialects.common import CHALLENGE, ERROR_HEADERS
from headwater.wire.http import Header, Response
from headwater.wire.s2 import bodies
from headwater.wire.s2.records import Place

log = logging.getLogger("headwater.storage")

STATUSES: dict[str, int] = {
    "bad_header": 400,
    "bad_path": 400,
    "bad_query": 400,
    "bad_json": 400,
    "bad_proto": 400,
    "bad_frame": 400,
    "decryption_failed": 400,
    "authn": 401,
    "permission_denied": 403,
    "basin_not_found": 404,
    "stream_not_found": 404,
    "access_token_not_found": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "resource_already_exists": 409,
    "basin_deletion_pending": 409,
    "stream_deletion_pending": 409,
    "transaction_conflict": 409,
    "stream_closed": 409,
    "body_too_large": 413,
    "invalid": 422,
    "rate_limited": 429,
    "other": 500,
    "storage": 500,
    "not_implemented": 501,
    "hot_server": 502,
    "unavailable": 503,
    "server_draining": 503,
}
"""Every code that this server sends, with its status."""

_encode = msgspec.json.Encoder().encode


class Refused(Exception):
    """A request that this dialect turns down itself, by a code of the table above."""

    def __init__(self, code: str, message: str, *headers: Header) -> None:
        super().__init__(message)
        self.code = code
        self.headers = headers


class Unsatisfiable(Exception):
    """A read that can return no record. S2 API: read, "When reads return 416"."""

    def __init__(self, tail: Place) -> None:
        super().__init__(f"there is no record to read yet. tail={tail.seq}")
        self.tail = tail


Renderer = Callable[[Any], Response]


def error_response(code: str, message: str, *headers: Header) -> Response:
    body = _encode({"code": code, "message": message})
    return Response(STATUSES[code], headers, body, base=ERROR_HEADERS)


def _facts(status: int, facts: dict[str, object]) -> Response:
    return Response(status, (), _encode(facts), base=ERROR_HEADERS)


def _plain(code: str, *headers: Header) -> Renderer:
    return lambda error: error_response(code, str(error), *headers)


def _unnamed(code: str, message: str) -> Renderer:
    """For what would name a stream: its client asked for it by a name that may be shorter."""
    return lambda error: error_response(code, message)


def _refused(error: Refused) -> Response:
    return error_response(error.code, str(error), *error.headers)


def _unsatisfiable(error: Unsatisfiable) -> Response:
    return Response(416, (), bodies.encode_tail(error.tail), base=ERROR_HEADERS)


def _fencing_token_mismatch(error: FencingTokenMismatch) -> Response:
    return _facts(412, {"fencing_token_mismatch": error.actual})


def _seq_num_mismatch(error: PreconditionFailed) -> Response:
    return _facts(412, {"seq_num_mismatch": error.tail.seq})


def _too_many(error: TooManyRequests) -> Response:
    return refuse(429, str(error), ((b"retry-after", b"%d" % error.retry_after_s),))


_REFUSALS = {
    408: "request_timeout",
    413: "body_too_large",
    429: "rate_limited",
    500: "other",
    501: "not_implemented",
}


def refuse(status: int, message: str, headers: tuple[Header, ...]) -> Response:
    """What the server refuses by itself, in the form that this API has for it."""
    response = error_response(_REFUSALS.get(status, "bad_header"), message, *headers)
    response.status = status
    wait_s = dict(headers).get(b"retry-after")
    if wait_s is not None:  # the SDKs read it in milliseconds
        response.headers = (*headers, (b"retry-after-ms", b"%d" % (int(wait_s) * 1000)))
    return response


def _corruption(error: Corruption) -> Response:
    # The message names internal ids: it goes to the log, not to the client.
    log.error("stored data failed its checks: %s", error)
    return error_response("storage", "stored data failed its checks; see the log")


RENDERERS: dict[type[Exception], Renderer] = {
    Refused: _refused,
    Unsatisfiable: _unsatisfiable,
    StreamClosed: _plain("stream_closed"),
    ContentTypeMismatch: _plain("invalid"),
    PreconditionFailed: _seq_num_mismatch,
    InvalidRecord: _plain("invalid"),
    FencingTokenMismatch: _fencing_token_mismatch,
    KeyRequired: _plain("bad_header"),
    DecryptionFailed: _plain("decryption_failed"),
    CipherExhausted: _plain("invalid"),
    SequenceRegression: _plain("invalid"),
    ProducerFenced: _plain("invalid"),
    ProducerGap: _plain("invalid"),
    InvalidRequest: _plain("invalid"),
    InvalidOffset: _plain("invalid"),
    OffsetTrimmed: _plain("unavailable"),
    StreamNotFound: _unnamed("stream_not_found", "no such stream; create it first"),
    NotFound: _plain("basin_not_found"),
    Conflict: _plain("transaction_conflict"),
    BucketNotFound: _plain("basin_not_found"),
    BucketExists: _plain("resource_already_exists"),
    BucketDeleting: _plain("basin_deletion_pending"),
    StreamGone: _unnamed(
        "stream_deletion_pending", "this stream was deleted and is kept only for its forks"
    ),
    StreamExists: _unnamed("resource_already_exists", "the stream exists"),
    ForkRefused: _plain("invalid"),
    Unauthenticated: _plain("authn", CHALLENGE),
    PermissionDenied: _plain("permission_denied"),
    TooManyRequests: _too_many,
    Overloaded: _plain("hot_server"),
    ReadOnly: _plain("permission_denied"),
    DiskFull: _plain("unavailable"),
    StorageFailed: _plain("storage"),
    Corruption: _corruption,
}


def render_error(error: Exception) -> Response:
    """The response to an error of this table; others are raised again."""
    renderer = RENDERERS.get(type(error))
    if renderer is None:
        raise error
    return renderer(error)


def explain(error: Exception, logger: logging.Logger) -> Response:
    """What ends a session whose head has left: an error of ours is only logged."""
    if type(error) in RENDERERS:
        return render_error(error)
    logger.error("a session failed", exc_info=error)
    return error_response("other", "the server failed; see its log")
