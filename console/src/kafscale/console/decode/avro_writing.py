"""JSON to Avro by fastavro: the reverse of `avro.py`, so what a page shows can be written again.

Only `child.py` imports it.

Law: what is written is exactly what the schema says. A field that the schema does not have, or one without a default
that is missing, is refused, as is a number that does not fit and a time that is finer than its type. The first type of
a union that fits is taken.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final

Encoder = Callable[[str], bytes]
_NAMED: Final = ("record", "error", "enum", "fixed")
_TIMES: Final[Mapping[str, Callable[[str], date | time]]] = {
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
}


def avro_encoder(text: str, references: Sequence[tuple[str, str]]) -> Encoder:
    """Raises ValueError and fastavro's errors, as its result does."""
    import fastavro
    from fastavro.schema import parse_schema

    named: dict[str, Any] = {}
    for _, other in references:
        parse_schema(json.loads(other), named_schemas=named)
    schema = parse_schema(json.loads(text), named_schemas=named)

    def encode(given: str) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, _datum(read_json(given), schema, named, "the value"))
        return out.getvalue()

    return encode


def read_json(text: str) -> Any:
    """Raises ValueError, also for what JSON does not have and for a name that an object has twice."""
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_each_once)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same name twice")
    return found


def _datum(value: Any, schema: Any, named: Mapping[str, Any], at: str) -> Any:
    """As fastavro takes it. `at` names the place in a sentence. Raises ValueError."""
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    if isinstance(schema, list):
        return _of_union(value, schema, named, at)
    match schema["type"]:
        case "record" | "error":
            return _of_record(value, schema, named, at)
        case "array":
            _check(isinstance(value, list), at, "an array")
            return [
                _datum(each, schema["items"], named, f"{at}[{number}]") for number, each in enumerate(value)
            ]
        case "map":
            _check(isinstance(value, dict), at, "an object")
            return {
                name: _datum(each, schema["values"], named, f"{at}.{name}") for name, each in value.items()
            }
        case "enum":
            _check(value in schema["symbols"], at, f"one of {', '.join(schema['symbols'][:20])}")
            return value
        case "bytes" | "fixed":
            return _of_bytes(value, schema, at)
        case dict() | list() as inner:
            return _datum(value, inner, named, at)
        case kind:
            return _of_primitive(value, kind, schema, at)


def _of_union(value: Any, schemas: Sequence[Any], named: Mapping[str, Any], at: str) -> tuple[str, Any]:
    reasons = []
    for each in schemas:
        kind = each if isinstance(each, str) else each["type"]
        name = each["name"] if kind in _NAMED else kind
        try:
            return name, _datum(value, each, named, at)
        except ValueError as why:
            reasons.append(str(why))
    raise ValueError(f"{at} fits no type of its union: {'; '.join(reasons)}"[:1_000])


def _of_record(value: Any, schema: Mapping[str, Any], named: Mapping[str, Any], at: str) -> dict[str, Any]:
    _check(isinstance(value, dict), at, f"an object: {schema['name']}")
    fields = {each["name"]: each for each in schema["fields"]}
    for name in value:
        if name not in fields:
            raise ValueError(f"{at} has the field {name}, which {schema['name']} does not have")
    for name, field in fields.items():
        if name not in value and "default" not in field:
            raise ValueError(f"{at} does not have the field {name}")
    return {name: _datum(each, fields[name]["type"], named, f"{at}.{name}") for name, each in value.items()}


def _of_bytes(value: Any, schema: Mapping[str, Any], at: str) -> bytes | Decimal:
    if schema.get("logicalType") == "decimal":
        _check(isinstance(value, str), at, 'a decimal in quotes, such as "1.50"')
        try:
            number = Decimal(value)
        except InvalidOperation as wrong:
            raise ValueError(f"{at} is not a decimal") from wrong
        _check(number.is_finite(), at, "a decimal that is finite")
        if number.is_zero():
            return Decimal(0)
        places, digits = schema.get("scale", 0), schema["precision"]
        _, figures, exponent = number.as_tuple()
        assert isinstance(exponent, int), "it is finite"
        _check(-exponent <= places, at, f"a decimal with {places} places at most")
        _check(len(figures) + exponent + places <= digits, at, f"a decimal of {digits} digits at most")
        return number
    _check(isinstance(value, str) and value.startswith("0x"), at, "bytes in hex, such as 0x00ff")
    data = bytes.fromhex(value[2:])
    if schema["type"] == "fixed":
        _check(len(data) == schema["size"], at, f"{schema['size']} bytes")
    return data


def _of_primitive(value: Any, kind: str, schema: Mapping[str, Any], at: str) -> Any:
    logical = schema.get("logicalType", "")
    if kind in ("int", "long"):
        if logical in _TIMES and isinstance(value, str):
            return _of_time(value, logical, at)
        bits = 32 if kind == "int" else 64
        _check(isinstance(value, int) and not isinstance(value, bool), at, "a whole number")
        _check(-(1 << bits - 1) <= value < 1 << bits - 1, at, f"a number of {bits} bits")
        return value
    kinds: Mapping[str, tuple[type, ...]] = {
        "null": (type(None),),
        "boolean": (bool,),
        "string": (str,),
        "float": (int, float),
        "double": (int, float),
    }
    if kind not in kinds:
        raise ValueError(f"{at} is of the type {kind}, which is not known")
    fits = isinstance(value, kinds[kind]) and (kind == "boolean" or not isinstance(value, bool))
    _check(fits, at, kind)
    _check(not isinstance(value, float) or isfinite(value), at, "a number that is finite")
    return value


def _of_time(value: str, logical: str, at: str) -> date | time:
    found = _TIMES[logical](value)
    if isinstance(found, datetime):
        local = logical.startswith("local-")
        _check((found.tzinfo is None) == local, at, f"a time with{'out' * local} a time zone")
    if isinstance(found, time):
        _check(found.tzinfo is None, at, "a time without a time zone")
    if isinstance(found, datetime | time) and logical.endswith("-millis"):
        _check(found.microsecond % 1_000 == 0, at, "a time in whole milliseconds")
    return found


def _check(holds: bool, at: str, wanted: str) -> None:
    if not holds:
        raise ValueError(f"{at} is not {wanted}")
