"""Errors of the Ursula dialect: the base protocol's, but a read past the tail is 416, and what
depends on record numbers tells them.
"""

from __future__ import annotations

from headwater.core.errors import (
    HeadwaterError,
    InvalidOffset,
    InvalidRequest,
    OffsetTrimmed,
    PreconditionFailed,
    RecordRange,
)
from headwater.dialects.common import error_response
from headwater.dialects.durable import errors as durable
from headwater.dialects.durable.responses import next_offset
from headwater.dialects.ursula.records import NUMBERED, record_first, record_next
from headwater.wire.http import Response


def _past_tail(error: InvalidOffset) -> Response:
    if error.tail is None:  # malformed
        return durable.render_error(error)
    return error_response(416, "invalid_offset", str(error), (next_offset(error.tail),))


def _no_such_record(error: InvalidRequest | OffsetTrimmed) -> Response:
    return _with_records(durable.render_error(error), error.records)


def _with_records(response: Response, records: RecordRange | None) -> Response:
    if records is not None:
        found = (record_first(records.first), record_next(records.next), NUMBERED)
        response.headers = [*response.headers, *found]
    return response


def _precondition(error: PreconditionFailed) -> Response:
    response = durable.render_error(error)
    if error.message_next is not None:
        response.headers = [*response.headers, NUMBERED]
    return response


WRITE_RENDERERS: dict[type[HeadwaterError], durable.Renderer] = {
    **durable.RENDERERS,
    InvalidRequest: _no_such_record,
    OffsetTrimmed: _no_such_record,
    PreconditionFailed: _precondition,
}
"""A fork offset past the source's tail is a bad header: 400. Ursula: create."""

RENDERERS: dict[type[HeadwaterError], durable.Renderer] = {
    **WRITE_RENDERERS,
    InvalidOffset: _past_tail,
}


def render_read_error(error: HeadwaterError) -> Response:
    return RENDERERS[type(error)](error)


def render_write_error(error: HeadwaterError) -> Response:
    return WRITE_RENDERERS[type(error)](error)
