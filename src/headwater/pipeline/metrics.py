"""Figures of running pipelines for Prometheus, served on a port of their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from headwater.pipeline.progress import Report

LABELS = ("pipeline", "query")


class Metrics:
    """What the reports of a run add up to."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.rows = Counter("headwater_pipeline_rows", "Rows read", LABELS, registry=self.registry)
        self.batches = Counter(
            "headwater_pipeline_batches", "Batches with rows", LABELS, registry=self.registry
        )
        self.failures = Counter(
            "headwater_pipeline_failures", "Queries that failed", LABELS, registry=self.registry
        )
        self.lag = Gauge(
            "headwater_pipeline_lag_records", "Records not read yet", LABELS, registry=self.registry
        )
        self.batch_seconds = Gauge(
            "headwater_pipeline_batch_seconds",
            "Time of the last batch",
            LABELS,
            registry=self.registry,
        )
        self.running = Gauge(
            "headwater_pipeline_running", "1 while the query runs", LABELS, registry=self.registry
        )

    def serve(self, port: int, host: str = "127.0.0.1") -> int:
        """Returns the port, which the system chooses if it is 0."""
        server, _ = start_http_server(port, host, self.registry)
        return int(server.server_port)

    def note(self, report: Report) -> None:
        labels = (report.pipeline, report.query)
        self.running.labels(*labels).set(report.state in ("running", "waiting"))
        if report.state == "failed":
            self.failures.labels(*labels).inc()
        if report.batch is None:
            return
        self.lag.labels(*labels).set(report.lag)
        if report.rows:
            self.rows.labels(*labels).inc(report.rows)
            self.batches.labels(*labels).inc()
            self.batch_seconds.labels(*labels).set(report.duration_ms / 1000)
