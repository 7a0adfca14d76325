"""One file per Kafka API that this service answers."""
