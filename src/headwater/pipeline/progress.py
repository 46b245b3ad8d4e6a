"""What pipelines report about themselves: one JSON record per batch, in a stream of their own.

The stream of a pipeline is `headwater-pipelines/{name}`. A report that does not reach the server is
dropped: progress must never be why a pipeline fails.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.client import Client, ClientError, StreamNotFound
from headwater.client.records import read_batches
from headwater.spark.offsets import lag
from headwater.spark.streams import OWN_BUCKET

log = logging.getLogger("headwater.pipeline")

BUCKET = OWN_BUCKET
RETENTION = "records=10000"
JSON = "application/json"
ERROR_CHARS_MAX = 2000


@dataclass(frozen=True, slots=True)
class Report:
    """One batch, or the beginning or end of a query."""

    pipeline: str
    query: str
    state: str
    """running, waiting, finished or failed"""
    batch: int | None = None
    rows: int = 0
    rows_per_s: float = 0.0
    duration_ms: int = 0
    lag: int = 0
    """Records that the query has not read yet."""
    at: str | None = None
    error: str | None = None

    def encode(self) -> bytes:
        found = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(found).encode()


def report_of(pipeline: str, query: str, progress: Mapping[str, Any]) -> Report:
    """From a progress report of Spark."""
    rows = int(progress.get("numInputRows") or 0)
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


def last_words(error: BaseException | str) -> str:
    """The first lines of an error: Java's are pages long."""
    text = str(error)
    return text.partition("\n\nJVM stacktrace")[0][:ERROR_CHARS_MAX].strip()


class Reporter:
    """Sends reports."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def send(self, report: Report) -> None:
        body = _encode([report.encode()])
        try:
            try:
                self._client.append(BUCKET, report.pipeline, body)
            except StreamNotFound:
                headers = {"Stream-Retention": RETENTION}
                self._client.create(BUCKET, report.pipeline, JSON, headers)
                self._client.append(BUCKET, report.pipeline, body)
        except ClientError as error:
            log.warning("progress of %s was not recorded: %s", report.pipeline, error)


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
    lag: int = 0
    at: str = ""
    error: str = ""


def read_status(client: Client, pipeline: str | None = None) -> list[Status]:
    """Every query of one pipeline, or of all that ever reported."""
    found: dict[tuple[str, str], Status] = {}
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
            for body in batch.column("body").to_pylist():
                _fold(found, json.loads(body))
    return [found[key] for key in sorted(found)]


def _fold(found: dict[tuple[str, str], Status], report: Mapping[str, Any]) -> None:
    key = report["pipeline"], report["query"]
    status = found.setdefault(key, Status(*key))
    status.state = report["state"]
    status.at = report["at"] or status.at
    if report["error"]:
        status.error = report["error"]
    if report["rows"]:
        status.batches += 1
        status.rows += report["rows"]
        status.rows_per_s = report["rows_per_s"]
    if report["batch"] is not None:
        status.lag = report["lag"]
