"""A record as one line of JSON, which `consume` writes and `produce` reads. Pure.

Law: reading a written line gives the same record. Bytes that are UTF-8 are text; others are base64 in a field whose
name ends in `_base64`. A missing key and the value of a tombstone are null. An unknown or missing field is refused: a
mistyped `valeu` would otherwise write a tombstone.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

BASE64: Final = "_base64"
TIMESTAMP_MS_MAX: Final = (1 << 63) - 1
PARTITION_MAX: Final = (1 << 31) - 1
_FIELDS: Final = {
    "topic",
    "partition",
    "offset",
    "timestamp",
    "headers",
    "key",
    "value",
    "key_base64",
    "value_base64",
}
_HEADER_FIELDS: Final = {"key", "value", "value_base64"}

Headers = tuple[tuple[str, bytes | None], ...]


class LineWrong(ValueError):
    """The line is no record. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`value` None: a tombstone. Of a record that is to be sent, None means: the client or the server decides."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


def to_line(record: Record) -> bytes:
    """Without the line end."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_shown("key", record.key),
        **_shown("value", record.value),
        "headers": [{"key": name, **_shown("value", value)} for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode()


def _shown(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name + BASE64: b64encode(data).decode()}


def from_line(line: bytes) -> Record:
    """Raises LineWrong."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as wrong:
        raise LineWrong(f"no JSON ({wrong})") from wrong
    if not isinstance(fields, dict):
        raise LineWrong("no JSON object")
    _refuse_unknown(fields, _FIELDS, "the record")
    if not fields.keys() & {"value", "value_base64"}:
        raise LineWrong("neither value nor value_base64; a tombstone has the value null")
    return Record(
        topic=_text(fields, "topic"),
        partition=_whole(fields, "partition", 0, PARTITION_MAX),
        offset=_whole(fields, "offset", 0, TIMESTAMP_MS_MAX),
        timestamp_ms=_whole(fields, "timestamp", 1, TIMESTAMP_MS_MAX),
        key=_bytes(fields, "key"),
        value=_bytes(fields, "value"),
        headers=_headers(fields.get("headers")),
    )


def _refuse_unknown(fields: Mapping[str, Any], known: set[str], what: str) -> None:
    if unknown := sorted(fields.keys() - known):
        raise LineWrong(f"{what} has the unknown field {unknown[0]}; known are {', '.join(sorted(known))}")


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    found = fields.get(name)
    if found is not None and not isinstance(found, str):
        raise LineWrong(f"{name} is neither text nor null")
    return found


def _whole(fields: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    found = fields.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise LineWrong(f"{name} is neither a whole number from {least} nor null")
    return found


def _bytes(fields: Mapping[str, Any], name: str) -> bytes | None:
    if name + BASE64 not in fields:
        text = _text(fields, name)
        try:
            return None if text is None else text.encode()
        except UnicodeEncodeError as half:  # half of a surrogate pair
            raise LineWrong(f"{name} is no valid text") from half
    if name in fields:
        raise LineWrong(f"both {name} and {name}{BASE64}")
    text = _text(fields, name + BASE64)
    try:
        return None if text is None else b64decode(text, validate=True)
    except ValueError as wrong:
        raise LineWrong(f"{name}{BASE64} is not base64") from wrong


def _headers(found: Any) -> Headers:
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise LineWrong("headers is no list of objects")
    for each in found:
        _refuse_unknown(each, _HEADER_FIELDS, "a header")
        if not isinstance(each.get("key"), str):
            raise LineWrong("a header has no key")
    return tuple((each["key"], _bytes(each, "value")) for each in found)
