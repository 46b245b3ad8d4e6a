"""`headwater up`: the server, then the pipelines of a folder, in a process of their own.

The server comes first, and needs neither Spark nor Java. Pipelines run on an embedded Spark beside
it. When that process ends by itself it is started again after a pause, and when a file of the
folder changes at once; the server goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence

from headwater.cli import serve
from headwater.cli.main import EXIT_USAGE, fail
from headwater.cli.pipeline import FOLDER

log = logging.getLogger("headwater.up")

SUFFIXES = (".yaml", ".yml", ".py")
RESTART_S = 10.0
LOOK_S = 1.0
STOP_TIMEOUT_S = 30.0
WAIT_FOR_FILES = (0, EXIT_USAGE)
"""Exit codes after which to run the same files again would change nothing."""

Seen = dict[str, tuple[int, int]]
"""Files, with when they were changed and their sizes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    serve.add_arguments(parser)
    group = parser.add_argument_group("pipelines")
    group.add_argument(
        "--pipelines", metavar="DIR", help=f"run the files there (default: {FOLDER}, if it exists)"
    )
    group.add_argument(
        "--archive", metavar="DIR", help="archive all streams into a Delta table below DIR"
    )
    group.add_argument(
        "--pipeline-metrics-port",
        type=int,
        metavar="PORT",
        help="serve the figures of pipelines for Prometheus there",
    )


def run(arguments: argparse.Namespace) -> int:
    folder = arguments.pipelines or FOLDER
    if arguments.pipelines and not os.path.isdir(folder):
        return fail(EXIT_USAGE, f"there is no folder {folder}")
    if not arguments.pipelines and not arguments.archive and not _has_pipelines(folder):
        return serve.run(arguments)

    def command(url: str) -> list[str]:
        return pipeline_command(url, folder, arguments.archive, arguments.pipeline_metrics_port)

    return serve.run(arguments, lambda url: Pipelines(lambda: command(url), folder).run())


def pipeline_command(
    url: str, folder: str, archive: str | None, metrics_port: int | None
) -> list[str]:
    """What is to run now: files may come to a folder that had none."""
    run = [sys.executable, "-m", "headwater", "pipeline", "run", "--url", url]
    run += ["--restart", "--while-stdin", "--skip-wrong"]
    if metrics_port is not None:
        run += ["--metrics-port", str(metrics_port)]
    if archive:
        run += ["--archive", archive]
    return [*run, folder] if not archive or _has_pipelines(folder) else run


def _has_pipelines(folder: str) -> bool:
    return any(not name.startswith("_") for name in look(folder))


def look(folder: str) -> Seen:
    """The pipeline files of a folder, and what they may import."""
    found: Seen = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIXES) and not entry.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):
                    facts = entry.stat()
                    found[entry.name] = facts.st_mtime_ns, facts.st_size
    return found


class Pipelines:
    """The process that runs them, again and again."""

    def __init__(
        self,
        command: Callable[[], Sequence[str]],
        folder: str,
        *,
        restart_s: float = RESTART_S,
        look_s: float = LOOK_S,
    ) -> None:
        self._command = command
        self._folder = folder
        self._restart_s = restart_s
        self._look_s = look_s

    async def run(self) -> None:
        """Until cancelled: then the process is asked to end, and waited for."""
        while True:
            seen = look(self._folder)
            # In a session of its own: Ctrl-C is for us, and we ask it to end once.
            process = await asyncio.create_subprocess_exec(
                *self._command(), stdin=asyncio.subprocess.PIPE, start_new_session=True
            )
            changed = asyncio.ensure_future(self._change(seen))
            ended = asyncio.ensure_future(process.wait())
            try:
                await asyncio.wait((changed, ended), return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    await self._pause(ended.result(), changed)
            finally:
                changed.cancel()
                await _end(process)
            log.info("starting the pipelines again")

    async def _change(self, seen: Seen) -> None:
        """Returns once the files have changed, and do so no longer."""
        last, found = seen, look(self._folder)
        while found == seen or found != last:
            await asyncio.sleep(self._look_s)
            last, found = found, look(self._folder)
        log.info("the files in %s have changed", self._folder)

    async def _pause(self, code: int, changed: asyncio.Future[None]) -> None:
        """What is wrong with files stays so until they change; a failure may go away by itself."""
        if code == 0:
            log.info("all pipelines have ended")
        elif code == EXIT_USAGE:
            log.error("the pipelines do not run; see above. The server does")
        else:
            log.error("the pipelines ended with code %d", code)
        await asyncio.wait([changed], timeout=None if code in WAIT_FOR_FILES else self._restart_s)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
