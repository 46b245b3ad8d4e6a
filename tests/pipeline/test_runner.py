"""Several pipelines at once: they do not stop each other, and stop when they are told."""

from __future__ import annotations

import pytest

from headwater.pipeline import jobs, runner
from headwater.pipeline.context import Context
from headwater.pipeline.progress import Report
from headwater.pipeline.runner import Runner
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
    states = {(report.pipeline, report.state) for report in reports}
    assert states >= {("bad", "failed"), ("good", "running"), ("good", "finished")}
    (batch,) = [report for report in reports if report.rows]
    assert (batch.pipeline, batch.query, batch.batch, batch.rows) == ("good", "out", 0, 2)
    assert batch.lag == 0


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
    assert [report.state for report in reports if report.batch is None] == ["running", "finished"]


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
