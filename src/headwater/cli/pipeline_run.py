"""Runs pipelines that were checked: reaches what they need, starts Spark, tells how it goes.

What can fail without Spark fails first, since that takes ten seconds to start.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.cli.main import EXIT_FAILED
from headwater.cli.spark import (
    Failed,
    add_spark,
    context_of,
    is_remote,
    note,
    note_progress,
    open_session,
)

if TYPE_CHECKING:
    from headwater.pipeline.context import Context
    from headwater.pipeline.metrics import Metrics
    from headwater.pipeline.progress import Report
    from headwater.pipeline.spec import Spec

REACH_TIMEOUT_S = 5.0


def add_run(parser: argparse.ArgumentParser) -> None:
    """The flags of everything that runs."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="read what is there, then end")
    how.add_argument("--continuous", action="store_true", help="go on until stopped (default)")
    parser.add_argument(
        "--state", metavar="DIR", help="where checkpoints are kept (default: .headwater/pipelines)"
    )
    parser.add_argument(
        "--metrics-port", type=int, metavar="PORT", help="serve figures for Prometheus there"
    )
    parser.add_argument("--quiet", action="store_true", help="do not print a line per batch")
    add_spark(parser)


def run_specs(specs: Sequence[Spec], arguments: argparse.Namespace) -> int:
    """Until all have ended or failed, or a signal comes. Raises Failed."""
    context = context_of(arguments, once=arguments.once)
    if arguments.state:
        context = replace(context, state_folder=arguments.state)
    if not _restarts(arguments):  # else they may be there later
        _reach_servers(specs, context)
        if not is_remote(arguments.master):
            _reach_tables(specs)
    _note_missing(specs, context)
    with ExitStack() as held:
        free = _hold_all(specs, context, held, skip=_restarts(arguments))
        return _run(free, context, _serve_metrics(arguments.metrics_port), arguments)


def _restarts(arguments: argparse.Namespace) -> bool:
    """Only `run` has the flag."""
    return getattr(arguments, "restart", False)


def _run(
    specs: Sequence[Spec], context: Context, metrics: Metrics, arguments: argparse.Namespace
) -> int:
    spark = open_session(arguments, "headwater pipeline")
    from headwater.pipeline.progress import Reporters
    from headwater.pipeline.runner import Runner

    with Reporters(specs, context) as reporters:

        def tell(report: Report) -> None:
            reporters.send(report)
            metrics.note(report)
            if not arguments.quiet and (line := line_of(report)):
                print(line, flush=True)

        runner = Runner(
            spark, specs, context, tell, beat=reporters.beat, restart=_restarts(arguments)
        )
        led = getattr(arguments, "while_stdin", False)
        _watch_signals(runner.stopping, patient=led)
        if led:
            _follow_stdin(runner.stopping)
        try:
            return 0 if runner.run() else EXIT_FAILED
        finally:
            spark.stop()


def line_of(report: Report) -> str | None:
    """None for what is no news, or is an error, which the log tells."""
    what = f"{report.pipeline}/{report.query}"
    if report.state == "failed" or (report.batch is not None and not report.rows):
        return None
    if report.batch is None:
        return f"{what}: {report.state}"
    return (
        f"{what}: batch {report.batch}: {report.rows} rows, {report.rows_per_s:g} rows/s, "
        f"lag {report.lag}"
    )


# -- before Spark is started


def _reach_servers(specs: Sequence[Spec], context: Context) -> None:
    """Raises Failed when no server can be worked with: then Spark need not be started."""
    servers = {own.endpoint: own for own in map(context.for_spec, specs)}
    wrongs = [found for own in servers.values() if (found := _reach(own)) is not None]
    if len(wrongs) == len(servers):
        raise Failed("\n".join(wrongs))


def _reach(context: Context) -> str | None:
    """What is wrong, if anything is."""
    from headwater.client import ClientError, Refused
    from headwater.client.protocol import list_streams, parse_page

    try:
        with context.client(retry_timeout_s=REACH_TIMEOUT_S) as client:
            parse_page(client.fetch(list_streams(limit=1))[1])
    except Refused as error:  # a token need not permit this, but it has to be known
        if error.code == "unauthenticated":
            return f"{context.endpoint}: {error}; give one with --token"
    except ClientError as error:
        return str(error)
    return None


def _note_missing(specs: Sequence[Spec], context: Context) -> None:
    """Streams may be yet to come, or misspelt: a pipeline waits for them in silence."""
    from headwater.client import ClientError
    from headwater.pipeline.sampling import tell_missing

    for spec in specs:
        with suppress(ClientError), context.for_spec(spec).client(retry_timeout_s=0.0) as client:
            for streams in spec.read:
                for line in tell_missing(client, streams):
                    note(f"{spec.name}: {line} yet")


def _reach_tables(specs: Sequence[Spec]) -> None:
    """Raises Failed when no pipeline can get at its tables."""
    from headwater.lake.tables import LakeError, reach_table

    wrongs = []
    for spec in specs:
        try:
            for ref in spec.tables:
                reach_table(ref)
        except LakeError as error:
            wrongs.append(f"{spec.name}: {error}")
    if len(wrongs) == len(specs):
        raise Failed("\n".join(wrongs))


def _hold_all(specs: Sequence[Spec], context: Context, held: ExitStack, skip: bool) -> list[Spec]:
    """Those that no other process runs. Raises Failed if there are others, unless told to `skip`
    these, and if there is nothing else."""
    from headwater.pipeline.alone import AlreadyRunning, hold

    free, taken = [], []
    for spec in specs:
        try:
            held.enter_context(hold(context.checkpoint(spec)))
            free.append(spec)
        except AlreadyRunning as error:
            taken.append(f"{spec.name} {error}")
        except OSError as error:
            place = f"{spec.name} cannot keep its checkpoint in {context.checkpoint(spec)}"
            raise Failed(f"{place}: {error.strerror}; see --state") from error
    if taken and not (skip and free):
        raise Failed("\n".join(taken))
    for each in taken:
        note(f"{each}; it is left out")
    return free


def _serve_metrics(port: int | None) -> Metrics:
    from headwater.pipeline.metrics import Metrics

    metrics = Metrics()
    if port is None:
        return metrics
    try:
        print(f"metrics at http://127.0.0.1:{metrics.serve(port)}/metrics", flush=True)
    except (OSError, OverflowError) as error:
        raise Failed(f"cannot serve metrics on port {port}: {error}") from error
    return metrics


# -- while it runs


def _watch_signals(stopping: threading.Event, *, patient: bool) -> None:
    """The first signal asks for an orderly end, the second ends at once. Not if we are `patient`:
    the same end may reach us twice, and whoever started us sees to it that it comes."""
    asked = threading.Event()

    def caught(number: int, _: object) -> None:
        if asked.is_set() and not patient:
            note("stopped at once")
            os._exit(128 + number)
        if not asked.is_set():
            note_progress(f"stopping{'' if patient else '; again to stop at once'}")
        asked.set()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, caught)


def _follow_stdin(stopping: threading.Event) -> None:
    """Whoever started this holds the other end: when it is gone, so are we."""

    def wait() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=wait, daemon=True).start()
