"""The format string of `consume --format`, as kcat's and rpk's `-f`. Pure.

    %t topic        %p partition    %o offset       %T %d timestamp in ms, -1 without
    %k key          %v %s value     %h headers as name=value,name=value
    %K %V %S        length of the key or value in bytes, -1 if it is null
    %H              number of headers
    %%              a percent sign
    \\n \\r \\t \\\\ \\xHH

A form follows in braces: %v{base64}, %k{hex}, %T{iso}. Nothing is added, so a line end must be written.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from kafscale.client.json_lines import Record

NULL: Final = b"NULL"
_TOKEN: Final = re.compile(
    r"%(?P<field>.)(?:\{(?P<form>[^}]*)\})?|\\(?:x(?P<hex>[0-9A-Fa-f]{2})|(?P<escape>.))|(?P<text>[^%\\]+)",
    re.DOTALL,
)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}

Piece = Callable[[Record], bytes]


class TemplateWrong(ValueError):
    """The text says what is wrong in the format string."""


def compiled(template: str, *, shows_null: bool = False) -> Piece:
    """Writes a record. A null key or value is nothing, or NULL if `shows_null`. Raises TemplateWrong."""
    pieces: list[Piece] = []
    at = 0
    while at < len(template):
        found = _TOKEN.match(template, at)
        if found is None:
            raise TemplateWrong(f"'{template[at:]}' is not complete")
        at = found.end()
        pieces.append(_piece(found, NULL if shows_null else b""))
    return lambda record: b"".join([piece(record) for piece in pieces])


def _piece(found: re.Match[str], null: bytes) -> Piece:
    if (text := found["text"]) is not None:
        return _constant(text.encode())
    if (code := found["hex"]) is not None:
        return _constant(bytes.fromhex(code))
    if (escape := found["escape"]) is not None:
        if escape not in _ESCAPES:
            raise TemplateWrong(f"\\{escape} is unknown; \\n, \\r, \\t, \\0, \\\\ and \\xHH are known")
        return _constant(_ESCAPES[escape])
    return _field(found["field"], found["form"], null)


def _field(name: str, form: str | None, null: bytes) -> Piece:
    if name in "kvs":
        return _data(name, form, null)
    if name in "Td" and form == "iso":
        return lambda record: _iso(record.timestamp_ms).encode()
    if form is not None:
        raise TemplateWrong(f"%{name} has no form {{{form}}}")
    if name == "%":
        return _constant(b"%")
    if name == "h":
        return _headers
    if name not in _TEXTS:
        raise TemplateWrong(f"%{name} is unknown; `kafscale consume --help` lists the fields")
    read = _TEXTS[name]
    return lambda record: str(read(record)).encode()


def _constant(data: bytes) -> Piece:
    return lambda record: data


def _data(field: str, form: str | None, null: bytes) -> Piece:
    if form not in _FORMS:
        raise TemplateWrong(f"%{field} has no form {{{form}}}; base64 and hex are known")
    write = _FORMS[form]

    def piece(record: Record) -> bytes:
        data = record.key if field == "k" else record.value
        return null if data is None else write(data)

    return piece


_FORMS: Final[Mapping[str | None, Callable[[bytes], bytes]]] = {
    None: bytes,
    "base64": b64encode,
    "hex": lambda data: data.hex().encode(),
}


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


def _iso(time_ms: int | None) -> str:
    if time_ms is None:
        return ""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # outside the calendar
        return str(time_ms)


def _time(record: Record) -> int:
    return -1 if record.timestamp_ms is None else record.timestamp_ms


_TEXTS: Final[Mapping[str, Callable[[Record], object]]] = {
    "t": lambda record: record.topic,
    "p": lambda record: record.partition,
    "o": lambda record: record.offset,
    "T": _time,
    "d": _time,
    "H": lambda record: len(record.headers),
    "K": lambda record: _length(record.key),
    "V": lambda record: _length(record.value),
    "S": lambda record: _length(record.value),
}
