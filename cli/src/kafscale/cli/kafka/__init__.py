"""The commands' own Kafka client: one request, one answer, by the generated codec."""
