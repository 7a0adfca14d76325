"""Exports topics to Parquet files."""
