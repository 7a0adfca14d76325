"""Retention: which segments expire by Kafka's rules, and how they are deleted without harm to readers or writers."""
