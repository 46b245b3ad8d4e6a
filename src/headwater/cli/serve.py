"""`headwater serve`: read the settings, run the server until a signal or a failed disk ends it.

Prints one line to stdout when it is ready; everything else goes to stderr. Nothing large is
imported before it is certain that a server will run.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from headwater.cli.main import EXIT_FAILED, EXIT_STORAGE_FAILED, EXIT_USAGE, fail, why_missing
from headwater.server.settings import ENTRIES, Settings, SettingsError, load_settings
from headwater.version import VERSION

if TYPE_CHECKING:
    from headwater.server.app import Server

log = logging.getLogger("headwater.serve")

Beside = Callable[[str], Coroutine[Any, Any, None]]
"""Gets the server's URL."""

FAILED_GRACE_S = 1.0
"""After a failed sync: time for the answers that say so to leave."""

SPARE_FILES = 1024
"""Open files beyond the connections: RocksDB's, and our own few."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [FLAG ...]"
    parser.add_argument("--config", metavar="FILE", help="a TOML file with settings")
    groups: dict[str, argparse._ArgumentGroup] = {}
    for entry in ENTRIES:
        group = groups.get(entry.group)
        if group is None:
            group = groups[entry.group] = parser.add_argument_group(entry.group.lower())
        default = entry.kind.show(entry.default)
        about = f"{entry.doc} Default: {default or 'none'}.".replace("`", "").replace("%", "%%")
        if entry.kind.metavar:
            group.add_argument(
                entry.flag, dest=entry.name, metavar=entry.kind.metavar, help=about, default=None
            )
        else:
            group.add_argument(
                entry.flag,
                dest=entry.name,
                action=argparse.BooleanOptionalAction,
                help=about,
                default=None,
            )


def run(arguments: argparse.Namespace, beside: Beside | None = None) -> int:
    """`beside` runs next to the server, from when it is ready until it ends."""
    given = vars(arguments)
    flags = {e.name: given[e.name] for e in ENTRIES if given[e.name] is not None}
    try:
        settings = load_settings(flags=flags, environment=os.environ, config=arguments.config)
    except SettingsError as error:
        return fail(EXIT_USAGE, str(error))
    try:
        import uvloop

        from headwater.server.app import Server
        from headwater.server.listening import StartFailed
        from headwater.server.logs import configure_logs
    except ImportError as error:
        return fail(EXIT_FAILED, why_missing(error))
    configure_logs(
        settings.log_level, settings.log_format, sys.stderr, access_log=settings.access_log
    )
    allowed = raise_file_limit(settings.connections_max)
    calm_collector()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            server = Server(replace(settings, connections_max=allowed))
            return runner.run(serve(server, beside))
    except StartFailed as error:
        return fail(EXIT_FAILED, str(error))


async def serve(server: Server, beside: Beside | None = None) -> int:
    """Run a server to its end. Returns the exit code."""
    await server.start()
    asked = asyncio.Event()
    _watch_signals(asked)
    print(_describe(server), flush=True)
    companion = None if beside is None else asyncio.ensure_future(beside(server.url))
    ends = [asyncio.ensure_future(event.wait()) for event in (asked, server.failed)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    if not server.failed.is_set():
        log.info("shutting down: finishing requests and commits")
    if companion is not None:
        companion.cancel()
        await asyncio.wait([companion])
    grace_s = FAILED_GRACE_S if server.failed.is_set() else None
    closed = await server.stop(grace_s)
    if server.failed.is_set():
        _exit_now(EXIT_STORAGE_FAILED, "storage failed; the data on disk is what was acknowledged")
    return 0 if closed else EXIT_FAILED


def _watch_signals(asked: asyncio.Event) -> None:
    """The first signal asks for an orderly end, the second ends at once."""
    loop = asyncio.get_running_loop()

    def caught(number: signal.Signals) -> None:
        if asked.is_set():
            _exit_now(128 + number, "stopped at once")
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, caught, number)


def _describe(server: Server) -> str:
    settings: Settings = server.settings
    data = "in memory, gone at the end" if settings.memory else settings.data_dir
    return f"headwater {VERSION} listening on {server.url} (data: {data})"


def _exit_now(code: int, message: str) -> NoReturn:
    """End without tidying up: what must be on disk is, and nothing else may get there."""
    fail(code, message)
    sys.stdout.flush()
    os._exit(code)


def calm_collector() -> None:
    """Requests make no cycles to speak of: look for them less often (2 of 21 µs per append)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def raise_file_limit(connections_max: int) -> int:
    """A connection is an open file, and the usual limit on those is far below ours.

    Returns how many connections there can be: one refused is better than a file not opened.
    """
    wanted = connections_max + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections_max
    allowed = max(1, soft - SPARE_FILES)
    log.debug("open files are limited to %d, so connections are to %d", soft, allowed)
    return allowed
