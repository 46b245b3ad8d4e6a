"""Routes of the subscriptions at {root}/__ds/…: parse, one call, render. PROTOCOL §6, §7.

Written for any root: the bucket, and the URL under which clients reach its stream root, come in
as arguments. Paths in bodies are stream names relative to that root.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from headwater.core import subscription_config as config
from headwater.core.access import Operation
from headwater.core.errors import PermissionDenied
from headwater.core.pending import Pending
from headwater.core.subscription_config import Code, SubscriptionError, refuse
from headwater.core.types import TimestampMs
from headwater.dialects.access import Need, may_know, may_read_all, require
from headwater.dialects.common import CHALLENGE, ERROR_HEADERS, SECURITY_HEADERS, error_response
from headwater.engine.subscriptions import Acked, Claimed, Subscriptions, View
from headwater.wire.headers import render_rfc3339
from headwater.wire.http import Request, Response

BODY_BYTES_MAX = 1 << 20
PAGE_MAX = 1_000

STATUS = {
    Code.INVALID_REQUEST: 400,
    Code.WEBHOOK_URL_REJECTED: 400,
    Code.TOKEN_INVALID: 401,
    Code.TOKEN_EXPIRED: 401,
    Code.SUBSCRIPTION_NOT_FOUND: 404,
    Code.SUBSCRIPTION_ALREADY_EXISTS: 409,
    Code.FENCED: 409,
    Code.ALREADY_CLAIMED: 409,
    Code.NO_PENDING_WORK: 409,
    Code.INVALID_OFFSET: 409,
}
JWKS_HEADERS = SECURITY_HEADERS.extended(
    (b"content-type", b"application/jwk-set+json"), (b"cache-control", b"public, max-age=300")
)
JSON_HEADERS = ERROR_HEADERS
"""JSON that nobody may store, as errors have it."""

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_OWN_TOKEN = re.compile(r"subscriptions/[^/]+/(?:callback|ack|release)\Z")
_encode = msgspec.json.Encoder().encode

Answer = Response | Pending[Response]


class Call(NamedTuple):
    """One request: who is asked, about what, by whom."""

    subscriptions: Subscriptions
    bucket: str
    root_url: str
    request: Request
    id: str = ""
    path: str = ""
    """The stream that the URL names."""


Handler = Callable[[Call], Answer]


def route(
    subscriptions: Subscriptions, *, bucket: str, root_url: str, request: Request, tail: str
) -> Answer:
    """Answer a request to `{root}/__ds/{tail}`; `tail` is as it came, percent-encoded.

    Errors of subscriptions are rendered here; those of the engine are left to the dialect.
    """
    try:
        found = _find(tail)
        if found is None:
            return error_response(404, "not_found", "there is nothing at this path below __ds")
        methods, subscription_id, path = found
        # The server leaves the body out of what answers HEAD.
        handler = methods.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            return _not_allowed(methods)
        call = Call(subscriptions, bucket, root_url, request, subscription_id, path)
        _check_known(call)
        answer = handler(call)
    except SubscriptionError as error:
        return render_error(error)
    return answer.catch(_catch) if isinstance(answer, Pending) else answer


def carries_own_token(method: str, tail: str) -> bool:
    """Is this a request whose Authorization is a wake's token, or that needs none at all?

    The server's own access check has to let these pass. PROTOCOL §6.5, §12.9.
    """
    if method == "POST":
        return _OWN_TOKEN.match(tail) is not None
    return method in ("GET", "HEAD") and tail == "jwks.json"


def _find(tail: str) -> tuple[dict[str, Handler], str, str] | None:
    """The handlers at a path, the subscription's id and the stream in it."""
    if tail == "jwks.json":
        return {"GET": _jwks}, "", ""
    collection, _, rest = tail.partition("/")
    if collection != "subscriptions":
        return None
    if not rest:
        return ({"GET": _list}, "", "") if tail == collection else None
    raw_id, _, action = rest.partition("/")
    action, _, raw_path = action.partition("/")
    methods = _METHODS.get((action, bool(raw_path)))
    if methods is None:
        return None
    path = config.relative(_decode(raw_path)) if raw_path else ""
    return methods, config.check_id(_decode(raw_id)), path


def _decode(raw: str) -> str:
    if _BAD_ESCAPE.search(raw):
        refuse("the path has a % that is not followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        refuse("the path is not valid UTF-8")


def _parse_token(request: Request) -> str:
    """Tokens come in the Authorization header only, never in a URL. PROTOCOL §12.9."""
    scheme, _, token = request.headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise SubscriptionError(
            Code.TOKEN_INVALID, "send the token of the wake as Authorization: Bearer <token>"
        )
    return token.strip()


# -- access: a subscription is of those who can read all the streams that it watches


def _check_known(call: Call) -> None:
    """To those who may not read its streams, a subscription is not there."""
    entry = call.subscriptions.registry.find(call.bucket, call.id)
    if entry is not None and not may_know(call.request.grant, entry):
        raise SubscriptionError(Code.SUBSCRIPTION_NOT_FOUND, f"no such subscription. id={call.id}")


def _require_streams(call: Call, names: Iterable[str], pattern: str | None = None) -> None:
    """Raises PermissionDenied, which tells nothing of the streams."""
    grant = call.request.grant
    if grant is not None and not may_read_all(grant, call.bucket, pattern, names):
        raise PermissionDenied("this token does not permit to read all these streams")


# -- handlers


def _put(call: Call) -> Answer:
    asked = config.parse_config(call.request.body)
    _require_streams(call, asked.streams, asked.pattern)
    if asked.wake_stream is not None:
        require(call.request, [Need(Operation.APPEND, call.bucket, asked.wake_stream)])
    answer = call.subscriptions.put(call.bucket, call.id, asked, root_url=call.root_url)
    return answer.then(lambda view: _render_view(view, call.root_url))


def _get(call: Call) -> Answer:
    answer = call.subscriptions.get(call.bucket, call.id)
    return answer.then(lambda view: _render_view(view, call.root_url))


def _delete(call: Call) -> Answer:
    return call.subscriptions.delete(call.bucket, call.id).then(_no_content)


def _list(call: Call) -> Answer:
    query = dict(parse_qsl(call.request.query))
    limit = query.get("limit", str(PAGE_MAX))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and int(limit)):
        refuse("limit is a number from 1")
    count = min(int(limit), PAGE_MAX)
    grant = call.request.grant
    answer = call.subscriptions.page(
        call.bucket,
        after=query.get("after", ""),
        count_max=count + 1,
        shows=lambda entry: may_know(grant, entry),
    )
    return answer.then(lambda views: _render_page(views, count, call.root_url))


