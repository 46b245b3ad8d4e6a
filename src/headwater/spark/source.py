"""The data source `headwater`: what Spark asks for by name."""

from __future__ import annotations

import secrets

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headwater.spark import schema as columns
from headwater.spark.options import (
    OptionError,
    SinkOptions,
    check_names,
    parse_sink,
    parse_source,
)
from headwater.spark.reader import BatchReader, PushdownReader
from headwater.spark.stream_reader import StreamReader
from headwater.spark.targets import check_schema
from headwater.spark.writer import BatchWriter, StreamWriter


class HeadwaterDataSource(DataSource):
    """Streams of a Headwater server. See docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> StructType:
        check_names(self.options)
        return columns.schema(
            headers=self._says("includeHeaders"), stream_ids=self._says("includeStreamId")
        )

    def _says(self, option: str) -> bool:
        return self.options.get(option, "false").strip().lower() == "true"

    def reader(self, schema: StructType) -> DataSourceReader:
        self._check_columns(schema)
        options = parse_source(self.options, streaming=False)
        return PushdownReader(options) if options.pushdown else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        self._check_columns(schema)
        return StreamReader(parse_source(self.options, streaming=True))

    def _check_columns(self, wanted: StructType) -> None:
        fixed = self.schema().simpleString()
        if wanted.simpleString() != fixed:
            raise OptionError(
                f"the columns of a stream are {fixed}; leave out schema(), and use "
                f"headwater.spark.from_json for those of JSON. received={wanted.simpleString()}"
            )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = parse_sink(self.options, streaming=False)
        _check(options, schema, overwrite=overwrite)
        # One id for all attempts of all tasks: this runs once, on the driver.
        return BatchWriter(options, f"write-{secrets.token_hex(16)}")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = parse_sink(self.options, streaming=True)
        _check(options, schema, overwrite=overwrite)
        return StreamWriter(options)


def _check(options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
    if overwrite:
        raise OptionError("streams are only ever appended to: use mode append")
    check_schema(schema, options)
