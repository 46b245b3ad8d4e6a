"""The gate before every HTTP API when the setting `auth` is on. Without it none of this runs.

Who asks is found out here, by the `Authorization` header; what they may do is judged by what each
dialect says a request needs. Whatever lasts, a live response or a session, ends soon after its
token does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from headwater.core.access import Grant
from headwater.core.errors import HeadwaterError, Unauthenticated
from headwater.core.pending import Pending
from headwater.dialects.access import Access, Need, require, verb
from headwater.dialects.durable.errors import render_error
from headwater.engine.clock import Clock
from headwater.engine.tokens import Tokens
from headwater.wire.http import Answer, BodyWriter, Request, Response, Route, StreamedResponse

log = logging.getLogger("headwater.server")

SWEEP_S = 5.0
"""How often live responses are compared with their tokens. One whose token is over is asked to
end at the first look, and cut at the next."""

ROUTES_MAX = 1000

N = TypeVar("N")
"""None, for an API that may decline."""

PAGES = Access(
    needs=lambda request: [Need(verb("pages", request.path, request.method))],
    render_error=render_error,
)


class Gate:
    """Lets requests pass, or answers them in the words of their dialect."""

    def __init__(self, tokens: Tokens, clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock
        self._watched: dict[Route, Route] = {}
        """Made once: dialects have a few routes each."""
        self._live: dict[Grant, set[BodyWriter]] = {}
        self._asked: set[BodyWriter] = set()
        """Responses that were asked to end, and have one more sweep to do so."""
        self._sweeping = False

    def guard(
        self, begin: Callable[[Request], Route | Response | N], access: Access
    ) -> Callable[[Request], Route | Response | N]:
        """`begin`, for those who may. It must only choose a route, and do nothing yet."""

        def guarded(request: Request) -> Route | Response | N:
            outcome = begin(request)
            if request.method == "OPTIONS" or access.is_open(request):
                return outcome
            try:
                request.grant = self._tokens.authenticate(request.headers.get(b"authorization"))
            except Unauthenticated as error:
                return access.render_error(error)
            if not isinstance(outcome, Route):
                return outcome
            try:
                require(request, access.needs(request))
            except HeadwaterError as error:
                return _refuse(outcome, access.render_error(error))
            return self._watched.get(outcome) or self._watch_route(outcome)

        return guarded

    # -- what lasts

    def _watch_route(self, route: Route) -> Route:
        """The same route, whose live responses end with their token."""

        def handle(request: Request) -> Answer:
            answer, grant = route.handle(request), request.grant
            assert grant is not None
            if isinstance(answer, Pending):
                return answer.then(partial(self._watch, grant=grant))
            return self._watch(answer, grant)

        watched = route.with_handle(handle)
        if len(self._watched) < ROUTES_MAX:
            self._watched[route] = watched
        return watched

    def _watch(self, response: Response, grant: Grant) -> Response:
        if not isinstance(response, StreamedResponse):
            return response

        def start(writer: BodyWriter) -> None:
            self._live.setdefault(grant, set()).add(writer)
            if not self._sweeping:
                self._sweeping = True
                self._clock.call_later(SWEEP_S, self._sweep)
            response.start(writer)

        return StreamedResponse(response.status, response.headers, start, base=response.base)

    def _sweep(self) -> None:
        now_ms = self._clock.now_ms()
        asked, self._asked = self._asked, set()
        for grant, writers in tuple(self._live.items()):
            going_on = {writer for writer in writers if _goes_on(writer)}
            self._live[grant] = going_on
            if not going_on:
                del self._live[grant]
            elif grant.is_over(now_ms):
                for writer in going_on:
                    self._end(writer, cut=writer in asked)
        self._sweeping = bool(self._live)
        if self._sweeping:
            self._clock.call_later(SWEEP_S, self._sweep)

    def _end(self, writer: BodyWriter, *, cut: bool) -> None:
        """As on a shutdown: the client comes back, and is refused then."""
        try:
            if cut:
                writer.abort()
            elif writer.on_shutdown is not None:
                self._asked.add(writer)
                writer.on_shutdown()
            else:
                if writer.on_close is not None:
                    writer.on_close()
                writer.finish()
        except Exception:
            log.exception("a response could not be ended with its token; the others go on")


def _goes_on(writer: BodyWriter) -> bool:
    """A writer that has ended calls nobody any more."""
    return writer.on_close is not None or writer.on_shutdown is not None


def _refuse(route: Route, refusal: Response) -> Route:
    """Answer after the body, if it was to be read: as a stream that is not there would."""
    return route.with_handle(lambda _: refusal)
