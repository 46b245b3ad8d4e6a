"""Turns HTTP/2 on for a server: connections that open with its preface, or negotiated `h2`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headwater.server.http2_connection import Http2Connection
from headwater.server.http2_headers import HeadEncoder
from headwater.server.serving import Serving


def serve_http2(serving: Serving, call_soon: Callable[[Callable[[], None]], object]) -> None:
    """HTTP/1.1 hands such connections over; sweeps and drains reach them through `serving`."""
    serving.h2_factory = partial(Http2Connection, serving, HeadEncoder(serving), call_soon)
