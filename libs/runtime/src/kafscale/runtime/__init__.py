"""What every process needs to run: settings, logs, metrics, health, streams, drain."""
