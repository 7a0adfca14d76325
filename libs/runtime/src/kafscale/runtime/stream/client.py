"""The front door's end of a stream: connects, sends requests in the order of their lane, pairs them with replies, and
reconnects after a loss.

Laws: requests of one lane arrive in the order of their send(). A PendingReply always ends with a Reply, or its
owner cancels it. A request has the outcome NOT_EXECUTED only if it was certainly not executed: no byte of it was
handed to gRPC, or the service said so. Nothing is ever sent twice. A service that leaves says so: then nothing more is
sent on the stream, and the service answers what was.
"""

import asyncio
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio
import structlog
from kafscale.runtime.clock import Clock, SystemClock
from kafscale.runtime.grpc_identity import Dial, plain
from kafscale.runtime.stream.frame import (
    BODY_BYTES_MAX,
    FrameError,
    LeavingFrame,
    Reply,
    ReplyFrame,
    ReplyPart,
    ReplyStatus,
    RequestMeta,
    body_size,
)
from kafscale.runtime.stream.inbox import Inbox
from kafscale.runtime.stream.options import (
    ACCEPTED,
    CHANNEL_OPTIONS,
    KEEPALIVE_TIME_MS,
    KEEPALIVE_TIMEOUT_MS,
    METHODS,
    READS,
    Stream,
    keepalive,
)
from kafscale.runtime.stream.outbox import Outbox, Waiting
from kafscale.storage.backoff import Backoff
from kafscale.storage.task_groups import uncancelled
from kafscale.wire.buffers import Buffer

log = structlog.get_logger("kafscale.stream")

Call = grpc.aio.StreamStreamCall[bytes, bytes]
PATIENCE_S: Final = 0.01
"""A patient request waits so long at most, after the last message. Most of the cost of a small request is that of the
message it travels in. A reply to many requests of one message is one message too."""
SWEEP_EVERY_S: Final = 0.25
# A stream that was up for this long was a good one: the next attempt starts without a wait.
GOOD_AFTER_MS: Final = 1_000


class _Lost(Exception):
    """The stream is over. The text says why."""


class _State(enum.Enum):
    CONNECTING = enum.auto()  # new requests wait for the stream
    UP = enum.auto()
    LEAVING = enum.auto()  # the service answers what was sent; new requests fail
    DOWN = enum.auto()  # the last attempt failed, so new requests fail
    CLOSED = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    queue_bytes_max: int = 32 << 20
    default_budget_ms: int = 60_000
    connect_timeout_ms: int = 2_000
    keepalive_time_ms: int = KEEPALIVE_TIME_MS
    keepalive_timeout_ms: int = KEEPALIVE_TIMEOUT_MS


@dataclass(slots=True, eq=False)
class PendingReply:
    """A request under way. The future may be awaited or given callbacks.

    `admits`: called with the size of each part of an answer in several parts; says whether its owner has memory for
    it. After a no the answer is dropped, and the reply is FAILED.
    `parts`: takes the parts of a large answer as they arrive, if the service says how large it is. Then the reply at
    the end has no body. If the stream is lost between two parts, the reply is LOST.
    """

    client: "StreamClient"
    request_id: int
    waiting: Waiting | None
    expires_ms: int
    future: asyncio.Future[Reply]
    admits: Callable[[int], bool] | None = None
    parts: Callable[[ReplyPart], None] | None = None

    def cancel(self) -> None:
        """The reply is not needed any more: cancels the future, and the request at its service. Idempotent."""
        self.client.withdraw(self.request_id)
        self.admits = self.parts = None
        self.future.cancel()

    def end(self, reason: str) -> None:
        """No reply will come. Only a request of which no byte was handed to gRPC was certainly not executed."""
        sent = self.waiting is not None and self.waiting.taken
        self.future.set_result(Reply(ReplyStatus.LOST if sent else ReplyStatus.REFUSED, reason=reason))


