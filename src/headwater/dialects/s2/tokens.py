"""Access tokens over HTTP: list, issue, revoke. S2 API: access tokens."""

from __future__ import annotations

import re
from typing import NoReturn

import msgspec

from headwater.core.access import Operation, Scope
from headwater.core.errors import Conflict, InvalidRequest, NotFound
from headwater.core.types import TimestampMs
from headwater.dialects.common import ERROR_HEADERS
from headwater.dialects.s2 import bodies
from headwater.dialects.s2.access import require
from headwater.dialects.s2.errors import Refused
from headwater.dialects.s2.routes import Handler
from headwater.dialects.s2.targets import Target
from headwater.engine.tokens import Asked, Page, StoredToken, Tokens, check_id
from headwater.wire.headers import parse_rfc3339, render_rfc3339
from headwater.wire.http import Answer, Request, Response

JSON_HEADERS = ERROR_HEADERS
"""JSON that nobody may store: there are secrets in it."""

_FINER = re.compile(r"\.\d{3}(\d{1,6})")
"""Of a timestamp, what follows its milliseconds."""

_encode = msgspec.json.Encoder().encode


class _Issue(msgspec.Struct):
    id: str
    scope: Scope
    expires_at: str | None = None
    auto_prefix_streams: bool | None = None


class TokenEndpoints:
    """The three rows of the table of routes."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def handlers(self) -> dict[tuple[str, str], Handler]:
        return {
            ("GET", "access-tokens"): self.list,
            ("POST", "access-tokens"): self.issue,
            ("DELETE", "access-tokens/{id}"): self.revoke,
        }

    def list(self, request: Request, target: Target) -> Answer:
        """GET /access-tokens."""
        asked = bodies.parse_page(request)
        page = self._tokens.page(
            prefix=asked.prefix,
            start_after=asked.start_after,
            limit=asked.limit,
            viewer=request.grant,
        )
        return _render_page(page)

    def issue(self, request: Request, target: Target) -> Answer:
        """POST /access-tokens."""
        asked = _parse_issue(request)
        require(request, Operation.ISSUE_ACCESS_TOKEN, token=asked.id)
        answer = self._tokens.issue(asked, request.grant)
        return answer.catch(_translate).then(
            lambda text: Response(201, (), _encode({"access_token": text}), base=JSON_HEADERS)
        )

    def revoke(self, request: Request, target: Target) -> Answer:
        """DELETE /access-tokens/{id}."""
        answer = self._tokens.revoke(target.name)
        return answer.catch(_translate).then(lambda _: Response(204, base=JSON_HEADERS))


def _translate(error: Exception) -> NoReturn:
    """What is in the way, or missing, is a token here."""
    if isinstance(error, Conflict):
        raise Refused("resource_already_exists", str(error))
    if isinstance(error, NotFound):
        raise Refused("access_token_not_found", str(error))
    raise error


def _parse_issue(request: Request) -> Asked:
    body = bodies.decode_json(request, _Issue)
    try:
        token_id = check_id(body.id)
        expires_at_ms: TimestampMs | None = None
        if body.expires_at is not None:
            expires_at_ms = parse_rfc3339(body.expires_at, field="expires_at")
    except InvalidRequest as error:
        raise Refused("bad_json", str(error)) from None
    for names in (body.scope.basins, body.scope.streams, body.scope.access_tokens):
        if names is not None and (names.exact is None) == (names.prefix is None):
            raise Refused("bad_json", "name resources by exact or by prefix, one of the two")
    finer = _FINER.search(body.expires_at or "")
    return Asked(
        token_id,
        body.scope,
        expires_at_ms,
        bool(body.auto_prefix_streams),
        finer[1] if finer else "",
    )


def _render_page(page: Page) -> Response:
    tokens = [_describe(token_id, token) for token_id, token in page.tokens]
    body = {"access_tokens": tokens, "has_more": page.has_more}
    return Response(200, (), _encode(body), base=JSON_HEADERS)


def _describe(token_id: str, token: StoredToken) -> dict[str, object]:
    """Everything but the secret, which nobody knows."""
    expires_at = None
    if token.expires_at_ms is not None:
        expires_at = render_rfc3339(token.expires_at_ms).decode()
        expires_at = expires_at.replace("Z", f"{token.expires_finer}Z")
    return {
        "id": token_id,
        "expires_at": expires_at,
        "auto_prefix_streams": token.auto_prefix,
        "scope": token.scope,
    }
