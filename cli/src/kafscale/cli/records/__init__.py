"""`kafscale produce` and `kafscale consume`: records in and out as lines, JSON lines, or a format string."""
