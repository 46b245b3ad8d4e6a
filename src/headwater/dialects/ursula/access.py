"""What a request below `/{bucket}` needs. See dialects/access.py for the table."""

from __future__ import annotations

from functools import lru_cache, partial

from headwater.core.access import Operation
from headwater.core.names import NameRules
from headwater.dialects.access import ALSO, Access, Need, verb
from headwater.dialects.durable.access import with_source
from headwater.dialects.durable.subscriptions import carries_own_token
from headwater.dialects.names import NAMES_CACHED_MAX
from headwater.dialects.ursula.errors import render_write_error
from headwater.dialects.ursula.rules import URSULA
from headwater.dialects.ursula.targets import Kind, parse_bucket, parse_target
from headwater.engine.engine import Engine
from headwater.wire.http import Request


def access_of(names: NameRules, engine: Engine) -> Access:
    return Access(partial(needs, names=names, engine=engine), render_write_error, is_open)


_OF_BUCKET = (Kind.BUCKET, Kind.STREAMS, Kind.SUBSCRIPTIONS)


def is_open(request: Request) -> bool:
    target = parse_target(request.path)
    return (
        target is not None
        and target.kind is Kind.SUBSCRIPTIONS
        and carries_own_token(request.method, target.rest)
    )


def needs(request: Request, names: NameRules, engine: Engine) -> tuple[Need, ...]:
    """Raises InvalidRequest where a name breaks a rule."""
    found = _needs(request.method, request.path, names)
    operation, bucket, _ = found[0]
    if operation is Operation.CREATE_STREAM and engine.bucket(bucket or "") is None:
        found = (*found, Need(Operation.CREATE_BASIN, bucket))
    return with_source(request, names, URSULA, found)


@lru_cache(maxsize=NAMES_CACHED_MAX)
def _needs(method: str, path: str, names: NameRules) -> tuple[Need, ...]:
    target = parse_target(path)
    assert target is not None, "the dialect took this path"
    operation = verb("ursula", target.kind.value, method)
    if target.kind not in _OF_BUCKET:
        return (Need(operation, *URSULA.parse_address(path, names)),)
    bucket = parse_bucket(target.bucket, names)
    found = (Need(operation, bucket),)
    if operation is Operation.CREATE_BASIN:
        return (*found, Need(ALSO[operation], bucket))
    return found
