"""Compaction: of each key the last record, as Kafka's cleaner keeps it, published by one compare-and-swap."""
