"""On a standalone cluster: speculation, and executors that have nothing of ours installed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.spark.cluster import SETTINGS, Cluster, bare_python, package
from tests.spark.driving import driving
from tests.spark.support import Streams, numbers

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "500ms",
}


def test_a_speculated_task_writes_once_on_executors_with_nothing_but_py_files(
    cluster: Cluster, streams: Streams, tmp_path: Path
) -> None:
    for name in ("in/1", "in/2"):
        streams.make(name, numbers(5000))
    marks = tmp_path / "marks"
    marks.mkdir()
    settings = {**SETTINGS, **SPECULATION, "spark.submit.pyFiles": str(package(tmp_path))}
    environment = {"PYSPARK_PYTHON": str(bare_python(tmp_path))}
    with driving(
        streams, environment, master=cluster.url, settings=settings, marks=str(marks)
    ) as driver:
        driver.finish(timeout_s=200)
    assert {path.name for path in marks.iterdir()} >= {"0-0", "0-1", "1-0"}, "not speculated"
    assert Counter(streams.bodies("out")) == Counter(numbers(5000) * 2)
