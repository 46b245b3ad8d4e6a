"""Errors of the Ursula dialect: the base protocol's, but a read past the tail is 416."""

from __future__ import annotations

from headwater.core.errors import HeadwaterError, InvalidOffset
from headwater.dialects.common import error_response
from headwater.dialects.durable import errors as durable
from headwater.dialects.durable.responses import next_offset
from headwater.wire.http import Response


def _past_tail(error: InvalidOffset) -> Response:
    if error.tail is None:  # malformed
        return durable.render_error(error)
    return error_response(416, "invalid_offset", str(error), (next_offset(error.tail),))


RENDERERS: dict[type[HeadwaterError], durable.Renderer] = {
    **durable.RENDERERS,
    InvalidOffset: _past_tail,
}


def render_read_error(error: HeadwaterError) -> Response:
    return RENDERERS[type(error)](error)


render_write_error = durable.render_error
"""A fork offset past the source's tail is a bad header: 400. Ursula: create."""
