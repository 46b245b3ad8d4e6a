"""Declared pipelines on Spark: what a pipeline file says, how it is checked, and how it runs."""

from headwater.pipeline.declare import Pipeline

__all__ = ["Pipeline"]
