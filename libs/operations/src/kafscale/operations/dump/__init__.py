"""Readers of single segments, indexes and bundles."""
