"""What docs/performance.md is measured with; `python -m bench` prints the table."""