class StreamClient:
    """The stream of one kind to one service instance."""

    def __init__(
        self,
        target: str,
        *,
        kind: Stream,
        limits: ClientLimits | None = None,
        clock: Clock | None = None,
        dial: Dial = plain,
    ) -> None:
        """No I/O: connects at the first send() or connect()."""
        self.target = target
        self._dial = dial
        self._method = METHODS[kind]
        self._log = log.bind(target=target, kind=kind)
        self._limits = limits or ClientLimits()
        self._clock = clock or SystemClock()
        self._state = _State.CONNECTING
        self._why_down = ""
        self._outbox = Outbox()
        self._inbox = self._new_inbox()
        self._last_id = 0
        self._waits_to_write = asyncio.Event()
        self._written_s = 0.0  # when the last message left, by the loop's clock
        self._patience: asyncio.TimerHandle | None = None
        self._up = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._pending: dict[int, PendingReply] = {}
        self._awaits_replies = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Returns when the stream is up; waits as long as it takes."""
        self._start()
        await self._up.wait()

    def send(
        self, meta: RequestMeta, body: Sequence[Buffer], *, lane: int = 0, patient: bool = False
    ) -> PendingReply:
        """Never blocks. A failure of the stream or of the service is a Reply, never an exception.

        The reply is TOO_LARGE at once if the body is larger than a stream carries, and REFUSED at once while the
        backend is known to be unreachable and while the queue is full. Check `writable` or await drain() before
        you send much.
        A `patient` request may wait PATIENCE_S for others, with which it shares a message.
        The client draws meta.request_id. meta.age_budget_ms=0 takes the client's default. The buffers
        must not change until the reply is there. Raises FrameError if a text does not fit in a header.
        """
        if self._owner is None:
            self._start()
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        refusal = self._refusal(body_size(body))
        if refusal is not None:
            future.set_result(refusal)
            return PendingReply(self, 0, None, 0, future)
        self._last_id = request_id = self._last_id + 1
        expires_ms = self._clock.now_ms() + (meta.age_budget_ms or self._limits.default_budget_ms)
        outbox = self._outbox
        waiting = outbox.put_request(request_id, meta, body, lane=lane, expires_ms=expires_ms)
        pending = self._pending[request_id] = PendingReply(self, request_id, waiting, expires_ms, future)
        self._awaits_replies.set()
        if outbox.waiting_bytes > self._limits.queue_bytes_max // 2:
            self._writable.clear()
        if patient:
            self._write_soon()
        else:
            self._waits_to_write.set()
        return pending

    @property
    def writable(self) -> bool:
        """False while more than half of queue_bytes_max waits."""
        return self._writable.is_set()

    async def drain(self) -> None:
        """Returns when writable, and when the client is closed."""
        await self._writable.wait()

    async def close(self) -> None:
        """Ends the open requests as LOST or REFUSED, and ends every task. Idempotent."""
        self._state = _State.CLOSED
        if self._patience is not None:
            self._patience.cancel()
        self._fail_all("the client was closed")
        self._writable.set()
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.wait((self._owner,))

    def _start(self) -> None:
        if self._owner is None and self._state is not _State.CLOSED:
            self._owner = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Owns every task of the client; close() ends it and waits for it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._stay_connected())
            while await self._awaits_replies.wait():
                await asyncio.sleep(SWEEP_EVERY_S)
                self._sweep(self._clock.now_ms())
                if not self._pending:
                    self._awaits_replies.clear()

    def _write_soon(self) -> None:
        """At once, unless a message has left within PATIENCE_S: then when that is over, or with the next message."""
        if self._patience is not None:
            return
        loop = asyncio.get_running_loop()
        wait_s = self._written_s + PATIENCE_S - loop.time()
        if wait_s <= 0:
            self._waits_to_write.set()
        else:
            self._patience = loop.call_later(wait_s, self._patience_ends)

    def _patience_ends(self) -> None:
        self._patience = None
        self._waits_to_write.set()

    def withdraw(self, request_id: int) -> PendingReply | None:
        """Drops the request if it is still queued. If any bytes were sent, sends a CANCEL frame."""
        pending = self._pending.pop(request_id, None)
        if pending is None:
            return None
        waiting = pending.waiting
        assert waiting is not None, "a request that is pending was queued"
        self._outbox.drop(waiting)
        if waiting.taken and self._state is _State.UP:
            self._outbox.put_cancel(request_id)
            self._waits_to_write.set()
        self._after_write()
        return pending

    def _sweep(self, now_ms: int) -> None:
        """Ends requests that are older than their budget, and cancels the others at the service if their owner did."""
        over = [
            request_id
            for request_id, pending in self._pending.items()
            if pending.expires_ms <= now_ms or pending.future.done()
        ]
        for request_id in over:
            pending = self.withdraw(request_id)
            if pending is not None and not pending.future.done():
                pending.end("no reply within the age budget")

    async def _stay_connected(self) -> None:
        """Until the client is closed."""
        backoff = Backoff()
        while True:
            reason = await self._one_stream(backoff)
            if self._state is _State.UP:
                self._log.warning("stream lost", reason=reason, unanswered=len(self._pending))
                self._state = _State.CONNECTING
                self._up.clear()
            elif self._state is _State.LEAVING:
                self._log.info("stream closed, as the service leaves", unanswered=len(self._pending))
                self._state = _State.DOWN
            elif self._state is _State.CONNECTING:
                self._log.warning("backend unreachable", reason=reason)
                self._state = _State.DOWN
            self._why_down = reason
            self._fail_all(reason)
            self._outbox = Outbox()
            self._inbox = self._new_inbox()
            self._after_write()
            if self._state is _State.CLOSED:
                return  # a TaskGroup that fails in the instant of a cancellation forgets the cancellation
            await asyncio.sleep(backoff.next_s())

    async def _one_stream(self, backoff: Backoff) -> str:
        """From connect to loss; why it was lost."""
        limits = self._limits
        options = (*CHANNEL_OPTIONS, *keepalive(limits.keepalive_time_ms, limits.keepalive_timeout_ms))
        channel = self._dial(self.target, options)
        try:
            call = await self._open(channel)
            up_ms = self._clock.now_ms()
            self._state = _State.UP
            self._up.set()
            self._log.info("stream up")
            try:
                return await self._use(call)
            finally:
                if self._clock.now_ms() - up_ms >= GOOD_AFTER_MS:
                    backoff.reset()
        except _Lost as error:
            return str(error)
        finally:
            await channel.close()

    async def _open(self, channel: grpc.aio.Channel) -> Call:
        """A stream that the service has accepted; until then nothing is written."""
        try:
            async with asyncio.timeout(self._limits.connect_timeout_ms / 1000):
                state = channel.get_state(try_to_connect=True)
                while state is not grpc.ChannelConnectivity.READY:
                    if state in (
                        grpc.ChannelConnectivity.TRANSIENT_FAILURE,
                        grpc.ChannelConnectivity.SHUTDOWN,
                    ):
                        raise _Lost("connection failed")
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
                call: Call = channel.stream_stream(self._method)(metadata=READS)
                if ACCEPTED[0] not in tuple(await call.initial_metadata()):
                    raise _Lost(await _status(call))
                return call
        except TimeoutError:
            raise _Lost(f"no connection within {self._limits.connect_timeout_ms} ms") from None
        except grpc.aio.AioRpcError as error:
            raise _Lost(f"{error.code().name}: {error.details()}") from error
        except grpc.aio.BaseError as error:
            raise _Lost(f"gRPC: {error}") from error

    async def _use(self, call: Call) -> str:
        try:
            with uncancelled():  # the client goes on, and its next connection has a time limit
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._write(call))
                    tasks.create_task(self._read(call))
        except* _Lost as group:
            reason = str(group.exceptions[0])
        return reason

    async def _write(self, call: Call) -> None:
        outbox, loop = self._outbox, asyncio.get_running_loop()
        while True:
            message = outbox.take(self._clock.now_ms())
            if message is None:
                if self._state is _State.LEAVING:
                    return await call.done_writing()
                self._waits_to_write.clear()
                await self._waits_to_write.wait()
                continue
            self._written_s = loop.time()
            if self._patience is not None:  # its requests leave with this message
                self._patience.cancel()
                self._patience = None
            try:
                await call.write(message)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                raise _Lost(await _status(call)) from None
            except grpc.aio.BaseError as error:
                raise _Lost(f"gRPC: {error}") from error
            self._after_write()

    async def _read(self, call: Call) -> None:
        while True:
            try:
                message = await call.read()
                if not isinstance(message, bytes):
                    raise _Lost("the service ended the stream")
                frames = self._inbox.feed(message)
            except grpc.aio.AioRpcError as error:
                raise _Lost(f"{error.code().name}: {error.details()}") from error
            except grpc.aio.BaseError as error:
                raise _Lost(f"gRPC: {error}") from error
            except FrameError as error:
                raise _Lost(f"bad frame: {error}") from error
            for frame in frames:
                if type(frame) is ReplyPart:
                    self._part(frame)
                    continue
                if type(frame) is LeavingFrame:
                    self._service_leaves()
                    continue
                assert type(frame) is ReplyFrame, "the inbox of a front door lets only replies through"
                self._reply(frame)

    def _service_leaves(self) -> None:
        """Ends what has not left. A large body that has begun to leave goes on: its service waits for the rest."""
        self._state = _State.LEAVING
        self._why_down = "the service leaves"
        self._up.clear()
        for request_id, pending in tuple(self._pending.items()):
            if pending.waiting is not None and not pending.waiting.taken:
                self.withdraw(request_id)
                if not pending.future.done():
                    pending.end(self._why_down)
        self._waits_to_write.set()

    def _reply(self, frame: ReplyFrame) -> None:
        """A reply without a pending request crossed its cancel on the way."""
        pending = self._pending.pop(frame.request_id, None)
        if pending is None or pending.future.done():
            return
        pending.future.set_result(frame.reply)

    def _part(self, part: ReplyPart) -> None:
        pending = self._pending.get(part.request_id)
        if pending is None or pending.parts is None or pending.future.done():
            return
        take = pending.parts
        if not part.left_bytes:
            del self._pending[part.request_id]
            pending.parts = None
            pending.future.set_result(Reply(part.reply.status, part.reply.revision))
        take(part)

    def _new_inbox(self) -> Inbox:
        return Inbox("frontdoor", admits=self._admits, streams=self._streams)

    def _streams(self, request_id: int) -> bool:
        pending = self._pending.get(request_id)
        return pending is not None and pending.parts is not None

    def _admits(self, request_id: int, size: int) -> bool:
        """A reply that is not waited for takes no memory."""
        pending = self._pending.get(request_id)
        if pending is None or pending.future.done():
            return False
        if pending.admits is None or pending.admits(size):
            return True
        self._pending.pop(request_id, None)
        if not pending.future.done():
            pending.future.set_result(Reply(ReplyStatus.FAILED, reason="no memory for the answer"))
        return False

    def _refusal(self, size: int) -> Reply | None:
        waiting_bytes = self._outbox.waiting_bytes
        if size > BODY_BYTES_MAX:
            return Reply(ReplyStatus.TOO_LARGE)
        if self._state in (_State.LEAVING, _State.DOWN):
            return Reply(ReplyStatus.REFUSED, reason=f"unreachable: {self._why_down}")
        if self._state is _State.CLOSED:
            return Reply(ReplyStatus.REFUSED, reason="the client was closed")
        # A body larger than the whole queue passes when it is alone.
        if waiting_bytes and waiting_bytes + size > self._limits.queue_bytes_max:
            return Reply(ReplyStatus.REFUSED, reason=f"{waiting_bytes} bytes wait already")
        return None

    def _after_write(self) -> None:
        if not self._writable.is_set() and self._outbox.waiting_bytes <= self._limits.queue_bytes_max // 2:
            self._writable.set()

    def _fail_all(self, reason: str) -> None:
        pending, self._pending = self._pending, {}
        for one in pending.values():
            if not one.future.done():
                one.end(reason)


async def _status(call: Call) -> str:
    code, details = await call.code(), await call.details()
    return f"{code.name}: {details}"
