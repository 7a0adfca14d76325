"""Kafka protocol in, gRPC out."""
