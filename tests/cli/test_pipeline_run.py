"""What runs pipelines looks at everything that needs no Spark before it starts one."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from headwater.cli import pipeline_run
from headwater.cli.main import main
from headwater.cli.pipeline_built_ins import default_name
from headwater.cli.pipeline_run import line_of
from headwater.cli.spark import Failed
from headwater.client import Client
from headwater.pipeline.alone import LOCK, hold
from headwater.pipeline.context import Context
from headwater.pipeline.progress import Report
from headwater.pipeline.spec import Spec
from tests.support.inprocess import serving
from tests.support.server import ServerProcess

FLOW = """
sources: {a: {streams: a}}
sinks: {out: {from: a, stream: b}}
"""
NO_SERVER = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headwater.spark.session", pytest.fail)
    monkeypatch.setattr(pipeline_run, "REACH_TIMEOUT_S", 0.0)
    Path("job.yaml").write_text(FLOW)


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", "job.yaml", "--url", NO_SERVER]) == 1
    assert f"headwater: no answer from {NO_SERVER}" in capsys.readouterr().err


def test_a_token_that_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "init", "--data-dir", str(tmp_path / "data")]) == 0
    with ServerProcess(tmp_path / "data", "--auth") as server:
        assert main(["pipeline", "run", "job.yaml", "--token", "no", "--url", server.url]) == 1
    assert "code=unauthenticated); give one with --token" in capsys.readouterr().err


def test_a_pipeline_runs_once_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server, hold(os.path.abspath(".headwater/pipelines/job")):
        assert main(["pipeline", "run", "job.yaml", "--url", server.url]) == 1
    assert f"headwater: job runs already, in process {os.getpid()}" in capsys.readouterr().err


def test_what_others_run_is_left_out_unless_there_is_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    specs = [Spec(name, f"{name}.yaml") for name in ("one", "two")]
    context = Context(state_folder="state")
    with hold(context.checkpoint(specs[0])):
        with ExitStack() as held:
            free = pipeline_run._hold_all(specs, context, held, skip=True)  # noqa: SLF001
            assert free == specs[1:]
        assert "one runs already" in capsys.readouterr().err
        with hold(context.checkpoint(specs[1])), pytest.raises(Failed, match="two runs already"):
            pipeline_run._hold_all(specs, context, ExitStack(), skip=True)  # noqa: SLF001


def test_streams_that_are_not_there_yet_are_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    Path("two.yaml").write_text("archive: {streams: 'x/*', to: lake}\n")
    Path("taken").write_text("")
    with serving() as server, Client(server.url) as client:
        client.create("durable-streams", "x/1", "application/json")
        run = ["pipeline", "run", "job.yaml", "two.yaml", "--state", "taken", "--url", server.url]
        assert main(run) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "headwater: job: there is no stream a in the bucket durable-streams yet"
    assert len(said) == 2


def test_the_lock_is_not_where_a_query_keeps_its_checkpoint() -> None:
    assert not LOCK.isidentifier(), "a sink can be called so"


def test_a_checkpoint_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").write_text("")
    with serving() as server:
        assert main(["pipeline", "run", "job.yaml", "--state", "taken", "--url", server.url]) == 1
    said = capsys.readouterr().err
    assert "job cannot keep its checkpoint in" in said and "see --state" in said


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server, socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        run = ["pipeline", "run", "job.yaml", "--metrics-port", port, "--url", server.url]
        assert main(run) == 1
    assert f"headwater: cannot serve metrics on port {port}: " in capsys.readouterr().err


@pytest.mark.parametrize(("patient", "codes"), [(False, [143]), (True, [])])
def test_a_second_signal_ends_it_at_once_unless_another_process_leads(
    patient: bool, codes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    stopping = threading.Event()
    try:
        pipeline_run._watch_signals(stopping, patient=patient)  # noqa: SLF001
        signal.raise_signal(signal.SIGINT)
        assert stopping.is_set() and ended == []
        signal.raise_signal(signal.SIGTERM)
        assert ended == codes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (Report("p", "q", "running"), "p/q: running"),
        (Report("p", "q", "failed", error="why"), None),
        (Report("p", "q", "waiting", 3), None),
        (
            Report("p", "q", "running", 3, 10, 2.5, lag=4),
            "p/q: batch 3: 10 rows, 2.5 rows/s, lag 4",
        ),
    ],
)
def test_a_line_for_what_is_new(report: Report, line: str | None) -> None:
    assert line_of(report) == line


def test_the_same_flags_go_on_and_others_begin_anew() -> None:
    def archive(to: str, streams: str = "a") -> str:
        return default_name("archive", {"archive": {"streams": [streams], "to": to}})

    def transform(sql: str) -> str:
        sinks = {"out": {"from": "output", "stream": "out put"}}
        return default_name("transform", {"transforms": {"output": sql}, "sinks": sinks})

    assert archive("lake/orders") == archive("lake/orders", "b")
    assert archive("lake/orders").startswith("archive-orders-")
    assert archive("lake/orders") != archive("old/orders")
    assert transform("select 1") == transform("select 1") != transform("select 2")
    assert transform("select 1").startswith("transform-out-put-")
