"""`headwater up`: the server, then the pipelines of a folder, in a process of their own.

The server comes first, and needs neither Spark nor Java. Pipelines run on an embedded Spark beside
it. When that process ends by itself it is started again after a pause; the server goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Sequence

from headwater.cli import serve
from headwater.cli.main import EXIT_USAGE, fail

log = logging.getLogger("headwater.up")

FOLDER = "pipelines"
SUFFIXES = (".yaml", ".yml", ".py")
RESTART_S = 10.0
STOP_TIMEOUT_S = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    serve.add_arguments(parser)
    group = parser.add_argument_group("pipelines")
    group.add_argument(
        "--pipelines", metavar="DIR", help=f"run the files there (default: {FOLDER}, if it exists)"
    )
    group.add_argument(
        "--archive", metavar="DIR", help="archive all streams into a Delta table below DIR"
    )


def run(arguments: argparse.Namespace) -> int:
    folder = arguments.pipelines or FOLDER
    if arguments.pipelines and not os.path.isdir(folder):
        return fail(EXIT_USAGE, f"there is no folder {folder}")
    wanted = ["--archive", arguments.archive] if arguments.archive else []
    if _has_pipelines(folder):
        wanted.append(folder)
    if not wanted:
        return serve.run(arguments)
    return serve.run(arguments, lambda url: run_pipelines(url, wanted))


def _has_pipelines(folder: str) -> bool:
    return os.path.isdir(folder) and any(
        name.endswith(SUFFIXES) and not name.startswith(("_", ".")) for name in os.listdir(folder)
    )


async def run_pipelines(url: str, wanted: Sequence[str], restart_s: float = RESTART_S) -> None:
    """Until cancelled: then the process is asked to end, and waited for."""
    command = (sys.executable, "-m", "headwater", "pipeline", "run", "--restart", "--while-stdin")
    while True:
        process = await asyncio.create_subprocess_exec(
            *command, "--url", url, *wanted, stdin=asyncio.subprocess.PIPE
        )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        if code == EXIT_USAGE:
            log.error("the pipelines do not run; see above. The server does")
            return
        log.error("the pipelines ended with code %d; starting them again", code)
        await asyncio.sleep(restart_s)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
