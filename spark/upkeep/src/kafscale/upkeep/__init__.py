"""Upkeep: what has to be done to topics again and again, by whichever instance has the turn."""
