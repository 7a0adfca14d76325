"""Requests to the object store and their price."""
