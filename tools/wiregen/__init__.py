"""Turns tools/wire_schema into straight-line Python: definitions, layouts, reading, writing, modules."""
