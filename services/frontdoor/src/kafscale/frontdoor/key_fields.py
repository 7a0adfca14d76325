"""The texts at the beginning of a request that say where it goes and whom it concerns: a group id, a transactional id.
The service reads the rest.

Pure.
"""

from kafscale.wire.errors import WireError
from kafscale.wire.varints import uvarint


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


def group_of(body: memoryview, *, flexible: bool) -> str:
    """The group id, which is the first field of every call about one group. Raises WireError."""
    group = text_field(body, flexible=flexible)
    if group is None:
        raise WireError("group id", "null")
    return group


def transactional_id_of(body: memoryview, *, flexible: bool) -> str:
    """The transactional id, which is the first field of every call about one transaction. Raises WireError."""
    transactional_id = text_field(body, flexible=flexible)
    if transactional_id is None:
        raise WireError("transactional id", "null")
    return transactional_id
