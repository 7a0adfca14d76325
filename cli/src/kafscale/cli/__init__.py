"""The kafscale command."""
