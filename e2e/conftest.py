"""End-to-end tests start real processes; nothing here imports a service."""
