"""Ordered byte streams between a front door and a service: one codec, one server, one client."""
