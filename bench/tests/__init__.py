"""Tests of what docs/performance.md is made of."""
