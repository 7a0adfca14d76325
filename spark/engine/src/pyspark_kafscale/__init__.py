"""Spark finds this module by its name, and the data source `kafscale` in it: nothing is to be registered."""

from kafscale_spark.source import KafscaleSource as DefaultSource

__all__ = ["DefaultSource"]
