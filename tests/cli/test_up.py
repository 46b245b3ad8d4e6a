"""`headwater up` keeps the pipelines running, and takes up what changes in their folder."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.cli.main import main
from headwater.cli.up import Pipelines, look, pipeline_command
from headwater.client import Client
from tests.cli.support import append_json

ARCHIVE = "archive: {streams: 'orders/*', to: lake}\n"
NEVER_S = 1e6


def test_up_wants_the_folder_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--memory", "--pipelines", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_files_may_come_to_a_folder_that_had_none(tmp_path: Path) -> None:
    def wanted(archive: str | None) -> list[str]:
        command = pipeline_command("http://server", str(tmp_path), archive, None)
        return command[command.index("--skip-wrong") + 1 :]

    (tmp_path / "_helpers.py").touch()
    assert wanted("lake") == ["--archive", "lake"]
    assert wanted(None) == [str(tmp_path)]
    (tmp_path / "one.yaml").touch()
    assert wanted("lake") == ["--archive", "lake", str(tmp_path)]


def test_a_file_in_the_place_of_the_folder_has_no_pipelines(tmp_path: Path) -> None:
    (tmp_path / "pipelines").touch()
    assert look(str(tmp_path / "pipelines")) == look(str(tmp_path / "none")) == {}


class Runs:
    """A program in the place of Spark, which notes that it was started."""

    def __init__(self, folder: Path, then: str) -> None:
        self._notes = folder / "notes.txt"
        self._notes.touch()
        code = f"import sys; print('began', file=open({str(self._notes)!r}, 'a')); {then}"
        self.command = [sys.executable, "-c", code]

    async def reach(self, number: int) -> None:
        """Wait until it was started so often."""
        while len(self._notes.read_text().splitlines()) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def run_until(pipelines: Pipelines, end: asyncio.Task[None]) -> None:
    running = asyncio.ensure_future(pipelines.run())
    await asyncio.wait((running, end), return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await end


@pytest.mark.parametrize("then", ["sys.stdin.read()", "sys.exit(2)", "sys.exit(0)"])
def test_a_file_that_changes_starts_the_pipelines_again(tmp_path: Path, then: str) -> None:
    """Whether they run, were wrong, or had nothing left to do."""
    runs = Runs(tmp_path, then)
    folder = tmp_path / "pipelines"
    folder.mkdir()

    async def change() -> None:
        await runs.reach(1)
        (folder / "one.yaml").write_text("one")
        await runs.reach(2)
        (folder / "one.yaml").unlink()
        await runs.reach(3)

    async def play() -> None:
        pipelines = Pipelines(lambda: runs.command, str(folder), restart_s=NEVER_S, look_s=0.01)
        await run_until(pipelines, asyncio.ensure_future(change()))

    asyncio.run(play())


def test_pipelines_that_break_off_are_started_again(tmp_path: Path) -> None:
    runs = Runs(tmp_path, "sys.exit(1)")

    async def play() -> None:
        pipelines = Pipelines(lambda: runs.command, str(tmp_path), restart_s=0.0, look_s=NEVER_S)
        await run_until(pipelines, asyncio.ensure_future(runs.reach(3)))

    asyncio.run(play())


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_up_runs_the_server_and_then_the_pipelines(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(ARCHIVE)
    command = [sys.executable, "-m", "headwater", "up", "--port", "0", "--memory"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split("listening on ")[1].split(" ")[0]
        with Client(url) as client:
            append_json(client, "orders/1", {"id": 1}, {"id": 2})
            for line in process.stdout:
                if line.startswith("orders/archive: batch ") and " 2 rows" in line:
                    break
            status = ["pipeline", "status", "orders", "--url", url]
            assert main(status) == 0
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert (tmp_path / "lake" / "_delta_log").is_dir()
