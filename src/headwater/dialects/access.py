"""Which operation each request of the dialects is, and what it needs.

`VERBS` is the one table: the verbs of every HTTP API but S2's, whose routes carry the names of
their operations. `docs/auth.md` shows it; a test walks all routes and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headwater.core.access import Grant, Operation
from headwater.core.errors import (
    HeadwaterError,
    NotFound,
    PermissionDenied,
    StreamNotFound,
    Unauthenticated,
)
from headwater.core.globs import Glob
from headwater.core.types import TimestampMs
from headwater.engine.listing import Selection
from headwater.engine.subscription_entry import Entry
from headwater.wire.http import Request, Response


class Need(NamedTuple):
    """One thing that the token of a request has to permit."""

    operation: Operation
    bucket: str | None = None
    stream: str | None = None


_STREAM = {
    "PUT": Operation.CREATE_STREAM,
    "POST": Operation.APPEND,
    "DELETE": Operation.DELETE_STREAM,
    "PATCH": Operation.RECONFIGURE_STREAM,
    "GET": Operation.READ,
    "HEAD": Operation.CHECK_TAIL,
}
_SUBSCRIPTIONS = dict.fromkeys(("GET", "HEAD", "PUT", "POST", "DELETE"), Operation.READ)


def _reading(operation: Operation, **writing: Operation) -> dict[str, Operation]:
    return {"GET": operation, "HEAD": operation, **writing}


VERBS: dict[str, dict[str, dict[str, Operation]]] = {
    "durable": {
        "stream": _STREAM,
        "__ds": _SUBSCRIPTIONS,
    },
    "ursula": {
        "bucket": _reading(
            Operation.GET_BASIN_CONFIG,
            PUT=Operation.CREATE_BASIN,
            DELETE=Operation.DELETE_BASIN,
        ),
        "streams": _reading(Operation.LIST_STREAMS),
        "stream": _STREAM,
        "attrs": _reading(Operation.GET_STREAM_CONFIG, PUT=Operation.RECONFIGURE_STREAM),
        "bootstrap": _reading(Operation.READ),
        "append-batch": {"POST": Operation.APPEND},
        "snapshot": _reading(Operation.READ, PUT=Operation.APPEND, DELETE=Operation.APPEND),
        "retention": {"PUT": Operation.TRIM},
        "__ds": _SUBSCRIPTIONS,
    },
    "log": {
        "streams": _reading(Operation.LIST_STREAMS),
        "records": _reading(Operation.READ, POST=Operation.APPEND),
        "trim": {"POST": Operation.TRIM},
        "info": _reading(Operation.GET_STREAM_CONFIG),
        "stats": _reading(Operation.ACCOUNT_METRICS),
        "backup": _reading(Operation.READ),  # and everything else, see the route
    },
    "pages": {
        "/metrics": _reading(Operation.ACCOUNT_METRICS),
    },
}
"""By dialect, resource and method."""

ALSO: dict[Operation, Operation] = {
    Operation.CREATE_STREAM: Operation.APPEND,  # a create that brings data, or closes
    Operation.CREATE_BASIN: Operation.RECONFIGURE_BASIN,  # a PUT that may find it there
}
"""What else such a request may need."""


@dataclass(frozen=True, slots=True)
class Access:
    """What the gate has to know about one HTTP API."""

    needs: Callable[[Request], Sequence[Need]]
    """What a request needs besides a valid token. Raises what its route would."""
    render_error: Callable[[HeadwaterError], Response]
    is_open: Callable[[Request], bool] = lambda request: False
    """Does it need no token, or carry one of another kind?"""


def verb(dialect: str, resource: str, method: str) -> Operation:
    """Raises PermissionDenied for what is not in the table: what nobody thought of is closed."""
    found = VERBS[dialect].get(resource, {}).get(method)
    if found is None:
        raise PermissionDenied(f"no token permits {method} here")
    return found


def require(request: Request, needs: Iterable[Need]) -> None:
    """Raises PermissionDenied unless the token of the request permits all of it."""
    grant = request.grant
    if grant is None:
        return
    for operation, bucket, stream in needs:
        if not grant.allows(operation, basin=bucket, stream=stream):
            raise PermissionDenied(
                f"this token does not permit {operation.value}", bucket=bucket, stream=stream
            )


def may_read_all(grant: Grant, bucket: str, pattern: str | None, names: Iterable[str]) -> bool:
    """Every stream of these names, and every one that the pattern could ever match?"""
    if not all(grant.allows(Operation.READ, basin=bucket, stream=name) for name in names):
        return False
    if pattern is None:
        return True
    return all(
        grant.allows_all(Operation.READ, basin=bucket, prefix=prefix)
        if is_prefix
        else grant.allows(Operation.READ, basin=bucket, stream=prefix)
        for prefix, is_prefix in Glob(pattern).reach()
    )


def may_know(grant: Grant | None, entry: Entry) -> bool:
    """A subscription is of those who can read all the streams that it watches."""
    if grant is None:
        return True
    bucket, names = entry.subscription.bucket, entry.links.explicit_names()
    return may_read_all(grant, bucket, entry.subscription.pattern, names)


def narrow(selection: Selection, grant: Grant | None) -> Selection:
    """Those of the streams that a client with this grant may know of. The others are not even
    looked at, as far as names tell."""
    if grant is None:
        return selection
    return selection._replace(
        bucket=grant.only_basin if selection.bucket is None else selection.bucket,
        prefix=grant.narrow(selection.prefix),
        sees=grant.sees,
    )


def require_live(request: Request, now_ms: TimestampMs) -> None:
    """For what goes on after it was admitted. Raises Unauthenticated once the token is over."""
    if request.grant is not None and request.grant.is_over(now_ms):
        raise Unauthenticated("the access token was revoked or has expired")


def hide(error: PermissionDenied) -> HeadwaterError:
    """What is said in place of "forbidden": the same as if it were not there."""
    if error.stream is not None:
        return StreamNotFound(error.stream)
    if error.bucket is not None:
        return NotFound(f"no such bucket. bucket={error.bucket}")
    return NotFound("there is nothing at this path")
