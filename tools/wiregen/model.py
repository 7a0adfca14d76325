"""Definition files as values, and the layout of one version: its fields on the wire, in order.

Versions with equal layouts share their generated code, so the layout of a struct is a plain comparable value.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

FIXED = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
TEXT = frozenset({"string", "bytes", "records"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field over all versions."""

    name: str
    kind: str
    array: bool
    versions: range
    nullable: range
    tagged: range
    tag: int
    default: str | None
    struct: Struct | None

    @property
    def element(self) -> Field:
        """One element of an array as a separate field."""
        none = range(0)
        return replace(self, array=False, nullable=none, tagged=none, tag=-1, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    """A nested struct or a whole message; `name` is that of its Python class."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A request or a response."""

    versions: range
    flexible_from: int | None
    body: Struct


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One definition file."""

    key: int
    name: str
    module: str
    origin: str
    request: Message
    response: Message


@dataclass(frozen=True, slots=True)
class Item:
    """A field in one version."""

    field: Field
    nullable: bool
    tag: int | None
    layout: Layout | None


@dataclass(frozen=True, slots=True)
class Layout:
    """A struct in one version."""

    struct: Struct
    flexible: bool
    items: tuple[Item, ...]

    @property
    def plain(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.tag is None)

    @property
    def tagged(self) -> tuple[Item, ...]:
        return tuple(sorted((i for i in self.items if i.tag is not None), key=lambda i: i.tag or 0))

    @property
    def size_min(self) -> int:
        """The least number of bytes of a value; it bounds the count of an array."""
        return sum(_item_size_min(item, self.flexible) for item in self.plain) + self.flexible


def _item_size_min(item: Item, flexible: bool) -> int:
    field = item.field
    if field.array:
        return 1 if flexible else 4
    if field.kind in FIXED:
        return FIXED[field.kind][1]
    if field.kind in TEXT:
        return 1 if flexible else (2 if field.kind == "string" else 4)
    assert item.layout is not None
    return 1 if item.nullable else item.layout.size_min


def snake(name: str) -> str:
    """Kafka's CamelCase as Python writes it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def layout(struct: Struct, version: int, flexible: bool) -> Layout:
    """The part of a struct that is on the wire in one version."""
    items = [
        Item(
            field,
            version in field.nullable,
            field.tag if version in field.tagged else None,
            layout(field.struct, version, flexible) if field.struct else None,
        )
        for field in struct.fields
        if version in field.versions
    ]
    return Layout(struct, flexible, tuple(items))


def layouts(message: Message) -> dict[Layout, list[int]]:
    """Every distinct layout of a message, with the versions that have it."""
    found: dict[Layout, list[int]] = {}
    first = message.flexible_from
    for version in message.versions:
        flexible = first is not None and version >= first
        found.setdefault(layout(message.body, version, flexible), []).append(version)
    return found


def load(path: Path) -> Api:
    """One definition file."""
    raw = json.loads(path.read_text())
    return Api(
        key=raw["key"],
        name=raw["name"],
        module=path.stem,
        origin=raw["origin"],
        request=_message(raw["request"], raw["name"] + "Request"),
        response=_message(raw["response"], raw["name"] + "Response"),
    )


def _span(text: str | None) -> range:
    if text is None:
        return range(0)
    first, _, last = text.partition("-")
    return range(int(first), int(last) + 1)


def _message(raw: dict[str, Any], name: str) -> Message:
    body = Struct(name=name, fields=tuple(_field(field, name) for field in raw["fields"]))
    return Message(versions=_span(raw["versions"]), flexible_from=raw["flexible"], body=body)


def _field(raw: dict[str, Any], message: str) -> Field:
    array, _, kind = raw["type"].rpartition("[]")
    struct = None
    if "fields" in raw:
        fields = tuple(_field(field, message) for field in raw["fields"])
        struct = Struct(name=message + kind, fields=fields)
    elif kind not in FIXED and kind not in TEXT:
        raise ValueError(f"{message}.{raw['name']}: unknown type {kind}")
    return Field(
        name=snake(raw["name"]),
        kind=kind,
        array=raw["type"].startswith("[]"),
        versions=_span(raw["versions"]),
        nullable=_span(raw.get("nullable")),
        tagged=_span(raw.get("tagged")),
        tag=raw.get("tag", -1),
        default=raw.get("default"),
        struct=struct,
    )
