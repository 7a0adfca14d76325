"""From the bytes of a record to what a person reads."""
