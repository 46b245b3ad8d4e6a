"""May the token of a request do this, and which stream does it mean? S2 API: access tokens.

`authorize` judges what the path names, before any handler. A name in a body is judged by its
handler, with `require` or `own_stream`. A token with `auto_prefix_streams` leaves its prefix out
of every name it sends and gets: names are completed here, and shortened by `shown`.
"""

from __future__ import annotations

from headwater.core.access import TRAITS, About, Operation
from headwater.core.errors import InvalidRequest, PermissionDenied
from headwater.core.names import check_stream
from headwater.dialects.access import Access
from headwater.dialects.s2.errors import Refused, render_error
from headwater.dialects.s2.targets import Target
from headwater.wire.http import Request

S2_ACCESS = Access(needs=lambda request: (), render_error=render_error)
"""For the gate, which finds out who asks; the rest is done here."""

_INSTEAD = {
    Operation.APPEND: (Operation.APPEND, Operation.FENCE, Operation.TRIM),
}
"""Any of these opens the route: which of them a batch needs depends on its records."""

_ENSURED = {
    Operation.CREATE_BASIN: Operation.RECONFIGURE_BASIN,
    Operation.CREATE_STREAM: Operation.RECONFIGURE_STREAM,
}
"""PUT creates, or changes what is there: it needs both."""


def authorize(request: Request, name: str, target: Target) -> Target:
    """The target with its whole stream name. Raises PermissionDenied."""
    if request.grant is None:
        return target
    operation = Operation(name)
    about = TRAITS[operation].about
    if about is About.TOKEN:
        require(request, operation, token=target.name or None)
        return target
    stream = None
    if about is About.STREAM and target.name:
        stream = _whole(request, target.name, "bad_path")
        target = target._replace(name=stream)
    basin = target.basin or None
    permitted = _INSTEAD.get(operation, (operation,))
    if not any(request.grant.allows(each, basin=basin, stream=stream) for each in permitted):
        raise _denied(operation)
    if request.method == "PUT" and operation in _ENSURED:
        require(request, _ENSURED[operation], basin=basin, stream=stream)
    return target


def require(
    request: Request,
    operation: Operation,
    *,
    basin: str | None = None,
    stream: str | None = None,
    token: str | None = None,
) -> None:
    """Raises PermissionDenied. `stream` is a whole name."""
    grant = request.grant
    if grant is not None and not grant.allows(operation, basin=basin, stream=stream, token=token):
        raise _denied(operation)


def require_append(
    request: Request, target: Target, *, data: bool, fence: bool, trim: bool
) -> None:
    """May a batch with such records be appended? Raises PermissionDenied."""
    if request.grant is None:
        return
    contained = ((data, Operation.APPEND), (fence, Operation.FENCE), (trim, Operation.TRIM))
    for is_there, operation in contained:
        if is_there:
            require(request, operation, basin=target.basin, stream=target.name)


def own_stream(request: Request, operation: Operation, *, basin: str, name: str) -> str:
    """The whole name of a stream that a body names. Raises PermissionDenied, Refused."""
    if request.grant is None:
        return name
    name = _whole(request, name, "bad_json")
    require(request, operation, basin=basin, stream=name)
    return name


def stream_prefix(request: Request) -> str:
    """What the names that this client uses leave out."""
    return "" if request.grant is None else request.grant.stream_prefix


def shown(request: Request, name: str) -> str:
    """A stream's name as this client knows it."""
    return name.removeprefix(stream_prefix(request))


def sees_basin(request: Request, basin: str) -> bool:
    return request.grant is None or request.grant.allows(Operation.LIST_BASINS, basin=basin)


def _whole(request: Request, name: str, code: str) -> str:
    prefix = stream_prefix(request)
    if not prefix:
        return name
    try:
        return check_stream(prefix + name)
    except InvalidRequest:
        # What rule it breaks would tell about the prefix.
        raise Refused(code, "with the prefix of its token, this is no stream name") from None


def _denied(operation: Operation) -> PermissionDenied:
    return PermissionDenied(f"this token does not permit {operation.value}")
