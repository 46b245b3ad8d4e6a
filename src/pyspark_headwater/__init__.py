"""Lets Spark find the data source `headwater` by itself: it looks at modules named `pyspark_*`."""

from headwater.spark.source import HeadwaterDataSource as DefaultSource

__all__ = ["DefaultSource"]
