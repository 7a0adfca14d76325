"""Bundles: one object for all partitions of an instance in each flush."""
