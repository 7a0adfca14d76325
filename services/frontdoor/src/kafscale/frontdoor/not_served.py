"""Answers to APIs of Kafka that are not served: UNSUPPORTED_VERSION, and why, if there is a field for a text.

Clients that do not ask for ApiVersions send such requests. Closing the connection would end whatever else they do on
it, and users see "EOF". There is no codec of these APIs, so each answer is written from the letters of its fields, all
of which have their defaults. The answers of some APIs have an error for each entry only: their connection is closed.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from kafscale.frontdoor.api import Api, Backend, NotServed, Own
from kafscale.frontdoor.refusals import refuse_exchange
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError

FIXED: Final[Mapping[str, bytes]] = {
    "t": bytes(4),  # throttle time
    "b": b"\1",
    "h": b"\xff" * 2,
    "i": bytes(4),
    "q": bytes(8),
    "p": b"\xff" * 8,  # a producer id
    "u": bytes(16),
    "x": b"\xff",  # a struct that is null
}
PLAIN: Final[Mapping[str, bytes]] = {"a": bytes(4), "s": bytes(2), "y": bytes(4)}
"""An array, a text and bytes, each of them empty, before the API's first flexible version."""
COMPACT: Final[Mapping[str, bytes]] = {"a": b"\1", "s": b"\1", "y": b"\1", "n": b"\0"}
"""`n`: null. `e` is the error and `m` the text, which may be null (each layout with one is flexible)."""
NO_TAGS: Final = b"\0"
TEXT_BYTES_MAX: Final = 126


def as_api(one: NotServed) -> Api:
    """An API that serves no version, so the gateway refuses each."""

    def refuse(_: memoryview, version: int, code: ErrorCode) -> Sequence[Buffer]:
        return [_answer(one, version, code)]

    handler = partial(refuse_exchange, code=ErrorCode.UNSUPPORTED_VERSION)
    return Api(
        key=one.key,
        versions=(0, -1),
        backend=Backend.FRONTDOOR,
        dispatch=Own(lambda _: handler),
        refuse=refuse,
    )


def _answer(one: NotServed, version: int, code: ErrorCode) -> bytes:
    first = max((first for first in one.layouts if first <= version), default=None)
    if first is None or not one.versions[0] <= version <= one.versions[1]:
        raise WireError(one.name, "is not served, and its answer has no place for an error", version=version)
    flexible = version >= one.key.flexible_from
    text = f"{one.name} is not supported ({one.why})".encode()
    assert len(text) <= TEXT_BYTES_MAX, "its length must fit into one byte"
    fields = {
        **FIXED,
        **(COMPACT if flexible else PLAIN),
        "e": int(code).to_bytes(2, "big"),
        "m": bytes([len(text) + 1]) + text,
    }
    return b"".join(fields[letter] for letter in one.layouts[first]) + (NO_TAGS if flexible else b"")
