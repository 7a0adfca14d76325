"""Requests to the object store, and their price: computed for a load, or counted in a running cluster."""
