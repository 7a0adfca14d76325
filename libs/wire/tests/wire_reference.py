"""A third encoder, slow and obvious: it interprets the definition files as Kafka's protocol guide reads.

It can do what a correct writer never does: put unknown tagged fields into every struct, and say where the
lengths stand, so that tests can bend each of them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from wire_values import INTEGERS, Case, fields_of, present, snake

UNKNOWN_TAGS = ((70, b""), (300, b"from a later version"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """A length or a count: where it stands, in which form, and whether it may be null."""

    offset: int
    size: int
    form: str
    nullable: bool


@dataclass(slots=True)
class Reference:
    """One encoding."""

    case: Case
    unknown_tags: bool = False
    out: bytearray = field(default_factory=bytearray)
    lengths: list[Length] = field(default_factory=list)

    def encode(self, message: Any) -> bytes:
        self._struct(fields_of(self.case), message)
        return bytes(self.out)

    def _struct(self, fields: list[dict[str, Any]], value: Any) -> None:
        version = self.case.version
        own = [one for one in fields if present(one, version)]
        for one in own:
            if not present(one, version, "tagged"):
                self._field(one, getattr(value, snake(one["name"])))
        if self.case.flexible:
            self._tags([one for one in own if present(one, version, "tagged")], value)

    def _tags(self, fields: list[dict[str, Any]], value: Any) -> None:
        default = type(value)()
        sent = []
        for one in sorted(fields, key=lambda one: int(one["tag"])):
            name = snake(one["name"])
            if getattr(value, name) != getattr(default, name):
                inner = Reference(self.case, self.unknown_tags)
                inner._field(one, getattr(value, name))
                sent.append((one["tag"], bytes(inner.out)))
        sent += UNKNOWN_TAGS if self.unknown_tags else ()
        self.out += uvarint(len(sent))
        for tag, data in sent:
            self.out += uvarint(tag) + uvarint(len(data)) + data

    def _field(self, one: dict[str, Any], value: Any) -> None:
        nullable = present(one, self.case.version, "nullable")
        kind = one["type"]
        if kind.startswith("[]"):
            self._length("i", value, nullable)
            for element in value or ():
                self._value(kind[2:], one, element, nullable=False)
        elif "fields" in one and nullable:
            self.out += b"\xff" if value is None else b"\x01"
            if value is not None:
                self._struct(one["fields"], value)
        else:
            self._value(kind, one, value, nullable=nullable)

    def _value(self, kind: str, one: dict[str, Any], value: Any, *, nullable: bool) -> None:
        if "fields" in one:
            self._struct(one["fields"], value)
        elif kind in INTEGERS:
            self.out += value.to_bytes(INTEGERS[kind] // 8, "big", signed=True)
        elif kind in ("bool", "uint16", "float64"):
            self.out += struct.pack({"bool": ">?", "uint16": ">H", "float64": ">d"}[kind], value)
        elif kind == "uuid":
            self.out += value
        else:
            data = value.encode() if kind == "string" and value is not None else value
            self._length("h" if kind == "string" else "i", data, nullable)
            self.out += data or b""

    def _length(self, form: str, value: Any, nullable: bool) -> None:
        offset = len(self.out)
        if self.case.flexible:
            form = "uvarint"
            self.out += uvarint(0 if value is None else len(value) + 1)
        else:
            self.out += struct.pack(f">{form}", -1 if value is None else len(value))
        self.lengths.append(Length(offset=offset, size=len(self.out) - offset, form=form, nullable=nullable))


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)
