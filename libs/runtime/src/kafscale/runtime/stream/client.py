"""The front door's end of the streams: sends requests in the order of their lane and pairs them with replies.

Laws: requests of one lane arrive in the order of their send(). A PendingReply always ends with a Reply, or its
owner cancels it. A request has the outcome NOT_EXECUTED only if it was certainly not executed: no byte of it was
handed to gRPC, or the service said so. Nothing is ever sent twice.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from kafscale.runtime.clock import Clock, SystemClock
from kafscale.runtime.grpc_identity import Dial, plain
from kafscale.runtime.stream.frame import Buffer, Reply, RequestMeta
from kafscale.runtime.stream.link import Link, LinkLimits, PendingReply
from kafscale.runtime.stream.options import Stream

__all__ = ["LinkLimits", "PendingReply", "Reply", "RequestMeta", "StreamClient"]

SWEEP_EVERY_S: Final = 0.25


class StreamClient:
    """The stream of one kind to one service instance."""

    def __init__(
        self,
        target: str,
        *,
        kind: Stream,
        limits: LinkLimits | None = None,
        clock: Clock | None = None,
        dial: Dial = plain,
    ) -> None:
        """No I/O: connects at the first send() or connect()."""
        self.target = target
        self._clock = clock or SystemClock()
        self._link = Link(target, kind, limits=limits or LinkLimits(), clock=self._clock, dial=dial)
        self._owner: asyncio.Task[None] | None = None
        self._closed = False

    async def connect(self) -> None:
        """Returns when the stream is up; waits as long as it takes."""
        self._start()
        await self._link.up.wait()

    def send(
        self, meta: RequestMeta, body: Sequence[Buffer], *, lane: int = 0, patient: bool = False
    ) -> PendingReply:
        """Never blocks. A failure of the stream or of the service is a Reply, never an exception.

        The reply is TOO_LARGE at once if the body is larger than a stream carries, and REFUSED at once while the
        backend is known to be unreachable and while the queue is full. Check `writable` or await drain() before
        you send much.
        A `patient` request may wait PATIENCE_S (link.py) for others, with which it shares a message.
        The client draws meta.request_id. meta.age_budget_ms=0 takes the client's default. The buffers
        must not change until the reply is there. Raises FrameError if a text does not fit in a header.
        """
        if self._owner is None:
            self._start()
        return self._link.send(meta, body, lane, patient=patient)

    @property
    def writable(self) -> bool:
        """False while more than half of queue_bytes_max waits."""
        return self._link.writable.is_set()

    async def drain(self) -> None:
        """Returns when writable, and when the client is closed."""
        await self._link.writable.wait()

    async def close(self) -> None:
        """Ends the open requests as LOST or REFUSED, and ends every task. Idempotent."""
        self._closed = True
        self._link.close()
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.wait((self._owner,))

    def _start(self) -> None:
        if self._owner is None and not self._closed:
            self._owner = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Owns every task of the client; close() ends it and waits for it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._link.run())
            while True:
                await asyncio.sleep(SWEEP_EVERY_S)
                self._link.sweep(self._clock.now_ms())
