"""The HTTP/1.1 server: makes connections, sweeps them once a second, and shuts them down.

The listening socket and the routes are the caller's. One sweep timer serves every connection.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial

from headwater.engine.clock import Clock, Timer
from headwater.server.http1_connection import Http1Connection
from headwater.server.serving import ResponseHook, ServerLimits, Serving
from headwater.wire.http import Application

LOGGER = logging.getLogger(__name__)

SWEEP_INTERVAL_S = 1.0


class Http1Server:
    """Serves `application` on the connections that its listeners accept.

    From start to end:

        server = Http1Server(application, clock=SystemClock(loop), loop=loop)
        listener = await server.listen(host="127.0.0.1", port=8080)
        ...
        listener.close()
        await server.shut_down(grace_s=10)
    """

    def __init__(
        self,
        application: Application,
        *,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        limits: ServerLimits | None = None,
        on_response: ResponseHook | None = None,
        h2_factory: Callable[[], asyncio.Protocol] | None = None,
    ) -> None:
        self.serving = Serving(
            application,
            clock=clock,
            limits=limits or ServerLimits(),
            on_response=on_response,
            h2_factory=h2_factory,
        )
        self._loop = loop
        self._timer: Timer | None = None

    def protocol(self) -> Http1Connection:
        """A connection: the protocol factory of `loop.create_server` and its relatives."""
        return Http1Connection(self.serving, self._loop.call_soon)

    async def listen(
        self, *, host: str, port: int, tls: ssl.SSLContext | None = None, backlog: int = 1024
    ) -> asyncio.Server:
        """Accept connections on an address, and sweep them."""
        self.start_sweeping()
        return await self._loop.create_server(self.protocol, host, port, ssl=tls, backlog=backlog)

    def start_sweeping(self) -> None:
        if self._timer is None:
            self._timer = self.serving.clock.call_later(SWEEP_INTERVAL_S, self._swept)

    def sweep(self) -> None:
        """End what took too long. Called once a second; tests move the clock and call it."""
        serving = self.serving
        serving.refresh()
        for connection in tuple(serving.connections):
            try:
                connection.sweep(serving.tick_s)
            except Exception:
                LOGGER.exception("sweeping a connection failed")
                connection.abort()

    def drain(self) -> None:
        """Close idle connections; let the others finish what runs, and then close."""
        serving = self.serving
        if serving.draining:
            return
        serving.draining = True
        for connection in tuple(serving.connections):
            try:
                connection.drain()
            except Exception:
                LOGGER.exception("draining a connection failed")
                connection.abort()

    async def shut_down(self, *, grace_s: float) -> None:
        """Drain, wait until every connection is closed or `grace_s` passed, and cut the rest."""
        self.drain()
        serving = self.serving
        cut = serving.clock.call_later(grace_s, self._abort)
        try:
            if serving.connections:
                empty = self._loop.create_future()
                serving.on_empty = partial(_end_wait, empty)
                await empty
        finally:
            cut.cancel()
            serving.on_empty = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _abort(self) -> None:
        for connection in tuple(self.serving.connections):
            connection.abort()

    def _swept(self) -> None:
        self._timer = self.serving.clock.call_later(SWEEP_INTERVAL_S, self._swept)
        self.sweep()


def _end_wait(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
