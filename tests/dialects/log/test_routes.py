"""Paths and methods of the native API, and its page of figures."""

from __future__ import annotations

import pytest

from headwater.core.names import NameRules
from headwater.engine import stats
from tests.support.durable import NOW_MS
from tests.support.log import LogServer


@pytest.mark.parametrize(
    "path",
    [
        "",
        "nothing",
        "streams/",
        "streams/x",
        "stats/x",
        "records",
        "records/",
        "records/b",
        "info/b/",
    ],
)
def test_other_paths_are_404(server: LogServer, path: str) -> None:
    reply = server.fetch(path)
    assert (reply.status, reply.error) == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("streams", "GET, HEAD, OPTIONS"),
        ("records/b/s", "GET, HEAD, POST, OPTIONS"),
        ("info/b/s", "GET, HEAD, OPTIONS"),
        ("stats", "GET, HEAD, OPTIONS"),
        ("openapi.json", "GET, HEAD, OPTIONS"),
    ],
)
def test_other_methods_are_405(server: LogServer, path: str, allowed: str) -> None:
    for method in ("PUT", "DELETE", "PATCH"):
        reply = server.fetch(path, method=method)
        assert (reply.status, reply.error) == (405, "method_not_allowed")
        assert reply.headers["allow"] == allowed
    preflight = server.fetch(path, method="OPTIONS")
    assert (preflight.status, preflight.headers["access-control-allow-methods"]) == (204, allowed)


@pytest.mark.parametrize("bucket", ["v1", "__x", "a%2Fb", "a%20b", "x" * 65, ".."])
def test_a_bucket_that_cannot_be_is_refused(server: LogServer, bucket: str) -> None:
    reply = server.fetch(f"records/{bucket}/s")
    assert (reply.status, reply.error) == (400, "invalid_request")
    assert "bucket" in reply.message


def test_names_follow_the_rules_of_the_server() -> None:
    with LogServer(names=NameRules.STRICT) as server:
        assert server.fetch("records/abc/s").status == 400
        assert server.fetch("records/abcd/" + "x" * 123).status == 400
        assert server.fetch("records/abcd/s").status == 404


def test_figures_are_sampled_every_second(server: LogServer) -> None:
    server.make("s")
    server.advance(1)
    for _ in range(3):
        server.append("s", b"x" * 10)
    server.add("s", [b"y" * 10, b"z" * 10])
    server.advance(2)
    found = server.fetch("stats").json
    assert (found["now_ms"], found["started_at_ms"]) == (NOW_MS + 3000, NOW_MS)
    series = found["series"]
    assert series["at_ms"] == [NOW_MS + 1000, NOW_MS + 2000, NOW_MS + 3000]
    assert series["appends_per_s"] == [0.0, 4.0, 0.0]
    assert series["append_bytes_per_s"] == [0.0, 50.0, 0.0]
    assert series["commits_per_s"] == [1.0, 4.0, 0.0]
    assert series["commit_ms"] == [0.0, 0.0, None]
    assert {len(figures) for figures in series.values()} == {3}
    assert (found["totals"]["appends"], found["totals"]["append_bytes"]) == (4, 50)
    assert found["gauges"]["hot_streams"] == 1


def test_figures_are_kept_for_ten_minutes(server: LogServer) -> None:
    server.clock.advance(900)
    series = server.fetch("stats").json["series"]
    assert len(series["at_ms"]) == stats.SAMPLES_MAX == 600
    assert series["at_ms"][-1] == NOW_MS + 900_000
    server.stats.stop()
    server.clock.advance(10)
    assert server.fetch("stats").json["series"]["at_ms"][-1] == NOW_MS + 900_000
    server.stats.stop()
