"""A whole server inside the test's process: real sockets and routes, a store and clock to choose.

`running` is for tests that are coroutines. `serving` runs the server in a thread of its own, for
tests that use blocking clients. Tests of signals and crashes use `ServerProcess` instead.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import uvloop

from headwater.engine.clock import Clock
from headwater.server.app import Server
from headwater.server.settings import Settings
from headwater.storage.store import Store

T = TypeVar("T")

JOIN_TIMEOUT_S = 10.0


@asynccontextmanager
async def running(
    *, store: Store | None = None, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[Server]:
    """A server on the running loop, in memory and on a free port unless settings say otherwise."""
    server = Server(_settings(settings), store=store, clock=clock)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class ServingThread:
    """A server in its own thread, as `serving` hands it out."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.url = server.url
        self._loop = loop

    def call(self, function: Callable[[], T]) -> T:
        """Call on the server's loop: nothing of the server may be touched from elsewhere."""
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return outcome.result(JOIN_TIMEOUT_S)

    def stop_soon(self, grace_s: float | None = None) -> Future[bool]:
        """Begin to stop the server; the future has what `Server.stop` returns."""
        stopped = asyncio.run_coroutine_threadsafe(self.server.stop(grace_s), self._loop)
        for _ in range(2):  # one turn makes the task, the next is its first step
            self.call(lambda: None)
        return stopped


@contextmanager
def serving(
    *, store: Store | None = None, clock: Clock | None = None, **settings: Any
) -> Iterator[ServingThread]:
    """A server in a thread, in memory and on a free port unless settings say otherwise."""
    started: Future[tuple[ServingThread, Callable[[], object]]] = Future()

    async def run() -> None:
        finished = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            async with running(store=store, clock=clock, **settings) as server:
                thread = ServingThread(server, loop)
                started.set_result((thread, lambda: loop.call_soon_threadsafe(finished.set)))
                await finished.wait()
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            else:
                raise

    def main() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())

    thread = threading.Thread(target=main, name="headwater-in-process")
    thread.start()
    try:
        found, finish = started.result(JOIN_TIMEOUT_S)
        try:
            yield found
        finally:
            finish()
    finally:
        thread.join(JOIN_TIMEOUT_S)
        assert not thread.is_alive(), "the server did not end"


def _settings(given: dict[str, Any]) -> Settings:
    return Settings(**{"port": 0, "memory": True, "shutdown_grace_s": 2.0, **given})
