"""The calls of transactions between services, both ends; docs/protocol/transactions.md, "Between services"."""
