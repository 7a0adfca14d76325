"""The service's end of the streams: hands requests to handlers in arrival order, sends replies in any.

Laws: a handler is called synchronously, so its work before it returns happens in the order in
which the front door sent. Every request is answered exactly once or its stream is gone. When a
stream ends, everything open on it is cancelled. While more bytes than the limit are unanswered or
unsent, the stream is not read. An answer that is larger than the limit is not sent: its request gets
TOO_LARGE, and the stream goes on for all others.

A service that leaves says so on every stream. Its front door then sends nothing more and closes its side, so the
service has read all that was sent on the stream before it ends it, and no request on it is left without an answer.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio
import structlog
from kafscale.runtime.clock import Clock, LoopWatch, SystemClock
from kafscale.runtime.grpc_identity import FRONT_DOOR, roles_of
from kafscale.runtime.logs import CURRENT_REQUEST
from kafscale.runtime.stream.apis import ApiMetrics, ApiStats, StreamStats
from kafscale.runtime.stream.frame import (
    BODY_BYTES_MAX,
    CancelFrame,
    FrameError,
    ReplyStatus,
    RequestFrame,
    RequestMeta,
    TooLargeFrame,
    body_size,
)
from kafscale.runtime.stream.inbound import CountError, Handler, InboundRequest
from kafscale.runtime.stream.inbox import Inbox
from kafscale.runtime.stream.options import ACCEPTED, READS_LEAVING, READS_SIZES, SERVICE, Stream
from kafscale.runtime.stream.outbox import FRAME_COST_BYTES, Outbox
from kafscale.runtime.stream.tasks import AsyncHandler, task_handler
from kafscale.runtime.tracing import Tracer, request_span
from kafscale.wire.buffers import Buffer

__all__ = ["AsyncHandler", "Handler", "InboundRequest", "StreamLimits", "StreamServer", "task_handler"]

log = structlog.get_logger("kafscale.stream")

Context = grpc.aio.ServicerContext[bytes, bytes]
# After a pause we have caught up when a read had to wait this long, or when as many bytes were read
# as gRPC and the sockets can have held for us: the rest waited at the sender, which counted its age.
CAUGHT_UP_MS: Final = 5
WINDOW_BYTES: Final = 16 << 20
GOODBYE_TIMEOUT_S: Final = 2.0
"""A front door that stands still may take longer to close its side. The service does not wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """Bodies of unanswered requests and replies that wait to be written count as held.

    All are limits of one stream except held_bytes_total_max, which is that of the process.
    """

    held_bytes_max: int = 64 << 20
    held_bytes_total_max: int = 256 << 20
    open_requests_max: int = 16_384
    body_bytes_max: int = BODY_BYTES_MAX


class StreamServer:
    """Serves both methods; one instance per process."""

    def __init__(
        self,
        *,
        bulk: Mapping[int, Handler],
        control: Mapping[int, Handler],
        clock: Clock | None = None,
        watch: LoopWatch | None = None,
        limits: StreamLimits | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.handlers = {Stream.BULK: bulk, Stream.CONTROL: control}
        self.clock = clock or SystemClock()
        self.watch = watch
        self.limits = limits or StreamLimits()
        self.tracer = tracer
        self.refusing = False
        self.only_front_doors = False
        """Whether a caller has to show a front door's certificate."""
        self.apis: Mapping[int, ApiStats] = {}
        self.count_error: CountError | None = None
        self.stats = {kind: StreamStats() for kind in Stream}
        self._streams: set[_ServerStream] = set()
        self._paused: dict[_ServerStream, None] = {}  # the one that has waited longest is woken first

    def add_to(self, server: grpc.aio.Server) -> None:
        """Without serializers a message is the bytes that were written."""
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Bulk": grpc.stream_stream_rpc_method_handler(self._bulk),
            "Control": grpc.stream_stream_rpc_method_handler(self._control),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))

    def count(self, apis: ApiMetrics) -> None:
        """From now on every request is counted there."""
        self.apis = apis.by_key
        self.count_error = apis.failed

    @property
    def open_requests(self) -> int:
        return sum(len(stream.open) for stream in self._streams)

    @property
    def held_bytes(self) -> int:
        return sum(stream.held_bytes for stream in self._streams)

    def refuse_new(self) -> None:
        """From now on requests are answered REFUSED, and front doors are asked to send none; those that are open go
        on."""
        self.refusing = True
        for stream in self._streams:
            stream.ask_to_close()

    async def until_idle(self) -> None:
        """Returns when every open request is answered and every answer is handed to gRPC, and the streams whose
        front doors were asked to close them have ended, or GOODBYE_TIMEOUT_S later.
        """
        streams = tuple(self._streams)
        for stream in streams:
            await stream.until_idle()
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_TIMEOUT_S):
                for stream in streams:
                    await stream.until_closed()

    def pause(self, stream: "_ServerStream") -> None:
        self._paused[stream] = None

    def wake_paused(self) -> None:
        """Something was let go: perhaps a stream may be read again."""
        for stream in tuple(self._paused):
            if not stream.is_full():
                self._paused.pop(stream, None)
                stream.resume()

    def leave(self) -> None:
        """Ends every stream in good order; requests that are still open on them are cancelled."""
        for stream in tuple(self._streams):
            stream.leave()

    async def _bulk(self, _messages: object, context: Context) -> None:
        await self._serve(Stream.BULK, context)

    async def _control(self, _messages: object, context: Context) -> None:
        await self._serve(Stream.CONTROL, context)

    async def _serve(self, kind: Stream, context: Context) -> None:
        if self.refusing:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the service is leaving")
        if self.only_front_doors:
            await _require_front_door(context)
        stream = _ServerStream(self, kind, context)
        self._streams.add(stream)
        try:
            # The client writes nothing before it has seen this, and everything after it is for us.
            await context.send_initial_metadata(ACCEPTED)
            error = await stream.run()
        finally:
            self._streams.discard(stream)
            self._paused.pop(stream, None)
            stream.end()
            self.wake_paused()
        if error is not None:
            log.error("stream closed: bad frame", kind=kind, peer=context.peer(), reason=str(error))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))


