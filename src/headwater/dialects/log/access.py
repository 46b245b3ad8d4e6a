"""What a request of the native API needs. See dialects/access.py for the table."""

from __future__ import annotations

from functools import partial

from headwater.core.names import NameRules
from headwater.dialects.access import Access, Need, verb
from headwater.dialects.log.errors import render_error
from headwater.dialects.log.requests import parse_address
from headwater.dialects.log.routes import ROOT
from headwater.wire.http import Request


def access_of(names: NameRules) -> Access:
    return Access(partial(needs, names=names), render_error)


_FREE = "openapi.json"
"""What every valid token may see."""


def needs(request: Request, names: NameRules) -> list[Need]:
    """Raises InvalidRequest where a name breaks a rule."""
    resource, _, raw = request.path[len(ROOT) + 1 :].partition("/")
    if resource == _FREE:
        return []
    operation = verb("log", resource, request.method)
    address = parse_address(raw, names) if raw else None
    # Lists show what the token may see, so they need no bucket; a path without names is a 404.
    return [Need(operation)] if address is None else [Need(operation, *address)]
