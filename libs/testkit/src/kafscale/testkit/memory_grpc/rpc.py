"""One call, as its two ends see it: the client's `Rpc` and the service's `Context`.

They have what this project uses of `grpc.aio`, with the same names, errors and order: the tests of the streams and of
the conformance suite run over both. There is no flow control: a reader that does not read is bounded by its sender.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio
from kafscale.testkit.memory_grpc.network import Connection

Code = grpc.StatusCode
Metadata = tuple[tuple[str, str], ...]
Codec = Callable[[Any], Any] | None


def as_it_is(message: Any) -> Any:
    return message


class _Inbox:
    """Messages, and then the end."""

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._ended = False
        self._news = asyncio.Event()

    def put(self, message: Any) -> None:
        self._messages.append(message)
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def take(self) -> Any:
        while not self._messages:
            if self._ended:
                return grpc.aio.EOF
            self._news.clear()
            await self._news.wait()
        return self._messages.popleft()


class Rpc:
    """The client's end."""

    def __init__(self, connection: Connection, serialize: Codec, deserialize: Codec) -> None:
        self._connection = connection
        self._serialize, self._deserialize = serialize or as_it_is, deserialize or as_it_is
        self._inbox = _Inbox()
        self._initial: asyncio.Future[Metadata] = asyncio.get_running_loop().create_future()
        self._status: asyncio.Future[tuple[grpc.StatusCode, str]] = asyncio.get_running_loop().create_future()
        self.context: Context | None = None
        """The other end, once the call has arrived there."""
        self.forget: Callable[[Rpc], None] = lambda _: None

    # -- what callers use ----------------------------------------------------------------------------

    async def write(self, message: Any) -> None:
        """Raises AioRpcError or InvalidStateError if the call is over."""
        if self._status.done():
            self._raise_unless_ok()
            raise asyncio.InvalidStateError("the call is over")
        data = self._serialize(message)
        self._connection.forth.send(lambda: self._there().inbox.put(data))

    def serialized(self, message: Any) -> Any:
        return self._serialize(message)

    async def done_writing(self) -> None:
        self._connection.forth.send(lambda: self._there().inbox.end())

    async def read(self) -> Any:
        """A message; EOF after the last one if the call ended well."""
        message = await self._inbox.take()
        if message is grpc.aio.EOF:
            await asyncio.shield(self._status)
            self._raise_unless_ok()
            return message
        return self._deserialize(message)

    async def initial_metadata(self) -> Metadata:
        return await asyncio.shield(self._initial)

    async def code(self) -> grpc.StatusCode:
        return (await asyncio.shield(self._status))[0]

    async def details(self) -> str:
        return (await asyncio.shield(self._status))[1]

    def done(self) -> bool:
        return self._status.done()

    def cancel(self) -> bool:
        if self._status.done():
            return False
        self._connection.forth.send(lambda: self._there().cancel())
        self.finish(Code.CANCELLED, "Locally cancelled by application!")
        return True

    def _there(self) -> Context:
        assert self.context is not None, "the begin of a call arrives before all else of it"
        return self.context

    # -- what arrives --------------------------------------------------------------------------------

    def receive(self, message: Any) -> None:
        if not self._status.done():
            self._inbox.put(message)

    def end(self, answer: Any, code: grpc.StatusCode, details: str) -> None:
        """`answer`: of a call with one."""
        if answer is not None:
            self.receive(answer)
        self.finish(code, details)

    def begins(self, metadata: Metadata) -> None:
        if not self._initial.done():
            self._initial.set_result(metadata)

    def finish(self, code: grpc.StatusCode, details: str) -> None:
        if self._status.done():
            return
        self.begins(())
        self._status.set_result((code, details))
        self._inbox.end()
        self.forget(self)

    def _raise_unless_ok(self) -> None:
        code, details = self._status.result()
        if code is Code.CANCELLED and details.startswith("Locally"):
            raise asyncio.CancelledError
        if code is not Code.OK:
            raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


class Context:
    """The service's end."""

    def __init__(
        self, connection: Connection, rpc: Rpc, metadata: Metadata, deadline_s: float | None
    ) -> None:
        self._connection, self._rpc = connection, rpc
        self._metadata, self._deadline_s = metadata, deadline_s
        self.inbox = _Inbox()
        self.task: asyncio.Task[None] | None = None
        self.deserialize: Callable[[Any], Any] = as_it_is
        self.serialize: Callable[[Any], Any] = as_it_is
        self._aborted: tuple[grpc.StatusCode, str] | None = None

    # -- what handlers use -----------------------------------------------------------------------------

    async def read(self) -> Any:
        message = await self.inbox.take()
        return message if message is grpc.aio.EOF else self.deserialize(message)

    async def write(self, message: Any) -> None:
        if self._connection.why_broken is not None:
            raise grpc.aio.UsageError("RPC already finished.")
        data = self.serialize(message)
        self._connection.back.send(lambda: self._rpc.receive(data))

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        self._connection.back.send(lambda: self._rpc.begins(metadata))

    async def abort(
        self, code: grpc.StatusCode, details: str = "", _trailing_metadata: Metadata = ()
    ) -> NoReturn:
        self._aborted = (code, details)
        raise grpc.aio.AbortError("Locally aborted.")

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def time_remaining(self) -> float | None:
        if self._deadline_s is None:
            return None
        return max(0.0, self._deadline_s - asyncio.get_running_loop().time())

    def peer(self) -> str:
        return f"memory:{self._connection.client}"

    def auth_context(self) -> Mapping[str, list[bytes]]:
        return {}

    # -- what the server does --------------------------------------------------------------------------

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def serve(self, handler: Any) -> None:
        """Runs a method's handler, and sends the status."""
        self.deserialize = handler.request_deserializer or as_it_is
        self.serialize = handler.response_serializer or as_it_is
        answer: Any = None
        try:
            answer = await self._answer(handler)
            code, details = Code.OK, ""
        except grpc.aio.AbortError:
            assert self._aborted is not None, "only abort raises it"
            code, details = self._aborted
        except asyncio.CancelledError:
            code, details = Code.CANCELLED, "the server cancelled the call"
        except Exception as error:  # noqa: BLE001  (as gRPC does with the error of a handler)
            code, details = Code.UNKNOWN, f"Unexpected {type(error)}: {error}"
        self._connection.back.send(lambda: self._rpc.end(answer, code, details))

    async def _answer(self, handler: Any) -> Any:
        """What arrives with the status: the only answer, serialized. None: it streams answers."""
        if handler.request_streaming:
            await handler.stream_stream(None, self)
            return None
        request = await self.read()
        if not handler.response_streaming:
            return self.serialize(await handler.unary_unary(request, self))
        async for answer in handler.unary_stream(request, self):
            await self.write(answer)
        return None
