"""One table from error class to response, for the native API. Facts are in headers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

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
    HeadwaterError,
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
from headwater.core.types import Position
from headwater.dialects import common
from headwater.dialects.access import hide
from headwater.wire.arrow_check import TooLarge
from headwater.wire.http import Header, Response

log = logging.getLogger("headwater.storage")

VERSION: Header = (b"log-version", b"1")
"""On every answer of this API, errors included."""

Renderer = Callable[[Any], Response]


def error_response(status: int, code: str, message: str, *headers: Header) -> Response:
    return common.error_response(status, code, message, (VERSION, *headers))


def tail_seq(tail: Position) -> Header:
    return (b"log-tail-seq", b"%d" % tail.seq)


def first_seq(first: Position) -> Header:
    return (b"log-first-seq", b"%d" % first.seq)


def _plain(status: int, code: str, *headers: Header) -> Renderer:
    def render(error: HeadwaterError) -> Response:
        return error_response(status, code, str(error), *headers)

    return render


def _closed(error: StreamClosed) -> Response:
    return error_response(409, "stream_closed", str(error), tail_seq(error.tail))


def _precondition(error: PreconditionFailed) -> Response:
    return error_response(412, "precondition_failed", str(error), tail_seq(error.tail))


def _fenced(error: ProducerFenced) -> Response:
    current = (b"producer-epoch", b"%d" % error.current)
    return error_response(403, "producer_fenced", str(error), current)


def _gap(error: ProducerGap) -> Response:
    return error_response(
        409,
        "producer_gap",
        str(error),
        (b"producer-expected-seq", b"%d" % error.expected),
        (b"producer-received-seq", b"%d" % error.received),
    )


def _range(error: InvalidOffset) -> Response:
    if error.tail is None:
        return error_response(400, "invalid_request", str(error))
    return error_response(416, "range_not_satisfiable", str(error), tail_seq(error.tail))


def _trimmed(error: OffsetTrimmed) -> Response:
    message = f"the records before {error.first.seq} are no longer retained; begin there"
    return error_response(410, "offset_trimmed", message, first_seq(error.first))


def _too_many(error: TooManyRequests) -> Response:
    retry = (b"retry-after", b"%d" % error.retry_after_s)
    return error_response(429, "too_many_requests", str(error), retry)


def _corruption(error: Corruption) -> Response:
    # The message names internal ids: it goes to the log, not to the client.
    log.error("stored data failed its checks: %s", error)
    return error_response(500, "corruption", "stored data failed its checks; see the log")


_RETRY_SOON = (b"retry-after", b"1")

RENDERERS: dict[type[Exception], Renderer] = {
    StreamClosed: _closed,
    ContentTypeMismatch: _plain(409, "content_type_mismatch"),
    PreconditionFailed: _precondition,
    InvalidRecord: _plain(422, "invalid_record"),
    FencingTokenMismatch: _plain(412, "fencing_token_mismatch"),
    KeyRequired: _plain(400, "key_required"),
    DecryptionFailed: _plain(400, "decryption_failed"),
    CipherExhausted: _plain(422, "cipher_exhausted"),
    SequenceRegression: _plain(409, "sequence_regression"),
    ProducerFenced: _fenced,
    ProducerGap: _gap,
    InvalidRequest: _plain(400, "invalid_request"),
    InvalidOffset: _range,
    OffsetTrimmed: _trimmed,
    StreamNotFound: _plain(404, "stream_not_found"),
    NotFound: _plain(404, "not_found"),
    Conflict: _plain(409, "conflict"),
    BucketNotFound: _plain(404, "bucket_not_found"),
    BucketExists: _plain(409, "bucket_exists"),
    BucketDeleting: _plain(409, "bucket_deleting"),
    StreamGone: _plain(410, "stream_gone"),
    StreamExists: _plain(409, "stream_exists"),
    ForkRefused: _plain(409, "fork_refused"),
    Unauthenticated: _plain(401, "unauthenticated", common.CHALLENGE),
    PermissionDenied: lambda error: render_error(hide(error)),
    TooManyRequests: _too_many,
    Overloaded: _plain(503, "overloaded", _RETRY_SOON),
    ReadOnly: _plain(405, "read_only", (b"allow", b"GET, HEAD, OPTIONS")),
    DiskFull: _plain(507, "disk_full"),
    StorageFailed: _plain(503, "storage_failed"),
    Corruption: _corruption,
    TooLarge: _plain(413, "body_too_large"),
}


def render_error(error: Exception) -> Response:
    """The response to an error of this table; others are raised again."""
    renderer = RENDERERS.get(type(error))
    if renderer is None:
        raise error
    return renderer(error)
