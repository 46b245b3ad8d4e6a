"""`headwater pipeline status`, for people and for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count

import pytest

from headwater.cli import pipeline_status
from headwater.cli.main import main
from headwater.cli.pipeline_status import short_time
from headwater.client import Client
from headwater.pipeline.progress import Report, Reporter
from tests.support.inprocess import serving


@pytest.fixture
def url() -> Iterator[str]:
    """Of a server that two pipelines have reported to."""
    with serving() as server, Client(server.url) as client:
        reporter = Reporter(client)
        reporter.send(Report("p", "out", "running", 0, 10, rows_per_s=2.5, lag=4))
        reporter.send(Report("q", "out", "failed", error="no " * 100))
        yield server.url


def test_it_is_a_table(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", "p", "--url", url]) == 0
    head, _, row, rows = capsys.readouterr().out.splitlines()
    assert head.split()[:7] == ["pipeline", "query", "state", "batches", "rows", "rows/s", "lag"]
    assert row.split() == ["p", "out", "running", "1", "10", "2.5", "4"]
    assert rows == "(1 row)"


def test_programs_get_all_of_it(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", "--format", "json", "--url", url]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["pipeline"], first["rows"], first["lag"]) == ("p", 10, 4)
    assert (second["state"], second["error"]) == ("failed", "no " * 100)


def test_times_are_short_in_the_table_only(capsys: pytest.CaptureFixture[str]) -> None:
    at = "2026-01-02T03:04:05.678Z"
    with serving() as server, Client(server.url) as client:
        Reporter(client).send(Report("p", "out", "running", 0, 10, at=at))
        for form in ("table", "csv"):
            assert main(["pipeline", "status", "--output", form, "--url", server.url]) == 0
    _, _, row, _, head, line = capsys.readouterr().out.splitlines()
    assert row.split()[-1] == "2026-01-02"
    assert head == "pipeline,query,state,batches,rows,rows_per_s,lag,at,error"
    assert line.split(",")[7] == at
    assert short_time(at, "2026-01-02") == "03:04:05"


def test_a_pipeline_that_nobody_knows(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", "r", "--url", url]) == 1
    said = capsys.readouterr().err
    assert said == f"headwater: no pipeline r has reported to {url}; those that have: p, q\n"


def test_nobody_has_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        assert main(["pipeline", "status", "--url", server.url]) == 0
        assert main(["pipeline", "status", "--output", "json", "--url", server.url]) == 0
    assert capsys.readouterr().out == "no pipeline has reported yet\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--url", "http://127.0.0.1:1"], 1, "no answer from http://127.0.0.1:1"),
        (["--url", "localhost:4437"], 2, "the endpoint is a URL such as"),
        (["--watch", "0"], 2, "--watch is a number of seconds above 0"),
    ],
)
def test_what_is_wrong(
    arguments: list[str],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline_status, "RETRY_TIMEOUT_S", 0.0)
    assert main(["pipeline", "status", *arguments]) == code
    assert said in capsys.readouterr().err


def test_to_watch_goes_on_while_the_server_is_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_status, "RETRY_TIMEOUT_S", 0.0)
    looks = count(1)

    def sleep(_: float) -> None:
        if next(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert main(["pipeline", "status", "--watch", "--url", "http://127.0.0.1:1"]) == 130
    assert capsys.readouterr().err.count("no answer from") == 2
