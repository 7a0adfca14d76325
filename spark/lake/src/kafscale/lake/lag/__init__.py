"""Lag: how far behind groups are, in records, bytes and time, now and over time."""
