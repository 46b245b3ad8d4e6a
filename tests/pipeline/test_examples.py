"""Every example runs, and does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headwater.pipeline import files
from tests.pipeline.support import Desk
from tests.support.server import ServerProcess

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture
def example(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A server of its own: examples use the bucket that everybody has."""
    monkeypatch.chdir(tmp_path)
    with (
        ServerProcess(tmp_path / "data", "--memory") as server,
        Desk(spark, server.url, "durable-streams", tmp_path) as desk,
    ):
        yield desk


def run(example: Desk, file: str) -> None:
    feed = [sys.executable, str(EXAMPLES / "feed.py"), file.partition(".")[0]]
    subprocess.run(feed, check=True, env={**os.environ, "HEADWATER_URL": example.url})
    example.run_once(files.load(str(EXAMPLES / file)))


def test_clicks_become_hourly_figures(example: Desk) -> None:
    run(example, "clickstream.yaml")
    example.put("clicks/late", {"user": "u", "page": "/", "at": "2026-01-02T00:00:00Z"})
    example.run_once(files.load(str(EXAMPLES / "clickstream.yaml")))
    live = example.values("reports/clicks-hourly")
    assert {row["hour"][11:13] for row in live} == {"10", "11", "12", "13"}
    assert sum(row["clicks"] for row in live) == 35
    table = DeltaTable(str(example.folder / "lake" / "clicks_hourly")).to_pyarrow_table()
    assert table.num_rows == len(live)
    assert sum(table["clicks"].to_pylist()) == 35


def test_tokens_become_transcripts(example: Desk) -> None:
    run(example, "transcripts.py")
    found = sorted(example.values("transcripts"), key=lambda row: str(row["chat"]))
    assert [(row["chat"], row["message"], row["text"]) for row in found] == [
        ("chats/1/tokens", "m1", "Streams are logs."),
        ("chats/2/tokens", "m1", "And logs are streams."),
    ]


def test_changes_become_the_current_state(example: Desk) -> None:
    run(example, "current_state.yaml")
    table = DeltaTable(str(example.folder / "lake" / "customers")).to_pyarrow_table()
    rows = sorted(table.to_pylist(), key=lambda row: int(row["id"]))
    assert [(row["id"], row["name"], row["city"]) for row in rows] == [
        (1, "Ada", "Paris"),
        (3, "Alan", "Wilmslow"),
    ]
