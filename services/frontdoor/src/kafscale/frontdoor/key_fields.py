"""The texts at the beginning of a request that say where it goes and whom it concerns: a group id, a transactional id.
The service reads the rest.

Pure.
"""

from typing import Final, Protocol

from kafscale.wire.errors import WireError
from kafscale.wire.varints import uvarint


class KeyOf(Protocol):
    """Reads from a request's body whose slot has its state: a group id, a transactional id. Raises WireError."""

    def __call__(self, body: memoryview, /, *, flexible: bool) -> str: ...


def text_field(body: memoryview, place: int = 0, *, flexible: bool, gap_bytes: int = 0) -> str | None:
    """The text at `place`, where all fields before it are texts too, but for `gap_bytes` of numbers right before it.
    None if it is null. `flexible`: the version writes lengths as varints. Raises WireError."""
    try:
        start = 0
        for left in range(place, -1, -1):
            if not left:
                start += gap_bytes
            is_null, start, end = _span(body, start, flexible=flexible)
            if not is_null and not start <= end <= len(body):
                raise WireError("first fields", "cut short")
            text, start = body[start:end], end
        return None if is_null else str(text, "utf-8", "replace")  # as the service reads it
    except IndexError as error:
        raise WireError("first fields", f"cut short ({error})") from error


def _span(body: memoryview, at: int, *, flexible: bool) -> tuple[bool, int, int]:
    """Whether the text at `at` is null, where its characters begin, and where they end."""
    if flexible:
        length, start = uvarint(body, at)
        return length == 0, start, start + max(0, length - 1)
    start = at + 2
    length = int.from_bytes(body[at:start], "big", signed=True)
    is_null = length == -1 and len(body) >= start
    return is_null, start, start if is_null else start + length


def field_of(what: str, place: int = 0, *, gap_bytes: int = 0) -> KeyOf:
    """Reads the text at `place`, which may not be null. `gap_bytes`: see text_field."""

    def read(body: memoryview, /, *, flexible: bool) -> str:
        text = text_field(body, place, flexible=flexible, gap_bytes=gap_bytes)
        if text is None:
            raise WireError(what, "null")
        return text

    return read


group_of: Final = field_of("group id")
"""The first field of every call about one group."""
transactional_id_of: Final = field_of("transactional id")
"""The first field of every call about one transaction."""
