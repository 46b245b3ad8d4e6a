"""A bucket of streams as the tests of the connector see it: by the client, and by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.client import Client, StreamSummary
from headwater.client.protocol import Request
from headwater.client.records import read_batches
from tests.support.log import Pairs, encode_records

QUERY_TIMEOUT_S = 90


class Streams:
    """Names are those of one bucket. `folder` is for checkpoints."""

    def __init__(self, url: str, bucket: str, folder: Path) -> None:
        self.url = url
        self.bucket = bucket
        self.folder = folder
        self.client = Client(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.close()

    # -- by the client

    def make(
        self,
        name: str,
        bodies: Sequence[bytes] = (),
        headers: list[Pairs] | None = None,
        *,
        content_type: str = "text/plain",
    ) -> None:
        self.client.create(self.bucket, name, content_type)
        if bodies:
            self.add(name, bodies, headers)

    def add(self, name: str, bodies: Sequence[bytes], headers: list[Pairs] | None = None) -> None:
        self.client.append(self.bucket, name, encode_records(list(bodies), headers))

    def send(self, method: str, name: str, **headers: str) -> None:
        """A request to the stream's own address."""
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        self.client.fetch(Request(method, f"/{self.bucket}/{name}", given))

    def remove(self, name: str) -> None:
        self.send("DELETE", name)

    def trim(self, name: str, to: int) -> None:
        self.client.trim(self.bucket, name, to, self.at(name).id)

    def at(self, name: str) -> StreamSummary:
        found = self.client.stream(self.bucket, name)
        assert found is not None, name
        return found

    def table(self, name: str) -> pa.Table:
        """All messages, as the server sends them."""
        stream = self.at(name)
        batches = read_batches(
            self.client, self.bucket, name, first=stream.first, end=stream.tail, stream_id=stream.id
        )
        return pa.Table.from_batches(list(batches))

    def bodies(self, name: str) -> list[bytes]:
        stream = self.at(name)
        if stream.first == stream.tail:
            return []
        found: list[bytes] = self.table(name).column("body").to_pylist()
        return found

    # -- by Spark

    def read(self, spark: SparkSession, **options: Any) -> DataFrame:
        return spark.read.format("headwater").options(**self._given(options)).load()

    def follow(self, spark: SparkSession, **options: Any) -> DataFrame:
        given = {"startingOffsets": "earliest", **self._given(options)}
        return spark.readStream.format("headwater").options(**given).load()

    def write(self, frame: DataFrame, **options: Any) -> None:
        frame.write.format("headwater").options(**self._given(options)).mode("append").save()

    def start(self, frame: DataFrame, *, checkpoint: str = "checkpoint", **options: Any) -> Any:
        """A writer to start, of a query that reads what there is and ends."""
        given = {"checkpointLocation": str(self.folder / checkpoint), **self._given(options)}
        trigger = frame.writeStream.trigger(availableNow=True)
        return trigger.format(given.pop("format", "headwater")).options(**given)

    def run(self, frame: DataFrame, **options: Any) -> StreamingQuery:
        """Write all that is available. Raises what ended the query if it failed."""
        return finish(self.start(frame, **options).start())

    def _given(self, options: dict[str, Any]) -> dict[str, str]:
        given = {"endpoint": self.url, "bucket": self.bucket, **options}
        return {name: str(value) for name, value in given.items() if value is not None}


def finish(query: StreamingQuery) -> StreamingQuery:
    assert query.awaitTermination(QUERY_TIMEOUT_S), "the query does not end"
    return query


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]
