"""Spark reads and writes streams: the data source `headwater`, and what goes with it."""

from headwater.spark.json_columns import from_json
from headwater.spark.local import session
from headwater.spark.offsets import lag
from headwater.spark.source import HeadwaterDataSource

__all__ = ["HeadwaterDataSource", "from_json", "lag", "session"]
