"""Python processes of Spark: they load what is compiled, and that costs nothing between tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from headwater.spark.local import STARTUP

PROGRAM = """
import gc
from headwater.spark.options import parse_source
from headwater.spark.reader import read_ranges

counts = []
for _ in range(2):
    list(read_ranges(parse_source({"subscribe": "s"}, streaming=False), ()))
    counts.append(gc.get_freeze_count())
    more = [[] for _ in range(1000)]
print(*counts)
"""


def test_a_worker_sets_aside_what_is_loaded_when_its_first_task_begins() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True).stdout
    first, second = map(int, said.split())
    assert 10_000 < second <= first, "later tasks must leave their garbage to the collector"


@pytest.mark.spark
@pytest.mark.timeout(120)
def test_pyspark_is_not_taken_from_a_zip_file(spark: SparkSession) -> None:
    """It would be compiled anew in every process."""

    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"at": [pyspark.__file__]})

    found = spark.range(0, 1, numPartitions=1).mapInArrow(where, "at string").collect()
    assert [row.at for row in found] == [pyspark.__file__]
    assert str(STARTUP) not in os.environ.get("PYTHONPATH", ""), "only for processes of Spark"


def test_what_else_runs_as_python_starts_still_does(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')")
    left_out = [str(tmp_path / "pyspark.zip"), str(tmp_path / "py4j-1.0-src.zip"), str(STARTUP)]
    kept = [str(tmp_path / "theirs-src.zip"), str(tmp_path)]
    path = os.pathsep.join((*left_out, *kept))
    command = [sys.executable, "-c", "import sys; print(*sys.path, sep='\\n')"]
    env = {**os.environ, "PYTHONPATH": path}
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    first, *paths = said.splitlines()
    assert first == "theirs"
    assert [path for path in paths if path in (*left_out, *kept)] == kept
