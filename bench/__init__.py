"""What docs/performance.md is measured with and made of: `python -m bench` runs, `python -m bench.page` writes."""
