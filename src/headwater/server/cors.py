"""Which web pages may use the server, when it is not every page: the setting `cors_origins`.

Dialects answer with constant headers that allow every origin. Where the operator allows fewer,
this rewrites each response on its way out; nothing of it runs under the default.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.core.pending import Pending
from headwater.dialects.common import ALLOW_ORIGIN
from headwater.wire.http import (
    Answer,
    Header,
    HeaderBlock,
    Request,
    Response,
    Route,
    StreamedResponse,
)

_CORS_PREFIX = b"access-control-"


class OriginPolicy:
    """Allows the origins listed, and no other."""

    def __init__(self, origins: str) -> None:
        self._origins = frozenset(item.encode().lower() for item in origins.split(",") if item)

    def apply(self, request: Request, outcome: Route | Response) -> Route | Response:
        """The same outcome, with what its answer says about origins put right."""
        if isinstance(outcome, Response):
            return self.dress(request, outcome)
        handle = outcome.handle

        def handle_and_dress(request: Request) -> Answer:
            answer = handle(request)
            if isinstance(answer, Pending):
                return answer.then(lambda response: self.dress(request, response))
            return self.dress(request, answer)

        return outcome.with_handle(handle_and_dress)

    def dress(self, request: Request | None, response: Response) -> Response:
        """A copy: the original may be a constant."""
        origin = request.headers.get(b"origin", b"") if request is not None else b""
        if origin.lower() in self._origins:
            base = [pair for pair in response.base.pairs if pair[0] != ALLOW_ORIGIN]
            base.append((ALLOW_ORIGIN, origin))
            headers = list(response.headers)
        else:
            base = _without_cors(response.base.pairs)
            headers = _without_cors(response.headers)
        base.append((b"vary", b"Origin"))  # caches must not mix the two
        block = HeaderBlock(base)
        if isinstance(response, StreamedResponse):
            return StreamedResponse(response.status, headers, response.start, base=block)
        return Response(response.status, headers, response.body, base=block)


def _without_cors(headers: Iterable[Header]) -> list[Header]:
    return [header for header in headers if not header[0].startswith(_CORS_PREFIX)]
