"""Pipelines report to a stream of their own, and to Prometheus."""

from __future__ import annotations

import json
import logging
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row

from headwater.client import Client
from headwater.client.records import read_batches
from headwater.pipeline.context import Context
from headwater.pipeline.metrics import Metrics
from headwater.pipeline.progress import (
    BEAT_S,
    BUCKET,
    COUNTED,
    SILENT_S,
    Report,
    Reporter,
    Reporters,
    read_status,
    report_of,
)
from headwater.pipeline.spec import Spec
from tests.support.clock import FakeClock
from tests.support.inprocess import serving
from tests.support.log import encode_records

PROGRESS: dict[str, Any] = {
    "batchId": 7,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "numInputRows": 40,
    "processedRowsPerSecond": 80.04,
    "durationMs": {"triggerExecution": 500},
    "sources": [
        {
            "endOffset": '{"cut": [1000, 1], "b/s": {"id": "1", "seq": 40}}',
            "latestOffset": '{"cut": [1000, 1], "b/s": {"id": "1", "seq": 100}}',
        }
    ],
}


@pytest.fixture
def client() -> Iterator[Client]:
    with serving() as server, Client(server.url) as found:
        yield found


def sent(client: Client) -> list[dict[str, Any]]:
    """The reports of the pipeline `a`."""
    stream = client.stream(BUCKET, "a")
    assert stream is not None
    batches = read_batches(client, BUCKET, "a", first=0, end=stream.tail, stream_id=stream.id)
    return [json.loads(body) for batch in batches for body in batch.column("body").to_pylist()]


def states(client: Client) -> list[str]:
    return [status.state for status in read_status(client)]


def test_a_report_says_what_spark_said() -> None:
    assert report_of("p", "q", PROGRESS) == Report(
        "p",
        "q",
        "running",
        batch=7,
        rows=40,
        rows_per_s=80.0,
        duration_ms=500,
        lag=60,
        at="2026-01-01T00:00:00.000Z",
    )
    for counted, rows in ((Row(rows=2), 2), (Row(values=[2], schema={}), 2), (Row(), 0)):
        letters = report_of("p", "q", {**PROGRESS, "observedMetrics": {COUNTED: counted}})
        assert (letters.rows, letters.lag) == (rows, 60)
    idle = report_of("p", "q", {"batchId": 8, "numInputRows": 0, "sources": [{"endOffset": "x"}]})
    assert (idle.state, idle.rows, idle.lag) == ("waiting", 0, 0)


def test_reports_add_up_to_the_status(client: Client) -> None:
    reporter = Reporter(client)
    assert read_status(client) == []
    reporter.send(Report("a", "out", "running"))
    for batch, rows in ((0, 10), (1, 5), (2, 0)):
        reporter.send(
            Report("a", "out", "running", batch, rows, rows_per_s=rows, lag=3, at=f"t{batch}")
        )
    reporter.send(Report("a", "out", "failed", error="disk full"))
    reporter.send(Report("b", "archive", "finished"))
    first, second = read_status(client)
    assert (first.pipeline, first.query, first.state) == ("a", "out", "failed")
    assert (first.batches, first.rows, first.rows_per_s, first.lag) == (2, 15, 5, 3)
    assert (first.at, first.error) == ("t2", "disk full")
    assert (second.state, second.error) == ("finished", "")
    assert [status.pipeline for status in read_status(client, "b")] == ["b"]


def test_sums_outlive_the_reports_and_the_run(client: Client) -> None:
    reporter = Reporter(client)
    for batch in range(3):
        reporter.send(Report("a", "out", "running", batch, 10, at=f"t{batch}"))
    reporter.send(Report("a", "out", "failed", error="disk full"))
    again = Reporter(client)
    again.send(Report("a", "out", "running"))
    again.send(Report("a", "out", "running", 3, 5))
    stream = client.stream(BUCKET, "a")
    assert stream is not None
    client.trim(BUCKET, "a", stream.tail - 1, stream.id)  # as retention does
    (status,) = read_status(client)
    assert (status.batches, status.rows, status.error) == (4, 35, "disk full")


def test_reports_of_a_version_without_sums_are_no_obstacle(client: Client) -> None:
    older = json.loads(Report("a", "q", "failed", 0, 40, error="it broke").encode())
    for name in ("batches_total", "rows_total", "last_error"):
        del older[name]
    client.create(BUCKET, "a", "application/json")
    client.append(BUCKET, "a", encode_records([json.dumps(older).encode()]))
    assert [(each.state, each.error) for each in read_status(client)] == [("failed", "it broke")]
    Reporter(client).send(Report("a", "q", "running", 1, 2))
    assert [(each.state, each.rows) for each in read_status(client)] == [("running", 2)]


