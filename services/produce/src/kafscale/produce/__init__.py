"""Owns partitions: assigns offsets, writes segments, commits."""
