"""Lets Spark find the data source `headwater_lake` by itself, in every session.

Where its libraries are missing there is no such data source, and the others work all the same.
"""

import contextlib

with contextlib.suppress(ImportError):
    from headwater.pipeline.lake_source import LakeDataSource as DefaultSource

__all__ = ["DefaultSource"]