def test_to_wait_on_is_no_news(client: Client) -> None:
    reporter = Reporter(client)
    for batch, lag in ((4, 0), (4, 0), (4, 7), (4, 7), (5, 0)):
        reporter.send(Report("a", "out", "waiting", batch, lag=lag))
    reporter.send(Report("a", "other", "waiting", 1))
    assert [(report["query"], report["lag"]) for report in sent(client)] == [
        ("out", 0),
        ("out", 7),
        ("out", 0),
        ("other", 0),
    ]


def test_a_query_that_goes_on_says_so(client: Client) -> None:
    clock = FakeClock()
    reporter = Reporter(client, clock.monotonic_s)
    reporter.send(Report("a", "out", "running", 3, 10, lag=2, at="t3"))
    reporter.send(Report("a", "ended", "finished"))
    reporter.beat()
    assert len(sent(client)) == 2
    for _ in range(2):
        clock.advance(BEAT_S)
        reporter.beat()
    *_, first, second = sent(client)
    assert first == second and len(sent(client)) == 4
    assert (first["query"], first["state"], first["batch"], first["rows"]) == (
        "out",
        "running",
        3,
        0,
    )
    (_, status) = read_status(client)
    assert (status.rows, status.lag, status.at) == (10, 2, "t3")


def test_a_query_whose_driver_was_killed_is_silent() -> None:
    clock = FakeClock()
    with serving(clock=clock) as server, Client(server.url) as client:
        for query, state in (("a", "running"), ("b", "waiting"), ("c", "finished")):
            Reporter(client).send(Report("p", query, state))
        assert states(client) == ["running", "waiting", "finished"]
        server.call(lambda: clock.advance(SILENT_S + 1))
        assert states(client) == ["silent", "silent", "finished"]
        Reporter(client).send(Report("p", "a", "running"))
        assert states(client) == ["running", "silent", "finished"]


def test_reports_go_to_the_server_that_the_pipeline_works_with() -> None:
    with serving() as here, serving() as there:
        specs = [Spec("a", "a.yaml"), Spec("b", "b.yaml", endpoint=there.url)]
        with Reporters(specs, Context(here.url)) as reporters:
            for name in "ab":
                reporters.send(Report(name, "out", "running"))
            reporters.beat()
        for server, name in ((here, "a"), (there, "b")):
            with Client(server.url) as client:
                assert [status.pipeline for status in read_status(client)] == [name]


def test_the_stream_of_a_pipeline_is_json_and_does_not_grow_for_ever(client: Client) -> None:
    Reporter(client).send(Report("a", "out", "running", 0, 10))
    stream = client.stream(BUCKET, "a")
    assert stream is not None and stream.content_type == "application/json"
    with urllib.request.urlopen(f"{client.endpoint}/v1/log/info/{BUCKET}/a") as answer:
        assert json.load(answer)["retention"]["records"] == 10_000


def test_a_report_that_cannot_be_sent_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), Client("http://127.0.0.1:1", retry_timeout_s=0) as gone:
        Reporter(gone).send(Report("a", "out", "running"))
    assert "progress of a was not recorded" in caplog.text


def test_what_others_write_to_the_stream_is_passed_over(client: Client) -> None:
    Reporter(client).send(Report("a", "out", "running", 0, 5))
    client.append(BUCKET, "a", encode_records([b"{}", b"7", b'{"pipeline": "a", "query": "out"}']))
    Reporter(client).send(Report("a", "out", "running", 1, 2))
    (status,) = read_status(client)
    assert (status.batches, status.rows) == (2, 7)


def test_the_lag_is_not_known_before_the_first_batch(client: Client) -> None:
    reporter = Reporter(client)
    reporter.send(Report("a", "out", "running"))
    assert [status.lag for status in read_status(client)] == [None]
    reporter.send(Report("a", "out", "waiting", 0, lag=7))
    assert [status.lag for status in read_status(client)] == [7]


def test_prometheus_reads_the_same_figures() -> None:
    metrics = Metrics()
    port = metrics.serve(0)
    for report in (
        Report("a", "out", "running"),
        Report("a", "out", "running", 0, 10, duration_ms=250, lag=7),
        Report("a", "out", "running", 1, 5, duration_ms=500, lag=2),
        Report("a", "bad", "failed", error="x"),
    ):
        metrics.note(report)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        page = answer.read().decode()
    labels = '{pipeline="a",query="out"}'
    for line in (
        f"headwater_pipeline_rows_total{labels} 15.0",
        f"headwater_pipeline_batches_total{labels} 2.0",
        f"headwater_pipeline_lag_records{labels} 2.0",
        f"headwater_pipeline_batch_seconds{labels} 0.5",
        f"headwater_pipeline_running{labels} 1.0",
        'headwater_pipeline_failures_total{pipeline="a",query="bad"} 1.0',
        'headwater_pipeline_running{pipeline="a",query="bad"} 0.0',
    ):
        assert line in page.splitlines()
