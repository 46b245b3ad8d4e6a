"""Several pipelines at once: they do not stop each other, and stop when they are told."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headwater.pipeline import jobs, runner
from headwater.pipeline.context import Context
from headwater.pipeline.progress import Report
from headwater.pipeline.replay import Note
from headwater.pipeline.runner import Runner, Running
from headwater.pipeline.spec import Spec
from tests.pipeline.support import Desk

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def copy(desk: Desk, name: str, statement: str) -> Spec:
    text = f"""
        name: {name}
        sources: {{events: {{streams: events, bucket: "{{bucket}}"}}}}
        transforms: {{copied: "{statement}"}}
        sinks: {{out: {{from: copied, stream: {name}, bucket: "{{bucket}}"}}}}
        """
    return desk.load(text, f"{name}.yaml")


def test_one_that_fails_does_not_stop_the_others(desk: Desk) -> None:
    desk.put("events", 1, 2)
    specs = [
        copy(desk, "bad", "select nothing from events"),
        copy(desk, "good", "select value from events"),
    ]
    reports: list[Report] = []
    assert not Runner(desk.spark, specs, desk.context, reports.append).run()
    assert desk.values("good") == [1, 2]
    states = {(report.pipeline, report.query, report.state) for report in reports}
    assert states == {
        ("bad", "out", "failed"),
        *(("good", "out", state) for state in ("running", "finished")),
    }
    (batch,) = [report for report in reports if report.rows]
    assert (batch.pipeline, batch.query, batch.batch, batch.rows) == ("good", "out", 0, 2)
    assert batch.lag == 0


class Query:
    """What a runner sees of a query of Spark."""

    recentProgress = ()

    def __init__(self, error: Exception | None = None) -> None:
        self.isActive = error is None
        self.exception = lambda: error
        self.stop = lambda: None


def test_what_runs_beside_a_query_that_fails_is_stopped_and_said_to_be() -> None:
    """Else the reports would go on saying that it runs."""
    reports: list[Report] = []
    spec, context = Spec("both", "both.yaml"), Context("http://127.0.0.1:1")
    both = Running(cast(Any, None), spec, context, reports.append, restart=False)
    both.queries = cast(Any, {"one": Query(), "two": Query(ValueError("no")), "three": Query()})
    both.look()
    assert not both.alive
    states = [(report.query, report.state) for report in reports]
    assert states == [("two", "failed"), ("one", "stopped"), ("three", "stopped")]


def test_what_failed_is_started_again_if_asked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RESTART_FIRST_S", 0.0)
    desk.put("events", 1)
    failures: list[Report] = []

    def note(report: Report) -> None:
        failures.append(report)
        if len(failures) == 3:
            running.stopping.set()

    spec = copy(desk, "bad", "select nothing from events")
    running = Runner(desk.spark, [spec], desk.context, note, restart=True)
    assert not running.run()
    assert [report.state for report in failures] == ["failed"] * 3


def test_a_pipeline_goes_on_until_it_is_stopped(desk: Desk) -> None:
    desk.put("events", 1)
    reports: list[Report] = []
    endless = Context(desk.url, state_folder=str(desk.folder / "state"))

    def note(report: Report) -> None:
        reports.append(report)
        if report.rows and len(desk.values("copy")) == 1:
            desk.add("events", [b"2"])
        elif report.rows:
            running.stopping.set()

    spec = copy(desk, "copy", "select value from events")
    running = Runner(desk.spark, [spec], endless, note)
    assert running.run()
    assert desk.values("copy") == [1, 2]
    assert [report.state for report in reports if report.batch is None] == ["running", "stopped"]


def test_a_replay_does_not_hold_up_the_others(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.put("events", 1)
    copied = threading.Event()

    def wait(_session: SparkSession, spec: Spec, _context: Context, report: Note) -> None:
        assert copied.wait(60)
        report(Report(spec.name, "replay", "finished"))

    def note(report: Report) -> None:
        reports.append(report)
        if report.pipeline == "copy" and report.state == "finished":
            copied.set()

    monkeypatch.setattr(runner, "replay", wait)
    reports: list[Report] = []
    specs = [
        desk.load("replay: {table: '{folder}/lake'}", "back.yaml"),
        copy(desk, "copy", "select value from events"),
    ]
    beats: list[int] = []
    running = Runner(desk.spark, specs, desk.context, note, beat=lambda: beats.append(1))
    assert running.run() and beats
    assert (reports[-1].pipeline, reports[-1].state) == ("back", "finished")


def test_a_replay_that_fails_is_reported(desk: Desk) -> None:
    spec = desk.load("replay: {table: '{folder}/none'}", "back.yaml")
    (report,) = desk.run_once(spec, fails=True)
    assert report.state == "failed" and "there is no delta table" in (report.error or "")


def test_all_queries_of_a_source_begin_at_the_same_record(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a bad record that comes between two beginnings is nowhere."""
    desk.put("events", {"a": 1})
    text = """
        dead_letter_bucket: "{bucket}"
        sources: {rows: {streams: events, bucket: "{bucket}", json: a int, from: latest}}
        sinks: {out: {from: rows, stream: copy, bucket: "{bucket}"}}
        """
    begin = jobs._begin  # noqa: SLF001

    def begin_slowly(writer: DataStreamWriter, name: str, spec: Spec, context: Context) -> Any:
        query = begin(writer, name, spec, context)
        if name == "out":
            assert query.awaitTermination(60)
            desk.put("events", "not an object", {"a": 2})
        return query

    monkeypatch.setattr(jobs, "_begin", begin_slowly)
    spec = desk.load(text)
    desk.run_once(spec)
    monkeypatch.undo()
    desk.run_once(spec)
    assert [letter["offset"] for letter in desk.values("dead-letters/job")] == [1]
    assert [row["a"] for row in desk.values("copy")] == [2]


def test_queries_begin_one_after_another(desk: Desk) -> None:
    desk.put("events", 1)
    text = """
        sources: {events: {streams: events, bucket: "{bucket}"}}
        sinks:
          one: {from: events, stream: one, bucket: "{bucket}"}
          two: {from: events, stream: two, bucket: "{bucket}"}
        """
    queries = jobs.start(desk.spark, desk.load(text), desk.context)
    told = [query.status["message"] for query in queries]
    for query in queries:
        query.stop()
    assert len(told) == 2 and not any(message.startswith("Initializing") for message in told)
