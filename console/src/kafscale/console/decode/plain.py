"""Bytes as JSON, text, a number or hex, without any schema. Pure.

Law R7: no view hides bytes. It says its format and how many bytes there are; if the chosen format does not fit, it is
hex, with the reason. JSON is laid out as text: a number, a name or an escape is never read and written again.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

TEXT_CHARS_MAX: Final = 64 * 1024
"""Of a view in a list."""
_INDENT_MAX: Final = 32
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_WHOLE: Final = (1, 2, 4, 8)
_REAL: Final = {4: ">f", 8: ">d"}
_LINE: Final = 16

View = dict[str, Any]
"""`format`, `text`, `bytes` (None of null), and if so `reason` (why it is not the chosen format) and `cut` (there is
more text)."""


class Format(Enum):
    AUTO = "auto"
    JSON = "json"
    TEXT = "text"
    NUMBER = "number"
    DOUBLE = "double"
    HEX = "hex"
    BASE64 = "base64"


class Unfit(ValueError):
    """The bytes are not of the format. The text says why."""


def view_of(data: bytes | None, wanted: Format = Format.AUTO, chars_max: int = TEXT_CHARS_MAX) -> View:
    if data is None:
        return {"format": "null", "text": "null", "bytes": None}
    if wanted is not Format.AUTO:
        try:
            return _shown(wanted, SHOWN[wanted](data, chars_max), data, chars_max)
        except Unfit as why:
            return _shown(Format.HEX, hex_of(data, chars_max), data, chars_max) | {"reason": str(why)}
    json_first = data.lstrip()[:1] in (b"{", b"[")
    reason = ""
    for form in (Format.JSON, Format.TEXT) if json_first else (Format.TEXT,):
        try:
            return _shown(form, _readable(form, data, chars_max), data, chars_max)
        except Unfit as unfit:
            reason = str(unfit)
    hint = f"; as a number it is {number_of(data, 0)}" if len(data) in _WHOLE else ""
    return _shown(Format.HEX, hex_of(data, chars_max), data, chars_max) | {"reason": reason + hint}


def _readable(form: Format, data: bytes, chars_max: int) -> str:
    """Raises Unfit, also for text that nobody can read."""
    text = SHOWN[form](data, chars_max)
    if form is Format.TEXT and (control := _CONTROL.search(text)) is not None:
        raise Unfit(f"no text: it has the control character {ord(control[0]):#04x}")
    return text


def _shown(form: Format, text: str, data: bytes, chars_max: int) -> View:
    cut = {"cut": True} if len(text) > chars_max else {}
    return {"format": form.value, "text": text[:chars_max], "bytes": len(data)} | cut


def all_views(data: bytes | None, chars_max: int) -> list[View]:
    """One for each format that fits."""
    if data is None:
        return [view_of(None)]
    found = []
    for form, show in SHOWN.items():
        try:
            found.append(_shown(form, show(data, chars_max), data, chars_max))
        except Unfit:
            continue
    return found


def text_of(data: bytes, _: int) -> str:
    """Raises Unfit."""
    try:
        return data.decode()
    except UnicodeDecodeError as wrong:
        raise Unfit(f"no UTF-8 text from byte {wrong.start} on") from None


def json_of(data: bytes, chars_max: int) -> str:
    """Raises Unfit."""
    text = text_of(data, chars_max)
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except (ValueError, RecursionError) as wrong:
        why = "too many levels" if isinstance(wrong, RecursionError) else str(wrong)
        raise Unfit(f"no JSON: {why}") from None
    return laid_out(text, chars_max)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def laid_out(text: str, chars_max: int) -> str:
    """Valid JSON with a line for each member; ends soon after `chars_max`, because indents multiply the length."""
    parts: list[str] = []
    size = depth = 0
    before = ""
    for token in _TOKEN.finditer(text):
        now = token[0]
        closes = now in ("}", "]")
        depth -= closes
        opened = before in ("{", "[")
        piece = now
        if (closes and not opened) or (opened and not closes) or before == ",":
            piece = "\n" + "  " * min(depth, _INDENT_MAX) + now
        elif before == ":":
            piece = " " + now
        parts.append(piece)
        depth += now in ("{", "[")
        before = now
        size += len(piece)
        if size > chars_max:
            break
    return "".join(parts)


def number_of(data: bytes, _: int) -> str:
    """As Kafka's serializers of Byte, Short, Integer and Long write it. Raises Unfit."""
    if len(data) not in _WHOLE:
        raise Unfit(f"no number: it has {len(data)} bytes, and not 1, 2, 4 or 8")
    return str(int.from_bytes(data, "big", signed=True))


def double_of(data: bytes, _: int) -> str:
    """As Kafka's serializers of Float and Double write it. Raises Unfit."""
    if len(data) not in _REAL:
        raise Unfit(f"no float or double: it has {len(data)} bytes, and not 4 or 8")
    return repr(struct.unpack(_REAL[len(data)], data)[0])


def hex_of(data: bytes, chars_max: int) -> str:
    return data[: chars_max // 2 + 1].hex(" ") if data else ""


def base64_of(data: bytes, _: int) -> str:
    return b64encode(data).decode()


SHOWN: Final[Mapping[Format, Callable[[bytes, int], str]]] = {
    Format.JSON: json_of,
    Format.TEXT: text_of,
    Format.NUMBER: number_of,
    Format.DOUBLE: double_of,
    Format.HEX: hex_of,
    Format.BASE64: base64_of,
}


def dump_of(data: bytes, bytes_max: int) -> str:
    """Lines of 16 bytes: offset, hex, ASCII."""
    return "\n".join(
        f"{at:08x}  {(line := data[at : at + _LINE]).hex(' '):<47}  "
        + "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in line)
        for at in range(0, min(len(data), bytes_max), _LINE)
    )
