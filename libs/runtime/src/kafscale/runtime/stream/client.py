"""The front door's end of the streams: sends in lane order, pairs replies, tells what may have been sent.

Laws: requests of one lane arrive in the order of their send(). A PendingReply always ends: with a
Reply, with BackendLost, or cancelled by its owner. BackendLost.sent is False only when no byte of
the request was handed to gRPC. Nothing is ever sent twice.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal

from kafscale.runtime.stream.frame import Buffer, Reply, RequestMeta


class BackendLost(Exception):
    """No reply will come. sent=False: certainly not executed; sent=True: unknown."""

    def __init__(self, *, target: str, sent: bool, reason: str) -> None:
        super().__init__(f"{target}: {reason} ({'may have been' if sent else 'not'} sent)")
        self.target = target
        self.sent = sent
        self.reason = reason


class PendingReply:
    """A request under way. The future may be awaited or given callbacks."""

    __slots__ = ("future",)

    future: asyncio.Future[Reply]

    def cancel(self) -> None:
        """Nobody wants the reply: cancels the future and tells the service."""
        raise NotImplementedError


class StreamClient:
    def __init__(
        self,
        target: str,
        *,
        kind: Literal["bulk", "control"],
        streams: int = 1,
        queue_bytes_max: int = 32 << 20,
        default_budget_ms: int = 60_000,
    ) -> None:
        """No I/O: connects at the first send() or connect()."""
        raise NotImplementedError

    async def connect(self) -> None:
        """Returns when every stream is up; waits as long as it takes."""
        raise NotImplementedError

    def send(self, meta: RequestMeta, body: Sequence[Buffer], *, lane: int = 0) -> PendingReply:
        """Never blocks and never raises for the world's failures: those are in the future.

        Fails at once with BackendLost(sent=False) while the backend is known to be unreachable and
        when the queue is full; look at `writable` or await drain() before sending much.
        meta.request_id is drawn here. meta.age_budget_ms=0 takes the client's default.
        """
        raise NotImplementedError

    @property
    def writable(self) -> bool:
        """False while more than half of queue_bytes_max waits on some stream."""
        raise NotImplementedError

    async def drain(self) -> None:
        """Returns when writable."""
        raise NotImplementedError

    async def close(self) -> None:
        """Fails what is open with BackendLost and ends every task. Idempotent."""
        raise NotImplementedError
