"""Writes `throttle_time_ms` into the answers of services, which the front door does not decode otherwise. Pure.

Most answers begin with it. The generated codec knows which: an empty answer with a certain throttle time is encoded,
and begins with it or not. The others are decoded and encoded again; that happens only to a client that is throttled.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import WireError
from kafscale.wire.schema import MODULES, module_of

FIELD: Final = "throttle_time_ms"
INT: Final = Struct(">i")
MARK: Final = 0x1A2B3C4D


def throttle_time_of(api_key: int, version: int, body: Sequence[Buffer]) -> int:
    """What an answer that begins with it says; 0 for others."""
    start = b"".join(bytes(memoryview(part)[: INT.size]) for part in body[:2])
    return INT.unpack_from(start)[0] if _begins_with_it(api_key, version) and len(start) >= INT.size else 0


def with_throttle_time(
    api_key: int, version: int, body: Sequence[Buffer], throttle_ms: int
) -> Sequence[Buffer]:
    """The answer with this throttle time, if it is longer than its own. An answer that has no such field stays, and so
    does that of an API that is not served, which has no codec."""
    if api_key not in MODULES:
        return body
    if _begins_with_it(api_key, version):
        if throttle_time_of(api_key, version, body) >= throttle_ms:
            return body
        first = memoryview(body[0])
        if len(first) >= INT.size:
            return [INT.pack(throttle_ms), first[INT.size :], *body[1:]]
    return _encoded_again(api_key, version, body, throttle_ms)


def _encoded_again(api_key: int, version: int, body: Sequence[Buffer], throttle_ms: int) -> Sequence[Buffer]:
    codec = module_of(api_key)
    try:
        answer = codec.decode_response(b"".join(map(bytes, body)), version)
    except WireError:
        return body  # an error in a version that is not served: ApiVersions answers in version 0
    if throttle_ms <= getattr(answer, FIELD, throttle_ms):
        return body
    answer.throttle_time_ms = throttle_ms
    encoded: Sequence[Buffer] = codec.encode_response(answer, version)
    return encoded


@lru_cache(maxsize=1_024)
def _begins_with_it(api_key: int, version: int) -> bool:
    """By key and version, of which there are some hundreds. A version that is not served has no such answer."""
    codec = module_of(api_key)
    response = getattr(codec, f"{codec.NAME}Response")
    if FIELD not in response.__struct_fields__:
        return False
    try:
        encoded = b"".join(map(bytes, codec.encode_response(response(throttle_time_ms=MARK), version)))
    except WireError:
        return False
    return encoded.startswith(INT.pack(MARK))
