"""Requests that end with a byte too many. Kafka ignores what is left at the end of a request; this codec refuses it.

librdkafka 2 writes the tags of AlterUserScramCredentials twice, so each of its requests ends with a 0 too many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import WireError

T = TypeVar("T")


def decoded_despite_surplus(decode: Callable[[Buffer, int], T], body: memoryview, version: int) -> T:
    """`decode(body, version)`, also if `body` has one more 0 at its end. Raises WireError."""
    try:
        return decode(body, version)
    except WireError:
        if bytes(body[-1:]) != b"\0":
            raise
        return decode(body[:-1], version)
