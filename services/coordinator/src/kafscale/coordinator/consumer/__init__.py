"""The consumer-group machine of KIP-848 ("next generation"), without I/O: see `machine`."""
