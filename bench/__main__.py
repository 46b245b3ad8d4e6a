"""`python -m bench`: run the scenarios, print one table. docs/benchmarks.md says how to read it."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import procfs, report, tools
from bench.plan import Plan, quick
from bench.report import Row, say
from bench.scenarios import appends, catch_up, incremental, live, native, s2, scale, spark

SCENARIOS: dict[str, Callable[[Plan], list[Row]]] = {
    "append-64x64": appends.many_streams,
    "append-64x1": appends.one_stream,
    "append-1x1": appends.one_connection,
    "append-packing": appends.packing,
    "syncs": appends.syncs,
    "catch-up-binary": catch_up.binary,
    "catch-up-json": catch_up.json,
    "catch-up-singles": catch_up.singles,
    "sse-500": live.fanout,
    "idle-followers": live.idle,
    "incremental-paced": incremental.paced,
    "incremental-flat-out": incremental.flat_out,
    "incremental-producer": incremental.numbered,
    "log-records": native.records,
    "log-streams": native.streams,
    "s2-sessions": s2.sessions,
    "s2-catch-up": s2.catch_up,
    "s2-unary": s2.unary,
    "spark-read": spark.reading,
    "spark-write": spark.writing,
    "spark-plan": spark.planning,
    "spark-archive": spark.archiving,
    "million-streams": scale.many_streams,
}


def main() -> int:
    arguments = _parse()
    try:
        tools.find_wrk()
        tools.find_node()
        version = tools.install_peer()
    except tools.Missing as missing:
        print(f"bench: {missing}", file=sys.stderr)
        return 2
    about = report.describe_machine() | {"peer": f"@durable-streams/server {version}"}
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-", dir=arguments.folder))
    about["filesystem"] = procfs.filesystem_of(folder)
    say(", ".join(f"{name} {value}" for name, value in about.items()))
    if about["filesystem"] == "tmpfs":
        say(f"{folder} is in memory, where a sync costs nothing: choose a disk with --folder")
    try:
        rows, failed = _run(arguments, quick(folder) if arguments.quick else Plan(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    say("\n" + report.render_table(rows))
    for row in rows:
        if row.note:
            say(f"{row.scenario}: {row.note}")
    if arguments.json is not None:
        report.save(arguments.json, rows, about)
    if failed:
        say(f"went wrong: {', '.join(failed)}")
    return 1 if failed else 0


def _run(arguments: argparse.Namespace, plan: Plan) -> tuple[list[Row], list[str]]:
    """The rows of the table, and the scenarios that could not be measured."""
    rows: list[Row] = []
    failed: list[str] = []
    for name in arguments.only or SCENARIOS:
        scenario = SCENARIOS[name]
        say(f"{name}: {(scenario.__doc__ or '').splitlines()[0]}")
        started = time.perf_counter()
        try:
            rows += scenario(plan)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            say(f"  went wrong: {error}")
            failed.append(name)
        shutil.rmtree(plan.folder / name, ignore_errors=True)
        say(f"  {time.perf_counter() - started:.0f} s")
    return rows, failed


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure our server beside the reference server."
    )
    parser.add_argument("--quick", action="store_true", help="about a minute, rough figures")
    parser.add_argument(
        "--only",
        action="append",
        choices=tuple(SCENARIOS),
        metavar="NAME",
        help=f"run this scenario, may be repeated: {', '.join(SCENARIOS)}",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument(
        "--folder", metavar="DIR", help="put the servers' data on this disk, not the default's"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