async def _require_front_door(context: Context) -> None:
    """Requests carry a client's name, and only a front door has seen that client."""
    roles = roles_of(context.auth_context())
    if FRONT_DOOR not in roles:
        shown = ", ".join(sorted(roles)) or "no role"
        log.warning("stream refused", peer=context.peer(), certificate=shown)
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED,
            f"only front doors send requests; the certificate shows {shown}",
        )


class _ServerStream:
    """Reads in the gRPC handler's own task and writes in one more."""

    def __init__(self, server: StreamServer, kind: Stream, context: Context) -> None:
        self._server = server
        self._context = context
        self._handlers = server.handlers[kind]
        self._clock = server.clock
        self._limits = server.limits
        self._stats = server.stats[kind]
        self._inbox = Inbox("service", body_bytes_max=server.limits.body_bytes_max)
        reads = tuple(context.invocation_metadata() or ())
        self._outbox = Outbox(sizes=READS_SIZES in reads)
        self._reads_leaving = READS_LEAVING in reads
        self._asked_to_close = False
        self._open_bytes = 0
        self._ended = False
        self._writing = False
        self._behind_since_ms: int | None = None
        self._behind_bytes = 0
        self._reader: asyncio.Task[FrameError | None] | None = None
        self._waits_to_write = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._has_ended = asyncio.Event()
        self.open: dict[int, InboundRequest] = {}

    async def run(self) -> FrameError | None:
        """Until the client closed its side, broke the layout, or we leave. A client that was asked to close its side
        waits for its replies; any other waits for none.
        """
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(self._write())
            self._reader = tasks.create_task(self._read_until_wrong())
            await asyncio.wait((self._reader,))
            if self._asked_to_close and not self._reader.cancelled() and self._reader.result() is None:
                await self.until_idle()
            writer.cancel()
        return None if self._reader.cancelled() else self._reader.result()

    def ask_to_close(self) -> None:
        if self._reads_leaving and not self._asked_to_close:
            self._asked_to_close = True
            self._outbox.put_leaving()
            self._waits_to_write.set()

    def leave(self) -> None:
        """Ends the call in good order, so that the last writes still arrive."""
        self._ended = True
        self._is_idle.set()
        if self._reader is not None:
            self._reader.cancel()

    async def until_idle(self) -> None:
        while not self._ended and (self.open or self._outbox or self._writing):
            self._is_idle.clear()
            await self._is_idle.wait()

    async def until_closed(self) -> None:
        """Returns at once if the client was not asked to close its side."""
        if self._asked_to_close:
            await self._has_ended.wait()

    def end(self) -> None:
        self._ended = True
        self._is_idle.set()
        self._has_ended.set()
        for request in tuple(self.open.values()):
            self._cancel(request)
        self.open.clear()

    def answer(self, request: InboundRequest, status: int, revision: int, body: Sequence[Buffer]) -> None:
        """The request's way back; see InboundRequest.reply."""
        request_id = request.meta.request_id
        if self.open.pop(request_id, None) is None:
            return
        self._open_bytes -= len(request.body) + FRAME_COST_BYTES
        self._stats.replies += 1
        self._count(request)
        if request.span is not None:
            request.span.set("kafscale.reply", ReplyStatus(status).name)
            request.span.end()
        if body_size(body) > self._limits.body_bytes_max:
            self._refuse_size(request.meta, body_size(body))
            status, body = ReplyStatus.TOO_LARGE, ()
        self._reply(request_id, status, revision, body)

    def _refuse_size(self, meta: RequestMeta, size: int) -> None:
        self._stats.too_large += 1
        log.error("answer too large", api_key=meta.api_key, request_id=meta.request_id, size=size)

    def _reply(self, request_id: int, status: int, revision: int, body: Sequence[Buffer]) -> None:
        self._outbox.put_reply(request_id, status, revision, body)
        self._waits_to_write.set()

    def _count(self, request: InboundRequest) -> None:
        stats = self._server.apis.get(request.meta.api_key)
        if stats is not None:
            stats.requests.value += 1
            stats.seconds.observe((self._clock.now_ms() - request.arrived_ms) / 1000)

    @property
    def held_bytes(self) -> int:
        return self._open_bytes + self._outbox.waiting_bytes

    async def _read_until_wrong(self) -> FrameError | None:
        try:
            await self._read()
        except FrameError as error:
            return error
        return None

    async def _read(self) -> None:
        read = self._context.read
        now_ms = self._clock.now_ms
        while True:
            called_ms = now_ms()
            try:
                message = await read()
            except grpc.aio.BaseError:
                return  # the server was stopped under us
            if not isinstance(message, bytes):
                return
            self._behind_bytes -= len(message)
            self._receive(message, self._arrival_ms(called_ms, now_ms()))
            if self.is_full():
                await self._pause()

    async def _pause(self) -> None:
        self._stats.pauses += 1
        if self._behind_since_ms is None:
            self._behind_since_ms = self._clock.now_ms()
            self._behind_bytes = WINDOW_BYTES
        while self.is_full():
            self._has_room.clear()
            self._server.pause(self)
            await self._has_room.wait()

    def is_full(self) -> bool:
        limits = self._limits
        return (
            self.held_bytes > limits.held_bytes_max
            or len(self.open) >= limits.open_requests_max
            or self._server.held_bytes > limits.held_bytes_total_max
        )

    def resume(self) -> None:
        self._has_room.set()

    def _arrival_ms(self, called_ms: int, now_ms: int) -> int:
        """The earliest arrival of a message that is read now: one that waited unread is as old as the pause."""
        stalled_ms = self._server.watch.stalled_since_ms(now_ms) if self._server.watch else None
        behind_ms = self._behind_since_ms
        if stalled_ms is not None:
            behind_ms = stalled_ms if behind_ms is None else min(behind_ms, stalled_ms)
        elif behind_ms is not None and (now_ms - called_ms >= CAUGHT_UP_MS or self._behind_bytes < 0):
            behind_ms = self._behind_since_ms = None
        return now_ms if behind_ms is None else behind_ms

    def _receive(self, message: bytes, arrived_ms: int) -> None:
        self._stats.messages_in += 1
        self._stats.bytes_in += len(message)
        for frame in self._inbox.feed(message):
            if type(frame) is RequestFrame:
                self._request(frame, arrived_ms)
            elif type(frame) is TooLargeFrame:
                self._stats.too_large += 1
                self._reply(frame.request_id, ReplyStatus.TOO_LARGE, 0, ())
            elif type(frame) is CancelFrame:
                request = self.open.pop(frame.request_id, None)
                if request is not None:
                    self._stats.cancelled += 1
                    self._open_bytes -= len(request.body) + FRAME_COST_BYTES
                    self._cancel(request)
                    self._server.wake_paused()

    def _request(self, frame: RequestFrame, arrived_ms: int) -> None:
        meta = frame.meta
        if meta.request_id in self.open:
            raise FrameError(f"request id {meta.request_id} is open already")
        request = InboundRequest(
            meta, frame.body, arrived_ms=arrived_ms, sink=self, count_error=self._server.count_error
        )
        self.open[meta.request_id] = request
        self._open_bytes += len(frame.body) + FRAME_COST_BYTES
        self._stats.requests += 1
        handler = self._handlers.get(meta.api_key)
        if handler is None or self._server.refusing:
            self._stats.refused += 1
            request.reply(status=ReplyStatus.REFUSED)
        elif request.expired(self._clock.now_ms()):
            self._stats.expired += 1
            request.reply(status=ReplyStatus.EXPIRED)
        else:
            self._call(handler, request)

    def _call(self, handler: Handler, request: InboundRequest) -> None:
        if request.meta.traceparent is not None:
            request.span = request_span(self._server.tracer, request.meta)
        token = CURRENT_REQUEST.set(request.meta)
        try:
            handler(request)
        except Exception:
            self._stats.failed += 1
            log.exception("handler failed", api_key=request.meta.api_key, request_id=request.meta.request_id)
            if not request.replied:
                request.reply(status=ReplyStatus.FAILED)
        finally:
            CURRENT_REQUEST.reset(token)  # the stream's next work is not the request's

    def _cancel(self, request: InboundRequest) -> None:
        for callback in request.cancel():
            try:
                callback()
            except Exception:
                log.exception("cancel callback failed", api_key=request.meta.api_key)
        if request.span is not None:
            request.span.set("kafscale.reply", "CANCELLED")
            request.span.end()

    async def _write(self) -> None:
        outbox = self._outbox
        while True:
            message = outbox.take(self._clock.now_ms())
            if message is None:
                self._writing = False
                self._waits_to_write.clear()
                self._after_write()
                await self._waits_to_write.wait()
                continue
            self._writing = True
            self._stats.messages_out += 1
            self._stats.bytes_out += len(message)
            try:
                await self._context.write(message)
            except grpc.aio.BaseError:
                # The call is over; gRPC ends the reader, which ends this stream.
                return
            self._after_write()

    def _after_write(self) -> None:
        self._server.wake_paused()
        if not self.open and not self._writing:
            self._is_idle.set()
