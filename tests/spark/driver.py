"""A streaming query in a process of its own, to be killed: `python -m tests.spark.driver JSON`.

It reads the streams `in/…` of a bucket, moves every row through a shuffle, writes them to `out`,
and ends when it has read what there was.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.spark import session
from headwater.spark.options import parse_sink
from headwater.spark.source import HeadwaterDataSource
from headwater.spark.writer import StreamWriter

STRAGGLE_S = 25


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = session("driver", cores=2, master=given.get("master"), settings=given["settings"])
    sink = "headwater"
    if "marks" in given:
        sink = "straggling"
        spark.dataSource.register(straggling(given["marks"]))
    server = {"endpoint": given["endpoint"], "bucket": given["bucket"]}
    follow = (
        spark.readStream.format("headwater")
        .options(**server, subscribePattern="in/*", startingOffsets="earliest")
        .options(**given["source"])
        .load()
    )
    query = (
        follow.select("value")
        .repartition(2, F.crc32("value"))
        .writeStream.format(sink)
        .options(**server, stream="out", checkpointLocation=given["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def straggling(marks: str) -> type[HeadwaterDataSource]:
    """A sink whose first attempt at the first partition does not come back once it has written.
    Each attempt leaves a file when its rows are on disk."""

    class Writer(StreamWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            message = super().write(iterator)
            context = TaskContext.get()
            assert context is not None
            partition, attempt = context.partitionId(), context.attemptNumber()
            (Path(marks) / f"{partition}-{attempt}").touch()
            if (partition, attempt) == (0, 0):
                time.sleep(STRAGGLE_S)
            return message

    class Sink(HeadwaterDataSource):
        @classmethod
        def name(cls) -> str:
            return "straggling"

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            return Writer(parse_sink(self.options, streaming=True))

    return Sink


if __name__ == "__main__":
    main()
