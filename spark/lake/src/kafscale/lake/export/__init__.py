"""Topics as Parquet files: what is asked again and again is cheaper in columns."""
