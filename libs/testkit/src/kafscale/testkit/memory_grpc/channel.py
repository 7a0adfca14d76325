"""A channel of `grpc.aio` in memory: one connection to one address, made again when it is needed after it broke."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import grpc
import grpc.aio
from kafscale.testkit.memory_grpc.network import Connection, Network
from kafscale.testkit.memory_grpc.rpc import Codec, Context, Metadata, Rpc
from kafscale.testkit.memory_grpc.server import MemoryServer

RECONNECT_S: Final = 1.0
"""`grpc.max_reconnect_backoff_ms` of the channels to etcd."""

State = grpc.ChannelConnectivity
Code = grpc.StatusCode


def open_channel(network: Network, node: str, address: str) -> grpc.aio.Channel:
    """From this node. Does not connect yet."""
    return cast(grpc.aio.Channel, MemoryChannel(network, node, address))


class MemoryChannel:
    def __init__(self, network: Network, node: str, address: str) -> None:
        self._network, self._node, self._address = network, node, address
        self._state = State.IDLE
        self._changed = asyncio.Event()
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._retry_s = 0.0
        self._open: dict[Rpc, None] = {}
        self._unary: dict[asyncio.Task[Any], None] = {}

    # -- what callers use ------------------------------------------------------------------------------

    def unary_unary(
        self, method: str, request_serializer: Codec = None, response_deserializer: Codec = None
    ) -> Callable[..., asyncio.Task[Any]]:
        def call(
            request: Any,
            *,
            timeout: float | None = None,
            metadata: Metadata | None = None,
            wait_for_ready: bool = False,
        ) -> asyncio.Task[Any]:
            rpc = _Start(method, metadata or (), timeout, request_serializer, response_deserializer)
            task = asyncio.get_running_loop().create_task(self._ask(rpc, request, wait_for_ready))
            self._unary[task] = None
            task.add_done_callback(self._asked)
            return task

        return call

    def stream_stream(
        self, method: str, request_serializer: Codec = None, response_deserializer: Codec = None
    ) -> Callable[..., LateRpc]:
        def call(*, metadata: Metadata | None = None) -> LateRpc:
            start = _Start(method, metadata or (), None, request_serializer, response_deserializer)
            return LateRpc(self, start)

        return call

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        if try_to_connect and self._state is State.IDLE:
            self._connect()
        return self._state

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        while self._state is last_observed_state:
            self._changed.clear()
            await self._changed.wait()

    async def close(self, _grace: float | None = None) -> None:
        self._enter(State.SHUTDOWN)
        if self._connecting is not None:
            self._connecting.cancel()
        for rpc in tuple(self._open):
            rpc.cancel()
        for task in tuple(self._unary):
            task.cancel()
        if self._connection is not None:
            self._connection.end_by(self._node, "the channel was closed")

    # -- the connection --------------------------------------------------------------------------------

    async def begin(self, start: _Start, *, wait_for_ready: bool, request: Any = None) -> Rpc:
        """`request`: of a call with one. It arrives with the call. Raises AioRpcError UNAVAILABLE."""
        connection = await self._connected(wait_for_ready)
        rpc = Rpc(connection, start.serialize, start.deserialize)
        data = None if request is None else rpc.serialized(request)
        rpc.forget = self._forget
        self._open[rpc] = None
        server = self._network.servers.get(self._address)

        def arrive() -> None:
            assert isinstance(server, MemoryServer), server
            context = Context(connection, rpc, start.metadata, start.deadline_s)
            rpc.context = context
            if data is not None:
                context.inbox.put(data)
                context.inbox.end()
            server.begin(connection, context, start.method)

        connection.forth.send(arrive)
        return rpc

    def _forget(self, rpc: Rpc) -> None:
        self._open.pop(rpc, None)

    async def _connected(self, wait_for_ready: bool) -> Connection:
        while True:
            if self._state is State.SHUTDOWN:
                raise _failed(Code.UNAVAILABLE, "Channel is closed.")
            if self._state is State.READY:
                assert self._connection is not None, "it is ready"
                return self._connection
            loop = asyncio.get_running_loop()
            if self._state is State.TRANSIENT_FAILURE and loop.time() < self._retry_s:
                if not wait_for_ready:
                    raise _failed(Code.UNAVAILABLE, f"failed to connect to {self._address}")
                await asyncio.sleep(self._retry_s - loop.time())
                continue
            if self._connecting is None:
                self._connect()
            await self.wait_for_state_change(State.CONNECTING)

    def _connect(self) -> None:
        self._enter(State.CONNECTING)
        self._connecting = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        try:
            connection = await self._network.connect(self._node, self._address)
        finally:
            self._connecting = None
        if connection is None or connection.why_broken is not None:
            self._fail()
            return
        self._connection = connection
        connection.on_broken[self._node] = self._broken
        self._enter(State.READY)

    def _fail(self) -> None:
        self._retry_s = asyncio.get_running_loop().time() + RECONNECT_S
        self._enter(State.TRANSIENT_FAILURE)

    def _broken(self, why: str) -> None:
        self._connection = None
        if self._state is not State.SHUTDOWN:
            self._enter(State.IDLE)
        for rpc in tuple(self._open):
            rpc.finish(Code.UNAVAILABLE, why)

    def _enter(self, state: grpc.ChannelConnectivity) -> None:
        self._state = state
        self._changed.set()

    # -- calls with one answer -------------------------------------------------------------------------

    async def _ask(self, start: _Start, request: Any, wait_for_ready: bool) -> Any:
        rpc: Rpc | None = None
        limit = asyncio.timeout_at(start.deadline_s)
        try:
            async with limit:
                rpc = await self.begin(start, wait_for_ready=wait_for_ready, request=request)
                answer = await rpc.read()
                if answer is grpc.aio.EOF:
                    raise _failed(Code.INTERNAL, "the service sent no answer")
                await rpc.read()  # its status
                return answer
        except TimeoutError:
            raise _failed(Code.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        finally:
            if rpc is not None:
                rpc.cancel()

    def _asked(self, task: asyncio.Task[Any]) -> None:
        del self._unary[task]
        if not task.cancelled():
            task.exception()  # it is seen, also if the caller was cancelled meanwhile


class _Start:
    def __init__(
        self, method: str, metadata: Metadata, timeout_s: float | None, serialize: Codec, deserialize: Codec
    ) -> None:
        self.method, self.metadata = method, metadata
        self.serialize, self.deserialize = serialize, deserialize
        loop = asyncio.get_running_loop()
        self.deadline_s = None if timeout_s is None else loop.time() + timeout_s


class LateRpc:
    """A stream that begins when it is first used, as the connection may have to be made before."""

    def __init__(self, channel: MemoryChannel, start: _Start) -> None:
        self._channel, self._start = channel, start
        self._beginning: asyncio.Task[Rpc] | None = None
        self._cancelled = False

    async def _rpc(self) -> Rpc:
        if self._cancelled:
            raise asyncio.CancelledError
        if self._beginning is None:
            begin = self._channel.begin(self._start, wait_for_ready=False)
            self._beginning = asyncio.get_running_loop().create_task(begin)
        return await asyncio.shield(self._beginning)

    async def write(self, message: Any) -> None:
        await (await self._rpc()).write(message)

    async def done_writing(self) -> None:
        await (await self._rpc()).done_writing()

    async def read(self) -> Any:
        return await (await self._rpc()).read()

    async def initial_metadata(self) -> Metadata:
        return await (await self._rpc()).initial_metadata()

    async def code(self) -> grpc.StatusCode:
        return await (await self._rpc()).code()

    async def details(self) -> str:
        return await (await self._rpc()).details()

    def cancel(self) -> bool:
        self._cancelled = True
        if self._beginning is None:
            return True
        if not self._beginning.done():
            return self._beginning.cancel()
        if self._beginning.cancelled() or self._beginning.exception() is not None:
            return False
        return self._beginning.result().cancel()


def _failed(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)
