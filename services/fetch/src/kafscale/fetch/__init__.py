"""Reads committed segments; long polls; offsets by time and epoch."""
