"""The metrics page, in Prometheus' text format.

Everything is counted in plain attributes where it happens and read here when somebody asks, so
the hot path knows nothing of Prometheus.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from headwater.dialects.common import NO_STORE, SECURITY_HEADERS
from headwater.engine.committer import COMMIT_SECONDS_BOUNDS
from headwater.engine.engine import Engine
from headwater.server.limits import RateLimiter
from headwater.server.serving import Serving
from headwater.server.traffic import Traffic
from headwater.version import VERSION
from headwater.wire.http import Response

_HEADERS = SECURITY_HEADERS.extended(
    (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"), NO_STORE
)

_METHOD_CLASSES = {
    "GET": "read",
    "HEAD": "read",
    "POST": "write",
    "PUT": "write",
    "PATCH": "write",
    "DELETE": "write",
}

_STORE_FIGURES = {
    "memtable_bytes": "Bytes in memtables, not yet in a file of their own.",
    "sst_bytes": "Bytes in sorted files.",
    "pending_compaction_bytes": "Bytes that compaction has still to rewrite.",
    "block_cache_bytes": "Bytes in the cache of blocks read.",
    "keys": "Keys, about.",
}


class Metrics:
    """Renders the page for one server."""

    def __init__(
        self,
        *,
        engine: Engine,
        serving: Serving,
        traffic: Traffic,
        limiter: RateLimiter | None,
        connections_max: int,
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_EngineFigures(engine))
        self._registry.register(_TrafficFigures(serving, traffic, limiter, connections_max))
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def page(self) -> Response:
        return Response(200, (), generate_latest(self._registry), base=_HEADERS)


class _Figures(Collector):
    """Describes nothing ahead: asking for names would take all the figures."""

    def describe(self) -> Iterable[Metric]:
        return ()


class _EngineFigures(_Figures):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        yield _gauge("headwater_info", "The version that runs.", 1, version=VERSION)
        yield from self._commits()
        yield from self._streams()
        yield from self._store()

    def _commits(self) -> Iterator[Metric]:
        engine = self._engine
        figures = engine.committer.figures
        yield _gauge(
            "headwater_ready", "1 while commits succeed; 0 once storage failed.", engine.ready
        )
        yield _counter("headwater_appends", "Appends accepted.", engine.shard.appends_total)
        yield _counter(
            "headwater_append_bytes",
            "Body bytes of appends accepted.",
            engine.shard.append_bytes_total,
        )
        yield HistogramMetricFamily(
            "headwater_commit_seconds",
            "Time of a commit, from gathering its commands to answering them.",
            buckets=[
                (str(bound), count)
                for bound, count in zip(
                    (*COMMIT_SECONDS_BOUNDS, "+Inf"), accumulate(figures.durations), strict=True
                )
            ],
            sum_value=figures.seconds,
        )
        yield SummaryMetricFamily(
            "headwater_sync_seconds",
            "Time of a sync to disk.",
            count_value=figures.syncs,
            sum_value=figures.sync_seconds,
        )
        yield _counter(
            "headwater_commit_commands",
            "Commands committed; over the commits, their mean size.",
            figures.commands,
        )
        yield _counter("headwater_commit_bytes", "Body bytes committed.", figures.bytes)
        yield _gauge(
            "headwater_queue_commands",
            "Commands that wait for their commit.",
            engine.committer.queue_commands,
        )
        yield _gauge(
            "headwater_queue_bytes", "Bytes of those commands.", engine.committer.queue_bytes
        )
        yield _counter(
            "headwater_write_stalls", "Writes the store asked to try again.", figures.stalls
        )

    def _streams(self) -> Iterator[Metric]:
        engine, packer = self._engine, self._engine.packer
        yield _gauge("headwater_followers", "Live readers.", engine.followers)
        yield _gauge(
            "headwater_hot_streams",
            "Streams whose state is held in memory.",
            engine.shard.hot_streams(),
        )
        yield _gauge(
            "headwater_packing_debt_runs", "Small runs that wait to be packed.", packer.debt_runs
        )
        yield _counter("headwater_packed_chunks", "Chunks made by packing.", packer.chunks_total)
        yield _counter("headwater_packed_bytes", "Bytes packed.", packer.bytes_total)

    def _store(self) -> Iterator[Metric]:
        store = self._engine.store
        low = self._engine.sweeper.disk_low
        yield _gauge("headwater_disk_low", "1 while writes are refused for lack of space.", low)
        yield _gauge("headwater_store_bytes", "Bytes the store takes.", store.size_bytes())
        for name, value in store.stats().items():
            about = _STORE_FIGURES.get(name, "A figure of the store.")
            yield _gauge(f"headwater_store_{name}", about, value)


class _TrafficFigures(_Figures):
    def __init__(
        self,
        serving: Serving,
        traffic: Traffic,
        limiter: RateLimiter | None,
        connections_max: int,
    ) -> None:
        self._serving = serving
        self._traffic = traffic
        self._limiter = limiter
        self._connections_max = connections_max

    def collect(self) -> Iterator[Metric]:
        serving, traffic, limiter = self._serving, self._traffic, self._limiter
        yield _gauge("headwater_connections", "Open connections.", len(serving.connections))
        yield _gauge(
            "headwater_connections_max",
            "How many there can be: the setting, or what the limit on open files leaves.",
            self._connections_max,
        )
        yield _counter(
            "headwater_connections_accepted",
            "Connections since the start.",
            serving.connections_total,
        )
        yield _counter(
            "headwater_connections_refused",
            "Connections closed at once because there were too many.",
            traffic.connections_refused_total,
        )
        yield _counter(
            "headwater_rate_limited",
            "Requests refused because their client made too many.",
            0 if limiter is None else limiter.refused_total,
        )
        yield _counter(
            "headwater_response_bytes", "Body bytes of responses.", traffic.response_bytes_total
        )
        yield self._responses()

    def _responses(self) -> Metric:
        sums: dict[tuple[str, str], int] = defaultdict(int)
        for (method, hundreds), count in list(self._traffic.responses.items()):
            sums[_METHOD_CLASSES.get(method, "other"), f"{hundreds}xx"] += count
        found = CounterMetricFamily(
            "headwater_requests",
            "Requests answered, by kind of method and of status.",
            labels=("method", "status"),
        )
        for labels, count in sorted(sums.items()):
            found.add_metric(labels, count)
        return found


def _gauge(name: str, about: str, value: float, **labels: str) -> Metric:
    found = GaugeMetricFamily(name, about, labels=tuple(labels))
    found.add_metric(tuple(labels.values()), value)
    return found


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(name, about, value=value)
