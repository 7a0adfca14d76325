"""Avro to JSON by fastavro. Only `child.py` imports it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from typing import Any

Decoder = Callable[[bytes], tuple[str, str]]


def avro_decoder(text: str, references: Sequence[tuple[str, str]]) -> Decoder:
    """Raises ValueError and fastavro's errors, as its result does."""
    import fastavro
    from fastavro.schema import parse_schema

    named: dict[str, Any] = {}
    for _, other in references:
        parse_schema(json.loads(other), named_schemas=named)
    schema = parse_schema(json.loads(text), named_schemas=named)
    name = schema.get("name", schema.get("type", "")) if isinstance(schema, dict) else ""

    def decode(data: bytes) -> tuple[str, str]:
        source = io.BytesIO(data)
        value = fastavro.schemaless_reader(source, schema, None)
        if rest := len(data) - source.tell():
            raise ValueError(f"{rest} bytes are left after the value, so it is of another schema")
        return json.dumps(value, ensure_ascii=False, indent=2, default=_plain), str(name)

    return decode


def _plain(value: object) -> str:
    """Logical types, and bytes, which JSON does not have. Decimals stay exact."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    return str(value)
