"""Liveness: registrations under leases, node ids, and views of the live instances."""
