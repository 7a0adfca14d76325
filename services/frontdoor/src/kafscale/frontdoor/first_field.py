"""The first field of a request, if it is a text: a group id or a transactional id. The rest is the service's to read.

Pure.
"""

from kafscale.wire.errors import WireError
from kafscale.wire.varints import uvarint


def first_text(body: memoryview, *, flexible: bool) -> str | None:
    """None if it is null. `flexible`: the version writes lengths as varints. Raises WireError."""
    try:
        if flexible:
            length, start = uvarint(body, 0)
            end = start + length - 1
            is_null = length == 0
        else:
            start = 2
            length = int.from_bytes(body[:start], "big", signed=True)
            end = start + length
            is_null = length == -1 and len(body) >= start
        if is_null:
            return None
        if not start <= end <= len(body):
            raise WireError("first field", "cut short")
        return str(body[start:end], "utf-8", "replace")  # as the service reads it
    except IndexError as error:
        raise WireError("first field", f"cut short ({error})") from error


def group_of(body: memoryview, *, flexible: bool) -> str:
    """The group id, which is the first field of every call about one group. Raises WireError."""
    group = first_text(body, flexible=flexible)
    if group is None:
        raise WireError("group id", "null")
    return group
