"""The command itself: version, help, and what is said about a wrong word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.main import COMMANDS, main
from headwater.version import VERSION


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"headwater {VERSION}\n"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert name in shown
        assert command.about in shown


def test_without_a_command_help_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "commands:" in shown.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["srve"],
            "headwater: no such command: srve; did you mean serve? (see headwater --help)\n",
            id="misspelt command",
        ),
        pytest.param(
            ["xyz", "--port", "1"],
            "headwater: no such command: xyz (see headwater --help)\n",
            id="unknown command",
        ),
        pytest.param(
            ["--verison"],
            "headwater: unrecognized arguments: --verison; did you mean --version? "
            "(see headwater --help)\n",
            id="misspelt flag",
        ),
        pytest.param(
            ["serve", "--prot=1"],
            "headwater serve: unrecognized arguments: --prot=1; did you mean --port? "
            "(see headwater serve --help)\n",
            id="misspelt flag of a command",
        ),
        pytest.param(
            ["serve", "--port"],
            "headwater serve: argument --port: expected one argument "
            "(see headwater serve --help)\n",
            id="flag without its value",
        ),
        pytest.param(
            ["token", "list", "--data-dir=x"],
            "headwater token: unrecognized arguments: --data-dir=x (see headwater token --help)\n",
            id="flag of another action",
        ),
        pytest.param(
            ["serve", "--mem"],
            "headwater serve: unrecognized arguments: --mem; did you mean --memory? "
            "(see headwater serve --help)\n",
            id="abbreviation",
        ),
    ],
)
def test_a_wrong_word_is_explained_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "data"],
        ["recover", "data", "--drop-damaged-tail"],
        ["restore", "backup", "data"],
        ["token", "init", "--data-dir", "data"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_plain_install_says_what_is_missing(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('blake3', 'crc32c', 'rocksdict', 'sortedcontainers', 'uvloop'):\n"
        "    sys.modules[name] = None\n"
        "from headwater.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", code, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.returncode == 1
    first, *others = ended.stderr.splitlines()
    assert first.startswith('headwater: the server is not installed: pip install "headwater[server')
    assert not any(line.startswith("Traceback") for line in others)


def test_an_interrupt_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("headwater.cli.serve.run", interrupted)
    assert main(["serve"]) == 130


def test_output_that_nobody_reads_is_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater", "pipeline", "list", str(tmp_path)]
    unread, output = os.pipe()
    os.close(unread)
    with os.fdopen(output) as closed:
        ended = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_version_and_help_load_nothing_large() -> None:
    code = (
        "import sys\n"
        "from headwater.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "large = {'asyncio', 'msgspec', 'rocksdict', 'uvloop', 'prometheus_client', 'logging'}\n"
        "print(*(large & set(sys.modules)), file=sys.stderr)\n"
    )
    for argument in ("--version", "--help"):
        ended = subprocess.run(
            [sys.executable, "-c", code, argument], capture_output=True, text=True, check=True
        )
        assert ended.stderr.strip() == ""
