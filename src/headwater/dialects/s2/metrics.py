"""Usage over time: GET /metrics, /metrics/{basin}, /metrics/{basin}/{stream}. S2 API: metrics.

An accumulation has what was counted per interval, and leaves out intervals without anything. A
gauge has what was stored at the end of each interval.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headwater.core.access import Grant
from headwater.core.errors import BucketNotFound, InvalidRequest
from headwater.dialects.common import ERROR_HEADERS
from headwater.dialects.s2.bodies import parse_query
from headwater.dialects.s2.errors import Refused
from headwater.dialects.s2.routes import Handler
from headwater.dialects.s2.targets import Target
from headwater.engine.engine import Engine
from headwater.engine.steps import follow
from headwater.engine.stored import Stored
from headwater.engine.tally import (
    ACCOUNT,
    APPEND_BYTES,
    APPENDS,
    OPERATIONS,
    READ_BYTES,
    READS,
)
from headwater.engine.usage import DAY_S, Interval, Point, Usage
from headwater.wire.http import Answer, Request, Response

TIME_MAX = 2**32 - 1

ACCOUNT_SETS = ("active-basins", "account-ops", "estimated-billable-usage")
BASIN_SETS = (
    "storage",
    "append-ops",
    "read-ops",
    "read-throughput",
    "append-throughput",
    "basin-ops",
)
STREAM_SETS = ("storage",)
PARAMETERS = ("set", "start", "end", "interval")

RANGE_S_MAX = 31 * DAY_S
AHEAD_S_MAX = 300
"""How far the clock of a client may be ahead."""

_encode = msgspec.json.Encoder().encode


class Counted(NamedTuple):
    """How a set of accumulations is made of the counts of a basin."""

    prefix: str
    """Of the counts that belong to it; what follows names each one."""
    unit: str


_COUNTED = {
    "account-ops": Counted(f"{OPERATIONS}/", "operations"),
    "basin-ops": Counted(f"{OPERATIONS}/", "operations"),
    "append-ops": Counted(f"{APPENDS}/", "operations"),
    "append-throughput": Counted(f"{APPEND_BYTES}/", "bytes"),
    "read-ops": Counted(f"{READS}/", "operations"),
    "read-throughput": Counted(READ_BYTES, "bytes"),
}


class Query(NamedTuple):
    """Which figures, of what time."""

    set: str
    start_s: int
    end_s: int
    interval: Interval


class MetricsEndpoints:
    """The three rows of the table of routes."""

    def __init__(self, engine: Engine, usage: Usage, stored: Stored) -> None:
        self._engine = engine
        self._usage = usage
        self._stored = stored

    def handlers(self) -> dict[tuple[str, str], Handler]:
        return {
            ("GET", "metrics"): self.account,
            ("GET", "metrics/{basin}"): self.basin,
            ("GET", "metrics/{basin}/{stream}"): self.stream,
        }

    def account(self, request: Request, target: Target) -> Answer:
        """GET /metrics."""
        query = self._parse(request, ACCOUNT_SETS, Interval.HOUR)
        if query.set == "active-basins":
            names = self._stored.active(start_s=query.start_s, end_s=query.end_s)
            return names.then(lambda found: _render_active(found, request.grant))
        if query.set == "estimated-billable-usage":
            # A server of one's own sends no bills.
            return _render([{"scalar": {"name": "total", "unit": "usd", "value": 0}}])
        return self._accumulated(ACCOUNT, query)

    def basin(self, request: Request, target: Target) -> Answer:
        """GET /metrics/{basin}."""
        if self._engine.bucket(target.basin) is None:
            raise BucketNotFound(target.basin)
        if parse_query(request, PARAMETERS).get("set") != "storage":
            return self._accumulated(
                target.basin, self._parse(request, BASIN_SETS, Interval.MINUTE)
            )
        query = self._parse(request, BASIN_SETS, Interval.HOUR, not_for=(Interval.MINUTE,))
        points = self._stored.of_bucket(
            target.basin, query.interval, start_s=query.start_s, end_s=query.end_s
        )
        return follow(points, _render_gauge)

    def stream(self, request: Request, target: Target) -> Answer:
        """GET /metrics/{basin}/{stream}."""
        engine = self._engine
        if engine.bucket(target.basin) is None:
            raise BucketNotFound(target.basin)
        coarse = (Interval.HOUR, Interval.DAY)
        query = self._parse(request, STREAM_SETS, Interval.MINUTE, not_for=coarse)

        def look() -> Response:
            return _render_gauge(
                self._stored.of_stream(
                    engine.open(target.basin, target.name),
                    query.interval,
                    start_s=query.start_s,
                    end_s=query.end_s,
                )
            )

        return engine.when_settled(target.basin, target.name, look)

    def _accumulated(self, bucket: str, query: Query) -> Answer:
        counted = _COUNTED[query.set]
        series = self._usage.series(
            bucket, query.interval, start_s=query.start_s, end_s=query.end_s
        )

        def render(found: dict[str, list[Point]]) -> Response:
            return _render(
                [
                    {
                        "accumulation": {
                            "name": kind.removeprefix(counted.prefix) or query.set,
                            "unit": counted.unit,
                            "interval": query.interval.value,
                            "values": points,
                        }
                    }
                    for kind, points in sorted(found.items())
                    if kind.startswith(counted.prefix)
                ]
            )

        return series.then(render)

    def _parse(
        self,
        request: Request,
        sets: tuple[str, ...],
        default: Interval,
        *,
        not_for: tuple[Interval, ...] = (),
    ) -> Query:
        """`not_for` are the intervals that the set is not kept by."""
        query = parse_query(request, PARAMETERS)
        name = query.get("set")
        if name not in sets:
            raise Refused("bad_query", f"set is one of {', '.join(sets)}. received={name!r}")
        interval = _interval(query, default)
        if interval in not_for:
            raise InvalidRequest(f"{name} has another interval here. received={interval.value}")
        start_s, end_s = _time(query, "start"), _time(query, "end")
        if start_s > end_s:
            raise InvalidRequest(f"start is after end. start={start_s} end={end_s}")
        if end_s > self._usage.now_s() + AHEAD_S_MAX:
            raise InvalidRequest(f"end is in the future. end={end_s}")
        if end_s - start_s > RANGE_S_MAX:
            raise InvalidRequest(f"ask for {RANGE_S_MAX // DAY_S} days at most at a time")
        return Query(name, start_s, end_s, interval)


def _interval(query: dict[str, str], default: Interval) -> Interval:
    text = query.get("interval", default.value)
    try:
        return Interval(text)
    except ValueError:
        allowed = ", ".join(interval.value for interval in Interval)
        raise Refused("bad_query", f"interval is one of {allowed}. received={text!r}") from None


def _time(query: dict[str, str], name: str) -> int:
    text = query.get(name)
    if text is None:
        raise InvalidRequest(f"say from when to when: {name} is missing")
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= TIME_MAX):
        raise Refused("bad_query", f"{name} is in seconds since 1970. received={text!r}")
    return int(text)


def _render_active(basins: list[str], grant: Grant | None) -> Response:
    """Those that the client may know of."""
    seen = [name for name in basins if grant is None or grant.sees_basin(name)]
    return _render([{"label": {"name": "active-basins", "values": seen}}])


def _render_gauge(points: list[Point]) -> Response:
    return _render([{"gauge": {"name": "storage", "unit": "bytes", "values": points}}])


def _render(values: list[dict[str, object]]) -> Response:
    return Response(200, (), _encode({"values": values}), base=ERROR_HEADERS)
