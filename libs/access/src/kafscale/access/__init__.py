"""Who may do what, and how much: ACLs, authentication and quotas, as in Apache Kafka; pure."""
