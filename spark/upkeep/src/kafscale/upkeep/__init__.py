"""Upkeep: periodic jobs on topics, which run on the active instance."""
