"""The `headwater` command: finds the subcommand and hands over.

A subcommand is a module with `add_arguments(parser)` and `run(arguments)`, which returns the exit
code. It is imported only when it is asked for, so `--help` and `--version` are instant and a
plain install, without the server's libraries, still has its client commands.

Exit codes: 0 all is well, 1 it failed, 2 the command line or a setting is wrong, 3 storage failed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from headwater.version import VERSION

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_STORAGE_FAILED = 3
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
EXIT_UNREAD = 141  # 128 + SIGPIPE


def fail(code: int, message: str) -> int:
    """Say why in one line; returns the exit code."""
    sys.stderr.write(f"headwater: {message}\n")
    return code


def why_missing(error: ImportError) -> str:
    """What to do where a plain install meets a command that opens a data folder."""
    return f'the server is not installed: pip install "headwater[server]" (missing: {error.name})'


class Command(NamedTuple):
    """Where a subcommand lives, and what `headwater --help` says of it."""

    module: str
    about: str


COMMANDS = {
    "serve": Command("headwater.cli.serve", "run the server"),
    "up": Command("headwater.cli.up", "run the whole system on this machine"),
    "check": Command("headwater.cli.check", "verify a data folder"),
    "recover": Command("headwater.cli.recover", "open a data folder whose log is damaged"),
    "backup": Command("headwater.cli.backup", "copy the data of a running server"),
    "restore": Command("headwater.cli.restore", "make a data folder from a backup"),
    "token": Command("headwater.cli.token", "make, list and revoke access tokens"),
    "pipeline": Command("headwater.cli.pipeline", "run, check and watch pipelines on Spark"),
    "query": Command("headwater.cli.query", "ask streams and lake tables with SQL, on Spark"),
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, with what may have been meant."""

    def __init__(self, **options: Any) -> None:
        # An abbreviation that works today may be ambiguous tomorrow.
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        hint = f"{self.prog} --help" if self.prog else "--help"
        self.exit(EXIT_USAGE, f"{self.prog}: {message}{self._meant(message)} (see {hint})\n")

    def _meant(self, message: str) -> str:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown == message:
            return ""
        from headwater.server.settings import suggest  # it has the words for this

        flag = unknown.split()[0].split("=")[0]
        known = list(dict.fromkeys(self._flags()))
        return "" if flag in known else suggest(flag, known)  # it is one of another action

    def _flags(self) -> Iterator[str]:
        """Its own, and those of its actions: only this one is asked about what is left over."""
        yield from self._option_string_actions
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                for parser in action.choices.values():
                    yield from parser._option_string_actions  # noqa: SLF001


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        known = bool(arguments) and arguments[0] in COMMANDS
        code = _run(arguments[0], arguments[1:]) if known else _answer(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever reads the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_UNREAD


def _run(name: str, arguments: list[str]) -> int:
    command = COMMANDS[name]
    module = import_module(command.module)
    parser = Parser(
        prog=f"headwater {name}",
        description=f"{command.about[0].upper()}{command.about[1:]}.",
    )
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args(arguments))
    return code


def _answer(arguments: list[str]) -> int:
    """Without a subcommand: help, version, or what is wrong."""
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:{width}}  {command.about}" for name, command in COMMANDS.items())
    parser = Parser(
        prog="headwater",
        usage="headwater [--help] [--version] COMMAND ...",
        description="Durable streams over HTTP: append, read from any position, follow live.",
        epilog=f"commands:\n{listed}\n\n`headwater COMMAND --help` tells what each takes.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"headwater {VERSION}")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    from headwater.server.settings import suggest

    parser.error(f"no such command: {given.command}{suggest(given.command, list(COMMANDS))}")


if __name__ == "__main__":
    sys.exit(main())
