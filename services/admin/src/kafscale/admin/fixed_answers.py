"""Kafka APIs that read and write nothing here: the request alone determines the answer.

The ACL APIs are among them. There is no authorizer, so they answer SECURITY_DISABLED in every field for an error, as a
Kafka broker without an authorizer does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer

Q = TypeVar("Q", bound=msgspec.Struct)
A = TypeVar("A", bound=msgspec.Struct)

NO_AUTHORIZER = "No Authorizer is configured."


def fixed_answer(
    decode: Callable[[Buffer, int], Q],
    answer: Callable[[Q], A],
    encode: Callable[[A, int], Sequence[Buffer]],
) -> AsyncHandler:
    async def handle(inbound: InboundRequest) -> Sequence[Buffer]:
        return answered(inbound, answer(decode(inbound.body, inbound.meta.api_version)), encode)

    return handle
