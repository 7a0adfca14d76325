"""Topics, configs, cluster metadata."""