def _add_streams(call: Call) -> Answer:
    names = config.parse_streams(call.request.body)
    _require_streams(call, names)
    return call.subscriptions.add_streams(call.bucket, call.id, names).then(_no_content)


def _remove_stream(call: Call) -> Answer:
    return call.subscriptions.remove_stream(call.bucket, call.id, call.path).then(_no_content)


def _claim(call: Call) -> Answer:
    worker = config.parse_worker(call.request.body)
    return call.subscriptions.claim(call.bucket, call.id, worker).then(_render_json)


def _callback(call: Call) -> Answer:
    token, body = _parse_token(call.request), config.parse_ack(call.request.body)
    return call.subscriptions.callback(call.bucket, call.id, token, body).then(_render_json)


def _ack(call: Call) -> Answer:
    token, body = _parse_token(call.request), config.parse_ack(call.request.body)
    return call.subscriptions.ack(call.bucket, call.id, token, body).then(_render_json)


def _release(call: Call) -> Answer:
    token, body = _parse_token(call.request), config.parse_ack(call.request.body)
    return call.subscriptions.release(call.bucket, call.id, token, body).then(_no_content)


def _jwks(call: Call) -> Answer:
    return call.subscriptions.jwks().then(
        lambda keys: Response(200, (), _encode(keys), base=JWKS_HEADERS)
    )


_METHODS: dict[tuple[str, bool], dict[str, Handler]] = {
    ("", False): {"GET": _get, "PUT": _put, "DELETE": _delete},
    ("streams", False): {"POST": _add_streams},
    ("streams", True): {"DELETE": _remove_stream},
    ("callback", False): {"POST": _callback},
    ("claim", False): {"POST": _claim},
    ("ack", False): {"POST": _ack},
    ("release", False): {"POST": _release},
}
"""By what follows the id, and whether a stream's name follows that."""


# -- answers


def render_error(error: SubscriptionError) -> Response:
    status = STATUS[error.code]
    body = {"error": {"code": error.code.value, "message": str(error), **error.details}}
    headers = (CHALLENGE,) if status == 401 else ()
    return Response(status, headers, _encode(body), base=ERROR_HEADERS)


def _catch(error: Exception) -> Response:
    if isinstance(error, SubscriptionError):
        return render_error(error)
    raise error


def _not_allowed(methods: dict[str, Handler]) -> Response:
    allowed = ", ".join(methods).replace("GET", "GET, HEAD")
    allow = (b"allow", allowed.encode())
    return error_response(405, "method_not_allowed", f"this path takes {allowed}", (allow,))


def _no_content(_: None) -> Response:
    return Response(204, base=SECURITY_HEADERS)


def _render_json(answer: Acked | Claimed) -> Response:
    return Response(200, (), _encode(answer), base=JSON_HEADERS)


def _render_view(view: View, root_url: str) -> Response:
    """201 for a new subscription, 200 for one that was there. PROTOCOL §6.2, §6.3."""
    body = _describe(view, root_url)
    body["streams"] = [
        {"path": info.path, "link_type": info.link_type, "acked_offset": info.acked_offset}
        for info in sorted(view.streams, key=lambda info: info.path)
    ]
    return Response(201 if view.created else 200, (), _encode(body), base=JSON_HEADERS)


def _render_page(views: list[View], count: int, root_url: str) -> Response:
    shown = [_describe(view, root_url) for view in views[:count]]
    body = {"subscriptions": shown, "has_more": len(views) > count}
    return Response(200, (), _encode(body), base=JSON_HEADERS)


def _describe(view: View, root_url: str) -> dict[str, object]:
    """What everybody may know of a subscription: no key, no token. PROTOCOL §6.3.

    The protocol's fields first, then ours: counts, and how its delivery goes.
    """
    subscription = view.subscription
    webhook: dict[str, object] | None = None
    if subscription.webhook_url is not None:
        signing = {"alg": "ed25519", "kid": view.kid, "jwks_url": f"{root_url}/__ds/jwks.json"}
        webhook = {"url": subscription.webhook_url, "signing": signing}
    return {
        "id": subscription.id,
        "subscription_id": subscription.id,
        "type": subscription.type,
        "pattern": subscription.pattern,
        "webhook": webhook,
        "wake_stream": subscription.wake_stream,
        "lease_ttl_ms": subscription.lease_ttl_ms,
        "created_at": _time(subscription.created_at_ms),
        "status": subscription.status,
        "description": subscription.description,
        "stream_count": view.stream_count,
        "pending_count": view.pending_count,
        "generation": subscription.generation,
        "holder": subscription.holder,
        "lease_expires_at": _time(subscription.lease_until_ms),
        "failed_attempts": subscription.attempts,
        "next_attempt_at": _time(subscription.next_attempt_at_ms),
        "last_error": subscription.last_error or None,
    }


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else render_rfc3339(TimestampMs(at_ms)).decode()
