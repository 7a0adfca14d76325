"""Requests that name one of everything, for tests that look at every API and version."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

CODES: Final[Mapping[str, int]] = {
    "acks": -1,
    "config_resource_type": 2,
    "endpoint_type": 1,
    "mechanism": 1,
    "operation": 3,
    "pattern_type_filter": 3,
    "permission_type": 3,
    "resource_pattern_type": 3,
    "resource_type": 2,
    "resource_type_filter": 2,
}
"""Where Apache Kafka refuses to read a zero."""
WORD: Final = "x"


def one_of_each(codec: types.ModuleType) -> Any:
    """A request of this module of `kafscale.wire.schema`: each list has one entry, all else its default value."""
    return _filled(getattr(codec, f"{codec.NAME}Request"), codec)


def _filled(struct: type[msgspec.Struct], codec: types.ModuleType) -> msgspec.Struct:
    fields: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(struct, vars(codec)).items():
        if hint is int and name in CODES:
            fields[name] = CODES[name]
        kinds = [each for each in (typing.get_args(hint) or (hint,)) if each is not types.NoneType]
        listed = hint if typing.get_origin(hint) is list else kinds[0]
        if typing.get_origin(listed) is list:
            fields[name] = [_entry(typing.get_args(listed)[0], codec)]
    return struct(**fields)


def _entry(kind: Any, codec: types.ModuleType) -> Any:
    if issubclass(kind, msgspec.Struct):
        return _filled(kind, codec)
    return {int: 0, str: WORD, bytes: bytes(16)}[kind]


def nulls(value: Any, path: str = "") -> Iterator[str]:
    """The names of the fields that are null, such as `topics.configs`. A field that the version does not have counts
    with its default value."""
    if value is None:
        yield path
    elif isinstance(value, list):
        for each in value:
            yield from nulls(each, path)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from nulls(getattr(value, name), f"{path}.{name}" if path else name)
