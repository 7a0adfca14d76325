"""Kafka clients for people: AdminClient, logins, and a sentence for each failure."""
