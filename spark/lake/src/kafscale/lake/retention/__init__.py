"""Retention: which segments Kafka's rules let go, and how they go without a reader or a writer being harmed."""
