"""A request as a handler gets it from a stream, for tests that call handlers without a stream."""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.stream.inbound import InboundRequest, ReplySink
from kafscale.wire.buffers import Buffer


class _NoStream:
    def answer(self, request: InboundRequest, status: int, revision: int, body: Sequence[Buffer]) -> None:
        raise AssertionError("the handler returns its answer: nothing goes to the stream")


def inbound(
    body: bytes,
    api_key: int,
    version: int,
    *,
    aged: bool = False,
    sink: ReplySink | None = None,
    principal: str | None = None,
) -> InboundRequest:
    """A request without a deadline, or, if `aged`, with an expired one. `sink`: for handlers that reply themselves."""
    meta = RequestMeta(
        connection_id=1,
        request_id=1,
        age_budget_ms=1 if aged else 0,
        api_key=api_key,
        api_version=version,
        listener="PLAINTEXT",
        principal=principal,
        peer="127.0.0.1:1",
        client_id="test",
    )
    return InboundRequest(meta, memoryview(body), arrived_ms=0, sink=sink or _NoStream())
