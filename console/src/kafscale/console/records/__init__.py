"""The records of a topic: pages in one order over all partitions, one record, and what follows the end."""
