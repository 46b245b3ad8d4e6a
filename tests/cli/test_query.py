"""`headwater query` as a user types it: what needs no Spark is told without it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from headwater.cli.main import main
from headwater.client import Client
from tests.cli.support import append_json
from tests.support.inprocess import serving
from tests.support.server import ServerProcess

NO_SERVER = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["select * from stream()"], 2, "stream() needs a name"),
        ([" "], 2, "there is no statement"),
        (["select 1", "--limit", "0"], 2, "--limit is a number from 1"),
        (["select 1", "--limit", str(2**31)], 2, "--limit is a number from 1"),
        (["select 1", "--url", "localhost:4437"], 2, "the endpoint is a URL such as"),
        (["select 1", "--conf", "spark"], 2, "--conf is KEY=VALUE"),
        (["select 1", "--cores", "0"], 2, "--cores is a number from 1"),
        (["select * from stream('a')", "--url", NO_SERVER], 1, f"no answer from {NO_SERVER}"),
        (["select * from lake('/nowhere')"], 1, "there is no delta table at /nowhere"),
    ],
)
def test_mistakes_are_told_before_spark_is_started(
    arguments: Sequence[str],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headwater.spark.session", pytest.fail)
    monkeypatch.setattr("headwater.pipeline.adhoc.RETRY_TIMEOUT_S", 0.0)
    assert main(["query", *arguments]) == code
    assert said in capsys.readouterr().err


def test_a_stream_that_is_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.spark.session", pytest.fail)
    with serving() as server:
        assert main(["query", "select * from stream('none')", "--url", server.url]) == 2
    assert capsys.readouterr().err == (
        "headwater: there is no stream none in the bucket durable-streams; "
        "bucket => 'b' names another\n"
    )


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_query_prints_a_table_of_rows_with_times_in_utc(tmp_path: Path) -> None:
    statement = (
        "select item, sum(price) as total, timestamp_seconds(0) as at from stream('orders/*') "
        "group by 1 order by 1"
    )
    with ServerProcess(tmp_path / "data", "--memory") as server, Client(server.url) as client:
        append_json(client, "orders/1", {"item": "a", "price": 1}, {"item": "b", "price": 2.5})
        append_json(client, "orders/2", {"item": "a", "price": 3}, {"item": "c", "price": 1})
        ended = subprocess.run(
            [sys.executable, "-m", "headwater", "query", "--limit", "2", statement],
            capture_output=True,
            text=True,
            env={**os.environ, "HEADWATER_URL": server.url, "TZ": "America/New_York"},
            check=False,
        )
    assert (ended.returncode, ended.stdout.splitlines()) == (
        0,
        [
            "item  total  at",
            "----  -----  -------------------",
            "a       4.0  1970-01-01T00:00:00",
            "b       2.5  1970-01-01T00:00:00",
            "(2 rows)",
        ],
    ), ended.stderr
    assert "headwater: these are the first 2 rows, and there are more" in ended.stderr
