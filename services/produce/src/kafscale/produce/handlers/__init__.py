"""One module per Kafka API that this service answers."""
