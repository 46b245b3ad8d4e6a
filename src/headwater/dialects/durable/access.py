"""What a request to a stream, or to subscriptions, needs. See dialects/access.py for the table."""

from __future__ import annotations

from functools import lru_cache, partial

from headwater.core.access import Operation
from headwater.core.names import DURABLE_STREAMS_BUCKET, NameRules
from headwater.dialects.access import ALSO, Access, Need, require, verb
from headwater.dialects.durable.errors import render_error
from headwater.dialects.durable.rules import DURABLE, ROOT, Address, DialectRules
from headwater.dialects.durable.subscriptions import carries_own_token
from headwater.dialects.names import NAMES_CACHED_MAX
from headwater.wire.http import Request

SUBSCRIPTIONS_ROOT = f"{ROOT}/__ds/"


def access_of(names: NameRules) -> Access:
    return Access(partial(needs, names=names), render_error, is_open)


def is_open(request: Request) -> bool:
    path = request.path
    return path.startswith(SUBSCRIPTIONS_ROOT) and carries_own_token(
        request.method, path[len(SUBSCRIPTIONS_ROOT) :]
    )


def needs(request: Request, names: NameRules) -> tuple[Need, ...]:
    """Raises InvalidRequest where a name breaks a rule."""
    return with_source(request, names, DURABLE, _needs(request.method, request.path, names))


@lru_cache(maxsize=NAMES_CACHED_MAX)
def _needs(method: str, path: str, names: NameRules) -> tuple[Need, ...]:
    if path.startswith(SUBSCRIPTIONS_ROOT):
        # Which streams it is about is in the body, or in the subscription: judged there.
        return (Need(verb("durable", "__ds", method), DURABLE_STREAMS_BUCKET),)
    return (Need(verb("durable", "stream", method), *DURABLE.parse_address(path, names)),)


def with_source(
    request: Request, names: NameRules, rules: DialectRules, found: tuple[Need, ...]
) -> tuple[Need, ...]:
    """A fork shows what its source holds, so whoever makes one must be able to read that."""
    if request.method != "PUT" or b"stream-forked-from" not in request.headers:
        return found
    source = request.headers[b"stream-forked-from"].decode("latin-1")
    return (*found, Need(Operation.READ, *rules.parse_source(source, names)))


def require_content(request: Request, address: Address) -> None:
    """A create that brings data, or closes what it creates, is an append too."""
    if request.grant is not None and (request.body or b"stream-closed" in request.headers):
        require(request, [Need(ALSO[Operation.CREATE_STREAM], *address)])
