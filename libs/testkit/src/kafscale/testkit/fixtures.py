"""pytest fixtures for real stores and servers."""
