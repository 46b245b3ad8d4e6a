"""Python workers of Spark: what they have loaded costs them nothing between tasks."""

from __future__ import annotations

import subprocess
import sys

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
