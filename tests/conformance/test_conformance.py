"""The published Durable Streams suite and the official client, against a real server on RocksDB.

The tests themselves are JavaScript and run in vitest; `make conformance` installs what they need.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import ServerProcess

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(360)]

HERE = Path(__file__).parent
VITEST = HERE / "node_modules" / "vitest" / "vitest.mjs"
VITEST_TIMEOUT_S = 300
OUTPUT_TAIL_CHARS = 4000

SUITE_TESTS = 338
"""How many tests the pinned release of the suite has, subscriptions included."""

LONG_POLL_TIMEOUT_S = 0.5
"""Short, because the suite waits for it to pass; production uses a far longer one."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one run of vitest came to."""

    exit_code: int
    output: str
    passed: int
    skipped: tuple[str, ...]
    failed: tuple[str, ...]
    """Each as a name and its messages, ready to print."""

    def __str__(self) -> str:
        head = f"passed={self.passed} failed={len(self.failed)} skipped={len(self.skipped)}"
        skipped = (f"skipped: {name}" for name in self.skipped)
        return "\n\n".join([f"exit_code={self.exit_code} {head}", *self.failed, *skipped])

    @property
    def clean(self) -> bool:
        """An error outside any test shows only in the exit code."""
        return self.exit_code == 0 and not self.failed and not self.skipped


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    options = ["--long-poll-timeout", str(LONG_POLL_TIMEOUT_S), "--allow-local-webhooks"]
    with ServerProcess(tmp_path / "data", *options) as server:
        yield server


def test_the_published_suite_passes_completely(server: ServerProcess, tmp_path: Path) -> None:
    report = run_vitest("conformance.test.mjs", server.url, tmp_path)
    if not report.clean or report.passed != SUITE_TESTS:
        pytest.fail(explain(report, server), pytrace=False)
    assert server.stop() == 0


def test_the_official_client_works(server: ServerProcess, tmp_path: Path) -> None:
    report = run_vitest("client.test.mjs", server.url, tmp_path)
    if not report.clean or report.passed == 0:
        pytest.fail(explain(report, server), pytrace=False)
    assert server.stop() == 0


def run_vitest(file: str, url: str, tmp_path: Path, **environment: str) -> Report:
    """Run one file of tests to its end. Fails only if vitest could not run at all."""
    results = tmp_path / "results.json"
    process = subprocess.run(
        [
            *(find_node(), str(VITEST), "run", file),
            *("--reporter=default", "--reporter=json", f"--outputFile.json={results}"),
        ],
        cwd=HERE,
        env=os.environ
        | {
            "HEADWATER_URL": url,
            "HEADWATER_LONG_POLL_TIMEOUT_MS": str(int(LONG_POLL_TIMEOUT_S * 1000)),
            "NO_COLOR": "1",
            **environment,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=VITEST_TIMEOUT_S,
    )
    if not results.exists():
        pytest.fail(f"vitest left no results\n{process.stdout}", pytrace=False)
    return read_report(json.loads(results.read_text()), process.returncode, process.stdout)


def find_node() -> str:
    """The Node that `make` put beside this Python, or else the machine's own."""
    beside = Path(sys.executable).parent
    node = shutil.which("node", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if node is None or not VITEST.exists():
        pytest.fail("Node or its packages are missing: run `make conformance`", pytrace=False)
    return node


def read_report(results: dict[str, Any], exit_code: int, output: str) -> Report:
    failed, skipped, passed = [], [], 0
    for file in results["testResults"]:
        for case in file["assertionResults"]:
            if case["status"] == "passed":
                passed += 1
            elif case["status"] == "failed":
                failed.append("\n".join([f"FAILED {case['fullName']}", *case["failureMessages"]]))
            else:
                skipped.append(case["fullName"])
        if file["message"]:
            failed.append(f"FAILED {file['name']}\n{file['message']}")
    return Report(exit_code, output, passed, tuple(skipped), tuple(failed))


def explain(report: Report, server: ServerProcess) -> str:
    parts = [str(report)]
    if not report.failed:
        parts.append(report.output[-OUTPUT_TAIL_CHARS:])
    parts.append(f"server log:\n{server.stderr[-OUTPUT_TAIL_CHARS:]}")
    return "\n\n".join(parts)
