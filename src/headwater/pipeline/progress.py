"""What pipelines report about themselves: one JSON record per batch, in a stream of their own.

The stream of a pipeline is `headwater-pipelines/{name}`, on the server that it works with. A report
that does not reach it is dropped: progress must never be why a pipeline fails. Only the newest
reports are kept, so each carries the sums of all before it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from headwater.client import Client, ClientError, StreamNotFound
from headwater.client.protocol import list_streams
from headwater.client.records import read_batches
from headwater.pipeline.context import Context
from headwater.pipeline.spec import Spec
from headwater.spark.offsets import lag
from headwater.spark.streams import OWN_BUCKET

log = logging.getLogger("headwater.pipeline")

BUCKET = OWN_BUCKET
RETENTION = "records=10000"
JSON = "application/json"
SEND_TIMEOUT_S = 5.0

COUNTED = "headwater_counted"
"""What a query counts itself, for which the rows that it reads say nothing: its dead letters."""

GOING = ("running", "waiting")
SILENT = "silent"
"""A query that should have reported and has not: its driver is gone, or cannot reach the server."""
BEAT_S = 30.0
"""A query that goes on is reported at least so often."""
SILENT_S = 90.0

EVERY_REPORT = frozenset(
    ("pipeline", "query", "state", "batch", "rows", "rows_per_s", "lag", "at", "error")
)
"""What the reports of all versions have."""

Key = tuple[str, str]
"""A pipeline and a query of it."""


@dataclass(frozen=True, slots=True)
class Report:
    """One batch, or the beginning or end of a query."""

    pipeline: str
    query: str
    state: str
    """running, waiting, finished, stopped or failed"""
    batch: int | None = None
    rows: int = 0
    rows_per_s: float = 0.0
    duration_ms: int = 0
    lag: int = 0
    """Records that the query has not read yet."""
    at: str | None = None
    error: str | None = None
    batches_total: int = 0
    """Batches with rows, of all runs."""
    rows_total: int = 0
    last_error: str | None = None

    @property
    def key(self) -> Key:
        return self.pipeline, self.query

    def encode(self) -> bytes:
        found = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(found).encode()


def report_of(pipeline: str, query: str, progress: Mapping[str, Any]) -> Report:
    """From a progress report of Spark."""
    rows = int(progress.get("numInputRows") or 0)
    counted = (progress.get("observedMetrics") or {}).get(COUNTED)
    if counted is not None:
        rows = _value(counted)
    return Report(
        pipeline,
        query,
        "running" if rows else "waiting",
        batch=progress.get("batchId"),
        rows=rows,
        rows_per_s=round(float(progress.get("processedRowsPerSecond") or 0.0), 1),
        duration_ms=int((progress.get("durationMs") or {}).get("triggerExecution") or 0),
        lag=sum(lag(_decoded(progress)).values()),
        at=progress.get("timestamp"),
    )


def _value(row: Iterable[Any]) -> int:
    """The one value of a row, 0 if it has none. Connect has a list of values, and a schema."""
    first = next(iter(row), 0)
    return _value(first) if isinstance(first, list) else int(first)


def _decoded(progress: Mapping[str, Any]) -> dict[str, Any]:
    """Spark hands out the offsets of a source as JSON in texts."""
    sources = []
    for source in progress.get("sources") or ():
        found = dict(source)
        for name in ("startOffset", "endOffset", "latestOffset"):
            if isinstance(found.get(name), str):
                try:
                    found[name] = json.loads(found[name])
                except ValueError:
                    found[name] = None
        sources.append(found)
    return {**progress, "sources": sources}


class Reporter:
    """Sends reports to one server, each with the sums of all that came before it."""

    def __init__(self, client: Client, now_s: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._now_s = now_s
        self._sums: dict[Key, Status] = {}
        self._begun: set[str] = set()
        """Pipelines whose earlier reports have been read."""
        self._last: dict[Key, tuple[Report, float]] = {}

    def send(self, report: Report) -> None:
        last = self._last.get(report.key)
        if last is not None and _says_nothing_new(last[0], report):
            return
        self._last[report.key] = report, self._now_s()
        try:
            self._append(self._summed(report))
        except ClientError as error:
            log.warning("progress of %s was not recorded: %s", report.pipeline, error)

    def beat(self) -> None:
        """Say again what goes on, where nothing was said for a while."""
        for last, sent_s in list(self._last.values()):
            if last.state in GOING and self._now_s() - sent_s >= BEAT_S:
                del self._last[last.key]
                self.send(replace(last, rows=0, rows_per_s=0.0, duration_ms=0))

    def _summed(self, report: Report) -> Report:
        if report.pipeline not in self._begun:
            for known in read_status(self._client, report.pipeline):
                self._sums[known.pipeline, known.query] = known
            self._begun.add(report.pipeline)
        sums = self._sums.setdefault(report.key, Status(*report.key))
        sums.batches += report.rows > 0
        sums.rows += report.rows
        sums.error = report.error or sums.error
        return replace(
            report,
            batches_total=sums.batches,
            rows_total=sums.rows,
            last_error=sums.error or None,
        )

    def _append(self, report: Report) -> None:
        body = _encode([report.encode()])
        try:
            self._client.append(BUCKET, report.pipeline, body)
        except StreamNotFound:
            headers = {"Stream-Retention": RETENTION}
            self._client.create(BUCKET, report.pipeline, JSON, headers)
            self._client.append(BUCKET, report.pipeline, body)


def _says_nothing_new(last: Report, report: Report) -> bool:
    return last.state == report.state == "waiting" and last.lag == report.lag


class Reporters:
    """A reporter for each server that the pipelines of a run work with."""

    def __init__(self, specs: Iterable[Spec], context: Context) -> None:
        self._clients = ExitStack()
        self._reporters: dict[str, Reporter] = {}
        self._endpoints: dict[str, str] = {}
        for spec in specs:
            own = context.for_spec(spec)
            self._endpoints[spec.name] = own.endpoint
            if own.endpoint not in self._reporters:
                client = self._clients.enter_context(own.client(retry_timeout_s=SEND_TIMEOUT_S))
                self._reporters[own.endpoint] = Reporter(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clients.close()

    def send(self, report: Report) -> None:
        self._reporters[self._endpoints[report.pipeline]].send(report)

    def beat(self) -> None:
        for each in self._reporters.values():
            each.beat()


def _encode(bodies: Iterable[bytes]) -> Any:
    table = pa.table({"body": pa.array(list(bodies), pa.binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


# -- reading it back


@dataclass(slots=True)
class Status:
    """A query as its reports show it."""

    pipeline: str
    query: str
    state: str = ""
    batches: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    lag: int | None = None
    """None until the first batch has ended."""
    at: str = ""
    error: str = ""


def read_status(client: Client, pipeline: str | None = None) -> list[Status]:
    """Every query of one pipeline, or of all that ever reported."""
    found: dict[Key, Status] = {}
    now_ms = _now_ms(client)
    for stream in client.streams(bucket=BUCKET):
        if pipeline is not None and stream.name != pipeline:
            continue
        batches = read_batches(
            client,
            BUCKET,
            stream.name,
            first=stream.first,
            end=stream.tail,
            stream_id=stream.id,
        )
        for batch in batches:
            times = batch.column("timestamp").cast(pa.int64()).to_pylist()
            for body, sent_ms in zip(batch.column("body").to_pylist(), times, strict=True):
                report = _decode(body)
                if report is not None:
                    _fold(found, report, silent=now_ms - sent_ms > SILENT_S * 1000)
    return [found[key] for key in sorted(found)]


def _decode(body: bytes) -> Mapping[str, Any] | None:
    """None for what others have written to the stream."""
    try:
        report = json.loads(body)
    except ValueError:
        return None
    return report if isinstance(report, dict) and report.keys() >= EVERY_REPORT else None


def _now_ms(client: Client) -> float:
    """By the clock of the server, which also says when a report was sent."""
    headers, _ = client.fetch(list_streams(bucket=BUCKET, limit=1))
    return parsedate_to_datetime(headers["date"]).timestamp() * 1000


def _fold(found: dict[Key, Status], report: Mapping[str, Any], *, silent: bool) -> None:
    key = report["pipeline"], report["query"]
    status = found.setdefault(key, Status(*key))
    status.state = SILENT if silent and report["state"] in GOING else report["state"]
    status.at = report["at"] or status.at
    # Reports of versions before there were sums have none: what was known before stays.
    status.error = report.get("last_error") or report["error"] or ""
    status.batches = report.get("batches_total", status.batches)
    status.rows = report.get("rows_total", status.rows)
    if report["rows"]:
        status.rows_per_s = report["rows_per_s"]
    if report["batch"] is not None:
        status.lag = report["lag"]
