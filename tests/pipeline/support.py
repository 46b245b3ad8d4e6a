"""A bucket, a folder and a Spark to run pipelines with, as a user would from files."""

from __future__ import annotations

import json
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater.pipeline import files
from headwater.pipeline.context import Context
from headwater.pipeline.progress import Report
from headwater.pipeline.runner import Runner
from headwater.pipeline.spec import Spec
from tests.spark.support import Streams

FEW_PARTITIONS = {"spark.sql.shuffle.partitions": "2"}
"""State is kept for each, which takes longer than the few rows of a test."""


class Desk(Streams):
    """What one test works with."""

    def __init__(self, spark: SparkSession, url: str, bucket: str, folder: Path) -> None:
        super().__init__(url, bucket, folder)
        self.spark = spark
        self.reports: list[Report] = []

    def put(self, name: str, *values: Any) -> None:
        """JSON values, into a stream that is made if need be."""
        self.client.create(self.bucket, name, "application/json")
        if values:
            self.add(name, [json.dumps(value).encode() for value in values])

    def values(self, name: str) -> list[Any]:
        return [json.loads(body) for body in self.bodies(name)]

    def write_file(self, text: str, name: str = "job.yaml") -> str:
        """`{bucket}` and `{folder}` in the text are filled in."""
        path = self.folder / name
        filled = textwrap.dedent(text).replace("{bucket}", self.bucket)
        path.write_text(filled.replace("{folder}", str(self.folder)))
        return str(path)

    def load(self, text: str, name: str = "job.yaml") -> Spec:
        return files.load(self.write_file(text, name))

    @property
    def context(self) -> Context:
        return Context(self.url, state_folder=str(self.folder / "state"), once=True)

    def run_once(self, spec: Spec, *, fails: bool = False) -> list[Report]:
        """Run a pipeline over what is there. Returns its reports."""
        spec = replace(spec, spark={**FEW_PARTITIONS, **spec.spark})
        reports: list[Report] = []
        succeeded = Runner(self.spark, [spec], self.context, reports.append).run()
        assert succeeded is not fails, [report.error for report in reports if report.error]
        self.reports += reports
        return reports

    def forget_last_commit(self, spec: Spec, query: str) -> None:
        """As if the driver had been killed after the sink's commit, before Spark noted it."""
        forget_last(self.folder / "state" / spec.name / query)

    def forget_last_commit_of(self, checkpoint: str) -> None:
        forget_last(self.folder / checkpoint)


def forget_last(checkpoint: Path) -> None:
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
