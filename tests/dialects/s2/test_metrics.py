"""Usage over the S2 API: what every dialect did, in the shapes of the API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from s2_sdk import (
    AccountMetricSet,
    Accumulation,
    BasinMetricSet,
    Gauge,
    Label,
    MetricUnit,
    StreamMetricSet,
    TimeseriesInterval,
)

from tests.support.clock import FakeClock
from tests.support.inprocess import ServingThread, serving
from tests.support.s2_sdk import connect

BASIN = "basin-of-tests"
START_S = 1_800_000_000  # a whole hour
DAY_S = 86_400
TEXT = {"content-type": "text/plain"}


class Measured:
    """A server, its clock, and what it says of its use."""

    def __init__(self, server: ServingThread, clock: FakeClock) -> None:
        self.server = server
        self.clock = clock
        limits = httpx.Limits(max_keepalive_connections=0)  # time may pass in between
        self.http = httpx.Client(
            base_url=server.url,
            headers={"s2-basin": BASIN},
            trust_env=False,
            timeout=10,
            limits=limits,
        )
        self.ask("PUT", f"/v1/basins/{BASIN}")
        self.ask("PUT", "/v1/streams/s")

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        answer = self.http.request(method, path, **given)
        assert answer.is_success, answer.text
        return answer

    def append(self, *bodies: str) -> None:
        records = [{"body": body} for body in bodies]
        self.ask("POST", "/v1/streams/s/records", json={"records": records})

    def advance(self, seconds: float) -> None:
        self.server.call(lambda: self.clock.advance(seconds))

    def metrics(self, path: str, **query: Any) -> list[dict[str, Any]]:
        query = {"start": START_S - 3600, "end": START_S + 300, **query}
        found: list[dict[str, Any]] = self.ask("GET", f"/v1/metrics{path}", params=query).json()[
            "values"
        ]
        return found

    def accumulated(self, path: str, **query: Any) -> dict[str, list[list[int]]]:
        """Values by name, seconds counted from the start of the test."""
        found = [value["accumulation"] for value in self.metrics(path, **query)]
        return {
            each["name"]: [[at_s - START_S, count] for at_s, count in each["values"]]
            for each in found
        }


@contextmanager
def measuring(**settings: Any) -> Iterator[Measured]:
    clock = FakeClock(START_S * 1000)
    with serving(clock=clock, **settings) as server:
        found = Measured(server, clock)
        yield found
        found.http.close()


@pytest.fixture
def measured() -> Iterator[Measured]:
    with measuring() as found:
        yield found


def test_usage_survives_a_restart(tmp_path: Path) -> None:
    on_disk = {"memory": False, "data_dir": str(tmp_path)}
    with measuring(**on_disk) as measured:
        measured.append("12345")
    with measuring(**on_disk) as measured:
        measured.append("67")
        found = measured.accumulated(f"/{BASIN}", set="append-throughput")
        assert found == {"express": [[0, 7]]}


def test_appends_of_every_dialect_count(measured: Measured) -> None:
    measured.append("12345", "67890")
    measured.ask("PUT", f"/{BASIN}/t", headers=TEXT, content=b"abc")
    measured.ask("POST", f"/{BASIN}/t", headers=TEXT, content=b"abc")
    measured.advance(60)
    measured.append("1")
    path = f"/{BASIN}"
    assert measured.accumulated(path, set="append-ops") == {"express": [[0, 3], [60, 1]]}
    assert measured.accumulated(path, set="append-throughput") == {"express": [[0, 16], [60, 1]]}
    hour = measured.accumulated(path, set="append-ops", interval="hour")
    assert hour == {"express": [[0, 4]]}
    (value,) = measured.metrics(path, set="append-throughput", interval="hour")
    assert value["accumulation"]["unit"] == "bytes"
    assert value["accumulation"]["interval"] == "hour"


def test_appends_are_told_apart_by_storage_class(measured: Measured) -> None:
    measured.ask("PATCH", "/v1/streams/s", json={"storage_class": "standard"})
    measured.append("x")
    assert measured.accumulated(f"/{BASIN}", set="append-ops") == {"standard": [[0, 1]]}


def test_reads_of_every_dialect_count(measured: Measured) -> None:
    measured.append("1234567890")
    measured.ask("GET", "/v1/streams/s/records?seq_num=0")
    measured.ask("GET", f"/{BASIN}/s")
    measured.ask("GET", f"/v1/log/records/{BASIN}/s")
    measured.ask("GET", f"/{BASIN}/s/bootstrap")
    with measured.http.stream("GET", f"/{BASIN}/s?offset=-1&live=sse") as live:
        assert next(live.iter_lines())
    session = {"accept": "text/event-stream"}
    measured.ask("GET", "/v1/streams/s/records?seq_num=0&count=1", headers=session)
    measured.ask("GET", "/v1/streams/s/records/tail")
    while measured.server.call(lambda: measured.server.server.engine.followers):
        pass  # the live reader's end has not been noticed yet
    found = measured.accumulated(f"/{BASIN}", set="read-ops")
    assert found == {"streaming": [[0, 4]], "unary": [[0, 2]]}
    (bytes_read,) = measured.accumulated(f"/{BASIN}", set="read-throughput").values()
    # Six readers of ten bytes; S2 meters eight more for each record.
    assert bytes_read == [[0, 6 * 10 + 2 * 8]]


def test_operations_count_for_the_basin_or_the_account(measured: Measured) -> None:
    measured.ask("PUT", f"/{BASIN}/t", headers=TEXT)
    measured.ask("DELETE", f"/{BASIN}/t")
    measured.ask("GET", f"/{BASIN}/streams")
    measured.ask("GET", "/v1/streams")
    measured.ask("GET", f"/v1/log/info/{BASIN}/s")
    measured.ask("GET", "/v1/streams/s")
    assert measured.accumulated(f"/{BASIN}", set="basin-ops") == {
        "create-stream": [[0, 2]],
        "delete-stream": [[0, 1]],
        "get-stream-config": [[0, 2]],
        "list-streams": [[0, 2]],
    }
    measured.ask("GET", "/v1/basins")
    measured.ask("GET", f"/{BASIN}")
    measured.ask("GET", "/v1/access-tokens")
    found = measured.accumulated("", set="account-ops")
    assert found["create-basin"] == [[0, 1]]
    assert found["list-basins"] == [[0, 1]]
    assert found["get-basin-config"] == [[0, 1]]
    assert found["list-access-tokens"] == [[0, 1]]
    assert not any(name.endswith("-stream") for name in found)


def test_operations_are_told_by_the_hour_unless_asked_otherwise(measured: Measured) -> None:
    for value in measured.metrics("", set="account-ops"):
        assert value["accumulation"]["interval"] == "hour"


def test_what_is_refused_counts_for_nobody(measured: Measured) -> None:
    assert measured.http.get("/v1/streams/none").status_code == 404
    assert measured.http.post("/v1/streams", json={"stream": ""}).status_code == 400
    found = measured.accumulated(f"/{BASIN}", set="basin-ops")
    assert found == {"create-stream": [[0, 1]]}


def test_storage_is_a_gauge(measured: Measured) -> None:
    measured.append("12345")
    expected = {"name": "storage", "unit": "bytes", "values": [[START_S, 5]]}
    assert measured.metrics(f"/{BASIN}", set="storage") == [{"gauge": expected}]
    assert measured.metrics(f"/{BASIN}/s", set="storage") == [{"gauge": expected}]
    measured.advance(60)
    measured.append("678")
    (minutes,) = measured.metrics(f"/{BASIN}/s", set="storage", interval="minute")
    assert minutes["gauge"]["values"] == [[START_S, 5], [START_S + 60, 8]]


def test_basins_with_streams_are_active(measured: Measured) -> None:
    measured.ask("POST", "/v1/basins", json={"basin": "empty-basin"})
    (label,) = measured.metrics("", set="active-basins", end=START_S + 60)
    assert label == {"label": {"name": "active-basins", "values": [BASIN]}}


def test_nobody_is_billed(measured: Measured) -> None:
    (scalar,) = measured.metrics("", set="estimated-billable-usage")
    assert scalar == {"scalar": {"name": "total", "unit": "usd", "value": 0}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", (400, "bad_query")),
        ("?set=storage", (400, "bad_query")),
        (f"/{BASIN}?set=account-ops", (400, "bad_query")),
        (f"/{BASIN}/s?set=append-ops", (400, "bad_query")),
        ("?set=account-ops&start=soon&end=9", (400, "bad_query")),
        ("?set=account-ops&start=0&end=-1", (400, "bad_query")),
        ("?set=account-ops&start=0&end=99999999999", (400, "bad_query")),
        ("?set=account-ops&interval=week", (400, "bad_query")),
        ("?set=account-ops", (422, "invalid")),
        (f"?set=account-ops&start={START_S}", (422, "invalid")),
        (f"?set=account-ops&end={START_S}", (422, "invalid")),
        (f"?set=account-ops&start={START_S}&end={START_S + 400}", (422, "invalid")),
        (f"?set=account-ops&start={START_S - 40 * DAY_S}&end={START_S}", (422, "invalid")),
        (f"/{BASIN}?set=storage&interval=minute&start=0&end=9", (422, "invalid")),
        (f"/{BASIN}/s?set=storage&interval=hour&start=0&end=9", (422, "invalid")),
        ("?set=account-ops&set=%ff", (400, "bad_query")),
        (f"/{BASIN}?set=storage&set=storage", (400, "bad_query")),
        (f"?set=account-ops&start=0&start={START_S}&end={START_S}", (400, "bad_query")),
        ("?set=account-ops&start=2&end=1", (422, "invalid")),
        ("/no-such-basin?set=storage", (404, "basin_not_found")),
        ("/no-such-basin/s?set=storage", (404, "basin_not_found")),
        (f"/{BASIN}/none?set=storage&start=0&end=9", (404, "stream_not_found")),
        ("/X?set=storage", (400, "bad_path")),
    ],
)
def test_bad_questions_get_the_code_of_the_api(
    measured: Measured, path: str, expected: tuple[int, str]
) -> None:
    answer = measured.http.get(f"/v1/metrics{path}")
    assert (answer.status_code, answer.json()["code"]) == expected


def test_the_official_sdk_reads_all_of_it(measured: Measured) -> None:
    measured.append("12345")

    async def main() -> None:
        async with connect(measured.server.url) as s2:
            whole: dict[str, Any] = {"start": START_S - 60, "end": START_S + 60}
            basins = await s2.account_metrics(set=AccountMetricSet.ACTIVE_BASINS, **whole)
            assert basins == [Label("active-basins", [BASIN])]
            for kind in AccountMetricSet:
                assert await s2.account_metrics(set=kind, **whole)
            interval = TimeseriesInterval.MINUTE
            (ops,) = await s2.basin_metrics(
                BASIN, set=BasinMetricSet.APPEND_OPS, interval=interval, **whole
            )
            expected = Accumulation("express", MetricUnit.OPERATIONS, interval, [(START_S, 1)])
            assert ops == expected
            for each in BasinMetricSet:
                await s2.basin_metrics(BASIN, set=each, **whole)
            (stored,) = await s2.stream_metrics(BASIN, "s", set=StreamMetricSet.STORAGE, **whole)
            assert stored == Gauge("storage", MetricUnit.BYTES, [(START_S, 5)])

    asyncio.run(main())
