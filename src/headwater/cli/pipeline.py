"""`headwater pipeline`: run, check and watch declared pipelines, and the built-in ones.

Files are checked before Spark is started; what is wrong with one is said with its line.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.cli.main import EXIT_USAGE
from headwater.cli.pipeline_built_ins import add_built_ins, add_table, archive_of_all, spec_of
from headwater.cli.pipeline_run import add_run, run_specs
from headwater.cli.pipeline_status import add_status, run_status
from headwater.cli.spark import Failed, missing_library, note, pairs, say, wrong
from headwater.cli.tables import FORMS, add_output, show

if TYPE_CHECKING:
    from headwater.pipeline.spec import Spec

FOLDER = "pipelines"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} ACTION [FLAG ...]"
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="ACTION", prog=parser.prog
    )
    run_ = actions.add_parser("run", help="run pipeline files, or all files of a folder")
    run_.add_argument("files", nargs="*", metavar="FILE", help="files, or folders with them")
    run_.add_argument("--restart", action="store_true", help="start again what failed")
    run_.add_argument("--archive", metavar="DIR", help="also archive all streams, into Delta there")
    run_.add_argument("--while-stdin", action="store_true", help="end when the input does")
    run_.add_argument("--skip-wrong", action="store_true", help="run the others if files are wrong")
    add_run(run_)
    validate = actions.add_parser("validate", help="check files; says what is wrong, and where")
    validate.add_argument("files", nargs="+", metavar="FILE", help="files, or folders with them")
    listed = actions.add_parser("list", help="list the pipelines of a folder")
    listed.add_argument("folder", nargs="?", help=f"default: {FOLDER}")
    add_output(listed)
    add_status(actions.add_parser("status", help="batches, rows, lag and errors of pipelines"))
    add_built_ins(actions, add_run)
    maintain = actions.add_parser("maintain", help="join small files, remove old ones")
    maintain.add_argument("table", metavar="TABLE", help="folder or URL of the table")
    add_table(maintain)
    maintain.add_argument("--target-mib", type=int, default=128, metavar="N", help="size of files")
    maintain.add_argument(
        "--keep-hours", type=int, default=168, metavar="N", help="of old files and versions (168)"
    )


def run(arguments: argparse.Namespace) -> int:
    actions = {
        "run": _run_files,
        "validate": _validate,
        "list": _list,
        "status": run_status,
        **dict.fromkeys(("archive", "replay", "transform"), _run_built_in),
        "maintain": _maintain,
    }
    try:
        return actions[arguments.action](arguments)
    except Failed as error:
        return say(error)
    except ImportError as error:
        return say(missing_library("pipelines", error))


# -- files


def _run_files(arguments: argparse.Namespace) -> int:
    specs, wrongs = _load(arguments.files)
    if arguments.archive:
        specs.append(archive_of_all(arguments.archive))
    if wrongs and not (arguments.skip_wrong and specs):
        raise wrong("\n".join(wrongs))
    for each in wrongs:
        note(f"{each}; it is left out")
    if not specs:
        raise wrong("name the files to run, or a folder with them")
    return run_specs(specs, arguments)


def _load(paths: Sequence[str]) -> tuple[list[Spec], list[str]]:
    """The pipelines, and a line about each file that is wrong."""
    from headwater.pipeline.files import check_all, find

    wrongs, found = [], []
    for path in paths:
        listed = list(find(path)) if os.path.isdir(path) else [path]
        if not listed:
            wrongs.append(f"{path}: there are no pipelines in this folder")
        found += listed
    checked = check_all(found)
    wrongs += [str(each.error) for each in checked if each.error is not None]
    return [each.spec for each in checked if each.spec is not None], wrongs


def _validate(arguments: argparse.Namespace) -> int:
    specs, wrongs = _load(arguments.files)
    for spec in specs:
        print(f"{spec.file}: {spec.name} is a valid {spec.kind} pipeline")
    if wrongs:
        raise wrong("\n".join(wrongs))
    return 0


def _list(arguments: argparse.Namespace) -> int:
    from headwater.pipeline.files import check_all, find

    folder = arguments.folder or FOLDER
    if arguments.folder and not os.path.isdir(folder):
        raise wrong(f"there is no folder {folder}")
    found = check_all(find(folder))
    if not found and arguments.output == FORMS[0]:
        print(f"no pipelines in {folder}/")
        return 0
    rows = [
        [each.spec.name, each.spec.kind, *_route(each.spec), each.file, None]
        if each.spec is not None
        else [None, "wrong", None, None, each.file, each.error and each.error.message]
        for each in found
    ]
    show(["name", "kind", "from", "to", "file", "error"], rows, arguments.output)
    return EXIT_USAGE if any(each.error is not None for each in found) else 0


def _route(spec: Spec) -> tuple[str, str]:
    """Where rows come from, and where they go."""
    if spec.replay is not None:
        return spec.replay.table.location, spec.replay.stream or "streams"
    sources = spec.sources if spec.archive is None else (spec.archive.source,)
    tables = [source.table.location for source in sources if source.table is not None]
    names = [name for source in sources if source.streams for name in source.streams.names]
    sinks = [sink.table.location if sink.table else sink.stream or "streams" for sink in spec.sinks]
    to = sinks if spec.archive is None else [spec.archive.table.location]
    return ", ".join(names + tables), ", ".join(to)


def _run_built_in(arguments: argparse.Namespace) -> int:
    return run_specs([spec_of(arguments)], arguments)


# -- maintenance


def _maintain(arguments: argparse.Namespace) -> int:
    from headwater.lake.tables import LakeError, TableRef
    from headwater.pipeline.maintain import maintain

    ref = TableRef(arguments.format, arguments.table, catalog=pairs("--catalog", arguments.catalog))
    try:
        joined, removed = maintain(ref, arguments.target_mib << 20, arguments.keep_hours * 3600)
    except (LakeError, FileNotFoundError) as error:
        raise Failed(str(error)) from error
    print(f"{joined} small files joined, {removed} old files removed")
    return 0
