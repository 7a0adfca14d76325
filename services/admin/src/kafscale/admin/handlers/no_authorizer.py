"""What the APIs of ACLs have in common: there is no authorizer, so nothing is kept and there is nothing to describe.

The answer is SECURITY_DISABLED in every place that it has for an error, as a Kafka broker without one answers.
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


def disabled(
    decode: Callable[[Buffer, int], Q],
    refuse: Callable[[Q], A],
    encode: Callable[[A, int], Sequence[Buffer]],
) -> AsyncHandler:
    async def refused(inbound: InboundRequest) -> Sequence[Buffer]:
        return answered(inbound, refuse(decode(inbound.body, inbound.meta.api_version)), encode)

    return refused
