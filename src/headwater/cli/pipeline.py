"""`headwater pipeline`: run, check and watch declared pipelines, and the built-in ones.

Files are checked before Spark is started, which takes ten seconds; what is wrong with one is said
with its line.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.cli.main import EXIT_FAILED, EXIT_USAGE
from headwater.cli.pipeline_built_ins import (
    add_built_ins,
    add_table,
    archive_of_all,
    pairs,
    spec_of,
)
from headwater.cli.query import print_table
from headwater.cli.spark import (
    Failed,
    add_server,
    add_spark,
    context_of,
    open_session,
    say,
    wrong,
)

if TYPE_CHECKING:
    from headwater.pipeline.progress import Report
    from headwater.pipeline.spec import Spec

FOLDER = "pipelines"
WATCH_S = 2.0
CLEAR = "\x1b[H\x1b[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} ACTION [FLAG ...]"
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    run_ = actions.add_parser("run", help="run pipeline files, or all files of a folder")
    run_.add_argument("files", nargs="*", metavar="FILE")
    run_.add_argument("--restart", action="store_true", help="start again what failed")
    run_.add_argument("--archive", metavar="DIR", help="also archive all streams, into Delta there")
    run_.add_argument("--while-stdin", action="store_true", help="end when the input does")
    _add_run(run_)
    validate = actions.add_parser("validate", help="check files; says what is wrong, and where")
    validate.add_argument("files", nargs="+", metavar="FILE")
    listed = actions.add_parser("list", help="list the pipelines of a folder")
    listed.add_argument("folder", nargs="?", default=FOLDER)
    status = actions.add_parser("status", help="batches, rows, lag and errors of pipelines")
    status.add_argument("name", nargs="?", help="of one pipeline (default: all)")
    status.add_argument(
        "--watch", nargs="?", type=float, const=WATCH_S, metavar="SECONDS", help="show it again"
    )
    add_server(status)
    add_built_ins(actions, _add_run)
    maintain = actions.add_parser("maintain", help="join small files, remove old ones")
    maintain.add_argument("table", metavar="TABLE")
    add_table(maintain)
    maintain.add_argument("--target-mib", type=int, default=128, metavar="N", help="size of files")
    maintain.add_argument(
        "--keep-hours", type=int, default=168, metavar="N", help="of old files and versions (168)"
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="read what is there, then end")
    how.add_argument("--continuous", action="store_true", help="go on until stopped (default)")
    parser.add_argument("--state", metavar="DIR", help="where checkpoints are kept")
    parser.add_argument("--metrics-port", type=int, metavar="PORT", help="for Prometheus")
    parser.add_argument("--quiet", action="store_true", help="do not print a line per batch")
    add_spark(parser)


def run(arguments: argparse.Namespace) -> int:
    actions = {
        "run": _run_files,
        "validate": _validate,
        "list": _list,
        "status": _status,
        **dict.fromkeys(("archive", "replay", "transform"), _run_built_in),
        "maintain": _maintain,
    }
    try:
        return actions[arguments.action](arguments)
    except Failed as error:
        return say(error)
    except ImportError as error:
        missing = f'pip install "headwater[spark]" (missing: {error.name})'
        return say(Failed(f"pipelines are not installed: {missing}"))


# -- files


def _run_files(arguments: argparse.Namespace) -> int:
    specs = _load(arguments.files)
    if arguments.archive:
        specs.append(archive_of_all(arguments.archive))
    if not specs:
        raise wrong("name the files to run, or a folder with them")
    return _run_specs(specs, arguments)


def _load(paths: Sequence[str]) -> list[Spec]:
    """Every file, or the lines about all that are wrong."""
    from headwater.pipeline import files
    from headwater.pipeline.marks import SpecError

    specs, wrongs = [], []
    for path in paths:
        found = list(files.find(path)) if os.path.isdir(path) else [path]
        if not found:
            wrongs.append(f"{path}: there are no pipelines in this folder")
        for each in found:
            try:
                specs.append(files.load(each))
            except SpecError as error:
                wrongs.append(str(error))
    names = [spec.name for spec in specs]
    repeated = sorted({name for name in names if names.count(name) > 1})
    wrongs += [f"{name} is the name of more than one pipeline" for name in repeated]
    if wrongs:
        raise wrong("\n".join(wrongs))
    return specs


def _validate(arguments: argparse.Namespace) -> int:
    for spec in _load(arguments.files):
        print(f"{spec.file}: {spec.name} is a valid {spec.kind} pipeline")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    from headwater.pipeline.files import check_all

    found = check_all(arguments.folder)
    rows = [
        [each.spec.name, each.spec.kind, _route(each.spec), each.file]
        if each.spec is not None
        else ["", "wrong", str(each.error and each.error.message), each.file]
        for each in found
    ]
    if not rows:
        print(f"no pipelines in {arguments.folder}/")
        return 0
    print_table(["name", "kind", "from → to", "file"], rows)
    return EXIT_USAGE if any(each.error is not None for each in found) else 0


def _route(spec: Spec) -> str:
    if spec.archive is not None:
        streams = spec.archive.source.streams
        return f"{', '.join(streams.names if streams else ())} → {spec.archive.table.location}"
    if spec.replay is not None:
        return f"{spec.replay.table.location} → {spec.replay.stream or 'streams'}"
    sinks = [sink.table.location if sink.table else sink.stream or "streams" for sink in spec.sinks]
    return f"{', '.join(source.name for source in spec.sources)} → {', '.join(sinks)}"


def _run_built_in(arguments: argparse.Namespace) -> int:
    return _run_specs([spec_of(arguments)], arguments)


# -- running


def _run_specs(specs: Sequence[Spec], arguments: argparse.Namespace) -> int:
    context = context_of(arguments, once=arguments.once)
    if arguments.state:
        context = replace(context, state_folder=arguments.state)
    _reach_tables(specs, arguments)
    spark = open_session(arguments, "headwater pipeline")
    from headwater.pipeline.metrics import Metrics
    from headwater.pipeline.progress import Reporters
    from headwater.pipeline.runner import Runner

    metrics = Metrics()
    if arguments.metrics_port is not None:
        port = metrics.serve(arguments.metrics_port)
        print(f"metrics at http://127.0.0.1:{port}/metrics", flush=True)
    with Reporters(specs, context) as reporters:

        def note(report: Report) -> None:
            reporters.send(report)
            metrics.note(report)
            if not arguments.quiet and (report.batch is None or report.rows):
                print(_line(report), flush=True)

        restart = getattr(arguments, "restart", False)
        runner = Runner(spark, specs, context, note, beat=reporters.beat, restart=restart)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: runner.stopping.set())
        if getattr(arguments, "while_stdin", False):
            _follow_stdin(runner.stopping)
        try:
            return 0 if runner.run() else EXIT_FAILED
        finally:
            spark.stop()


def _reach_tables(specs: Sequence[Spec], arguments: argparse.Namespace) -> None:
    """Raises Failed when no pipeline can get at its tables: then Spark need not be started."""
    from headwater.lake.tables import LakeError, reach_table

    if getattr(arguments, "restart", False) or (arguments.master or "").startswith("sc://"):
        return  # they may be there later, or from there
    wrongs = []
    for spec in specs:
        try:
            for ref in spec.tables:
                reach_table(ref)
        except LakeError as error:
            wrongs.append(f"{spec.name}: {error}")
    if len(wrongs) == len(specs):
        raise Failed("\n".join(wrongs))


def _follow_stdin(stopping: threading.Event) -> None:
    """Whoever started this holds the other end: when it is gone, so are we."""

    def wait() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=wait, daemon=True).start()


def _line(report: Report) -> str:
    what = f"{report.pipeline}/{report.query}"
    if report.error:
        return f"{what}: {report.state}: {report.error.splitlines()[0]}"
    if report.batch is None:
        return f"{what}: {report.state}"
    return (
        f"{what}: batch {report.batch}: {report.rows} rows, {report.rows_per_s:g} rows/s, "
        f"lag {report.lag}"
    )


# -- status


def _status(arguments: argparse.Namespace) -> int:
    from headwater.client import ClientError
    from headwater.pipeline.progress import read_status

    with context_of(arguments).client(retry_timeout_s=5.0) as client:
        while True:
            try:
                found = read_status(client, arguments.name)
            except ClientError as error:
                raise Failed(str(error)) from error
            rows = [
                [
                    each.pipeline,
                    each.query,
                    each.state,
                    str(each.batches),
                    str(each.rows),
                    f"{each.rows_per_s:g}",
                    str(each.lag),
                    each.at,
                    each.error,
                ]
                for each in found
            ]
            if arguments.watch is not None and sys.stdout.isatty():
                print(CLEAR, end="")
            columns = ["pipeline", "query", "state", "batches", "rows", "rows/s", "lag"]
            print_table([*columns, "last batch", "last error"], rows)
            if arguments.watch is None:
                return 0
            sys.stdout.flush()
            time.sleep(arguments.watch)


# -- maintenance


def _maintain(arguments: argparse.Namespace) -> int:
    from headwater.lake.tables import LakeError, TableRef
    from headwater.pipeline.maintain import maintain

    ref = TableRef(arguments.format, arguments.table, catalog=pairs(arguments.catalog))
    try:
        joined, removed = maintain(ref, arguments.target_mib << 20, arguments.keep_hours * 3600)
    except (LakeError, FileNotFoundError) as error:
        raise Failed(str(error)) from error
    print(f"{joined} small files joined, {removed} old files removed")
    return 0
