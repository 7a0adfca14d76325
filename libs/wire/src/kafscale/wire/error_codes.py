"""The error codes of a response, wherever in it they stand. Generated responses call each of them `error_code`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

ERROR_CODE: Final = "error_code"


def error_codes(message: msgspec.Struct) -> Iterator[int]:
    """Those that are not zero, each as often as it stands there."""
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
    """A cluster's Metadata has one for each of its partitions, so the innermost are gone through at once."""
    if not _parts(type(entries[0])):
        yield from [code for entry in entries if (code := getattr(entry, ERROR_CODE))]
        return
    for entry in entries:
        yield from error_codes(entry)


@cache
def _parts(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields in which error codes may stand: looked up once per kind of response."""
    return tuple(
        name
        for name, hint in get_type_hints(kind).items()
        if (inner := _struct_in(hint)) is not None and _has_codes(inner)
    )


def _has_codes(kind: type[msgspec.Struct]) -> bool:
    return ERROR_CODE in kind.__struct_fields__ or bool(_parts(kind))


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    """Of `Part`, `list[Part]` and each of them or None."""
    if get_origin(hint) in (list, UnionType):
        return next((found for inner in get_args(hint) if (found := _struct_in(inner))), None)
    return hint if isinstance(hint, type) and issubclass(hint, msgspec.Struct) else None
