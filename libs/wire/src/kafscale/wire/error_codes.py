"""The error codes of a response, at any depth. Every generated response names such a field `error_code`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

ERROR_CODE: Final = "error_code"


def error_codes(message: msgspec.Struct) -> Iterator[int]:
    """All error codes that are not zero, each as often as it occurs."""
    code = getattr(message, ERROR_CODE, 0)
    if code:
        yield code
    for name in _parts(type(message)):
        part = getattr(message, name)
        if isinstance(part, msgspec.Struct):
            yield from error_codes(part)
        elif part:
            yield from _codes_of(part)


def _codes_of(entries: Sequence[msgspec.Struct]) -> Iterator[int]:
    """A large Metadata response has one per partition, so the innermost level is one list comprehension."""
    if not _parts(type(entries[0])):
        yield from [code for entry in entries if (code := getattr(entry, ERROR_CODE))]
        return
    for entry in entries:
        yield from error_codes(entry)


@cache
def _parts(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that may contain error codes, computed once per type of response."""
    return tuple(
        name
        for name, hint in get_type_hints(kind).items()
        if (inner := _struct_in(hint)) is not None and _has_codes(inner)
    )


def _has_codes(kind: type[msgspec.Struct]) -> bool:
    return ERROR_CODE in kind.__struct_fields__ or bool(_parts(kind))


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    """The struct in `Part`, `list[Part]`, `Part | None` or `list[Part] | None`."""
    if get_origin(hint) in (list, UnionType):
        return next((found for inner in get_args(hint) if (found := _struct_in(inner))), None)
    return hint if isinstance(hint, type) and issubclass(hint, msgspec.Struct) else None
