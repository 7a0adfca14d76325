"""gRPC in memory behaves as gRPC does, where this project uses it: each test of a pair runs over both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from kafscale.testkit.clock import run_in_virtual_time
from kafscale.testkit.memory_grpc.channel import open_channel
from kafscale.testkit.memory_grpc.network import SILENCE_S, Network
from kafscale.testkit.memory_grpc.server import open_server

Code = grpc.StatusCode
State = grpc.ChannelConnectivity
ECHO, CHAT = "/test.Echo/Ask", "/test.Echo/Chat"
ACCEPTED = (("accepted", "yes"),)
HANG_S = 10.0


@dataclass
class Handlers:
    """What the service does. A test awaits the events."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    remaining_s: float | None = None

    async def ask(self, request: bytes, context: Any) -> bytes:
        self.remaining_s = context.time_remaining()
        match request:
            case b"abort":
                await context.abort(Code.NOT_FOUND, "no such thing")
            case b"fail":
                raise ValueError("a bug")
            case b"wait":
                await self.wait()
            case b"metadata":
                who: str = dict(context.invocation_metadata())["who"]
                return who.encode()
        return b"echo:" + request

    async def wait(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def chat(self, _messages: object, context: Any) -> None:
        if dict(context.invocation_metadata()).get("who") == "nobody":
            await context.abort(Code.UNAVAILABLE, "the service is leaving")
        await context.send_initial_metadata(ACCEPTED)
        while True:
            message = await context.read()
            if not isinstance(message, bytes):
                return
            if message == b"abort":
                await context.abort(Code.INVALID_ARGUMENT, "bad frame")
            if message == b"wait":
                await self.wait()
            await context.write(b"echo:" + message)

    def generic(self) -> tuple[grpc.GenericRpcHandler, ...]:
        methods: dict[str, Any] = {
            "Ask": grpc.unary_unary_rpc_method_handler(self.ask),
            "Chat": grpc.stream_stream_rpc_method_handler(self.chat),
        }
        return (grpc.method_handlers_generic_handler("test.Echo", methods),)


class Side(Protocol):
    """How a test connects."""

    handlers: Handlers

    def server(self) -> grpc.aio.Server: ...

    def channel(self, port: int) -> grpc.aio.Channel: ...


@dataclass
class InMemory:
    handlers: Handlers = field(default_factory=Handlers)
    network: Network = field(default_factory=Network)

    def server(self) -> grpc.aio.Server:
        return open_server(self.network, "service")

    def channel(self, port: int) -> grpc.aio.Channel:
        return open_channel(self.network, "client", f"127.0.0.1:{port}")


@dataclass
class Real:
    handlers: Handlers = field(default_factory=Handlers)

    def server(self) -> grpc.aio.Server:
        return grpc.aio.server(options=(("grpc.so_reuseport", 0),))

    def channel(self, port: int) -> grpc.aio.Channel:
        options = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))
        return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)


@dataclass
class Pair:
    side: Side
    server: grpc.aio.Server
    port: int
    channel: grpc.aio.Channel

    @property
    def handlers(self) -> Handlers:
        return self.side.handlers

    async def ask(self, request: bytes, method: str = ECHO, **how: Any) -> bytes:
        answer: bytes = await self.channel.unary_unary(method)(request, **how)  # type: ignore[arg-type]
        return answer

    def chat(self, **how: Any) -> Any:
        return self.channel.stream_stream(CHAT)(**how)


@pytest.fixture(params=[InMemory, Real])
def side(request: pytest.FixtureRequest) -> Side:
    made: Side = request.param()
    return made


@pytest_asyncio.fixture
async def pair(side: Side) -> AsyncIterator[Pair]:
    server = side.server()
    server.add_generic_rpc_handlers(side.handlers.generic())
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = side.channel(port)
    yield Pair(side, server, port, channel)
    await channel.close()
    await server.stop(0)


async def refused(work: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        async with asyncio.timeout(HANG_S):
            await work
    return raised.value.code(), raised.value.details() or ""


async def test_a_call_has_its_answer_and_its_metadata(pair: Pair) -> None:
    assert await pair.ask(b"1", timeout=HANG_S) == b"echo:1"
    assert await pair.ask(b"metadata", metadata=(("who", "us"),)) == b"us"
    assert pair.channel.get_state() is State.READY


async def test_a_handler_learns_how_long_its_caller_waits(pair: Pair) -> None:
    await pair.ask(b"1")
    assert pair.handlers.remaining_s is None
    await pair.ask(b"1", timeout=HANG_S)
    assert pair.handlers.remaining_s is not None
    assert 0 < pair.handlers.remaining_s < HANG_S + 1


@pytest.mark.parametrize(
    ("request_", "method", "code", "details"),
    [
        (b"abort", ECHO, Code.NOT_FOUND, "no such thing"),
        (b"fail", ECHO, Code.UNKNOWN, "Unexpected <class 'ValueError'>: a bug"),
        (b"1", "/test.Echo/Other", Code.UNIMPLEMENTED, "Method not found!"),
        (b"1", "/test.Other/Ask", Code.UNIMPLEMENTED, "Method not found!"),
    ],
)
async def test_a_refusal_has_its_code_and_its_words(
    pair: Pair, request_: bytes, method: str, code: grpc.StatusCode, details: str
) -> None:
    assert await refused(pair.ask(request_, method)) == (code, details)
    assert await pair.ask(b"1") == b"echo:1"


async def test_a_deadline_ends_the_call_at_both_ends(pair: Pair) -> None:
    assert (await refused(pair.ask(b"wait", timeout=0.2)))[0] is Code.DEADLINE_EXCEEDED
    async with asyncio.timeout(HANG_S):
        await pair.handlers.cancelled.wait()


async def test_a_call_that_is_cancelled_ends_at_both_ends(pair: Pair) -> None:
    call = asyncio.ensure_future(pair.ask(b"wait"))
    await pair.handlers.started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(HANG_S):
        await pair.handlers.cancelled.wait()


async def test_a_call_of_a_channel_that_is_closed_is_cancelled(pair: Pair) -> None:
    call = asyncio.ensure_future(pair.ask(b"wait"))
    await pair.handlers.started.wait()
    await pair.channel.close()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_stream_has_its_metadata_its_messages_in_order_and_its_end(pair: Pair) -> None:
    call = pair.chat(metadata=(("who", "us"),))
    assert ACCEPTED[0] in tuple(await call.initial_metadata())
    for number in range(3):
        await call.write(b"%d" % number)
    assert [await call.read() for _ in range(3)] == [b"echo:0", b"echo:1", b"echo:2"]
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is Code.OK


async def test_a_stream_that_is_refused_shows_no_metadata_but_a_status(pair: Pair) -> None:
    call = pair.chat(metadata=(("who", "nobody"),))
    assert ACCEPTED[0] not in tuple(await call.initial_metadata())
    assert (await call.code(), await call.details()) == (Code.UNAVAILABLE, "the service is leaving")


async def test_a_stream_that_the_service_aborts_fails_to_read_and_to_write(pair: Pair) -> None:
    call = pair.chat()
    await call.write(b"1")
    await call.write(b"abort")
    assert await call.read() == b"echo:1"
    assert await refused(call.read()) == (Code.INVALID_ARGUMENT, "bad frame")
    with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
        await call.write(b"2")


async def test_a_stream_that_is_cancelled_ends_at_both_ends(pair: Pair) -> None:
    call = pair.chat()
    await call.write(b"wait")
    await pair.handlers.started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.read()
    async with asyncio.timeout(HANG_S):
        await pair.handlers.cancelled.wait()


async def test_a_server_that_stops_ends_its_streams_and_refuses_new_calls(pair: Pair) -> None:
    call = pair.chat()
    await call.write(b"wait")
    await pair.handlers.started.wait()
    await pair.server.stop(0)
    async with asyncio.timeout(HANG_S):
        await pair.handlers.cancelled.wait()
    assert (await refused(call.read()))[0] is Code.UNAVAILABLE
    assert (await refused(pair.ask(b"1", timeout=HANG_S)))[0] is Code.UNAVAILABLE


async def test_nobody_listens(side: Side) -> None:
    channel = side.channel(1)
    state = channel.get_state(try_to_connect=True)
    async with asyncio.timeout(HANG_S):
        while state is not State.TRANSIENT_FAILURE:
            await channel.wait_for_state_change(state)
            state = channel.get_state()
    assert (await refused(channel.unary_unary(ECHO)(b"1")))[0] is Code.UNAVAILABLE  # type: ignore[arg-type]
    ready: Any = channel.unary_unary(ECHO)
    assert (await refused(ready(b"1", timeout=0.2, wait_for_ready=True)))[0] is Code.DEADLINE_EXCEEDED
    await channel.close()


async def test_a_call_may_wait_for_a_server_that_starts_later(side: Side) -> None:
    first = side.server()
    port = first.add_insecure_port("127.0.0.1:0")
    await first.start()
    await first.stop(0)
    channel = side.channel(port)
    ready: Any = channel.unary_unary(ECHO)
    call = ready(b"1", timeout=HANG_S, wait_for_ready=True)
    second = side.server()
    second.add_generic_rpc_handlers(side.handlers.generic())
    second.add_insecure_port(f"127.0.0.1:{port}")
    await second.start()
    assert await call == b"echo:1"
    await channel.close()
    await second.stop(0)


async def test_a_port_that_is_taken_is_an_error(pair: Pair) -> None:
    with pytest.raises(RuntimeError):
        pair.side.server().add_insecure_port(f"127.0.0.1:{pair.port}")


# -- what only the network in memory can do ------------------------------------------------------------

Test = Callable[[], Awaitable[None]]


async def started(network: Network, handlers: Handlers) -> grpc.aio.Channel:
    server = open_server(network, "service")
    server.add_generic_rpc_handlers(handlers.generic())
    port = server.add_insecure_port("host:0")
    await server.start()
    return open_channel(network, "client", f"host:{port}")


def test_messages_wait_while_two_nodes_are_cut_off_and_pass_after_it() -> None:
    async def story() -> None:
        network, loop = Network(lambda *_: 0.001), asyncio.get_running_loop()
        channel = await started(network, Handlers())
        call: Any = channel.stream_stream(CHAT)()
        await call.write(b"1")
        assert await call.read() == b"echo:1"
        network.cut("client", "service")
        began_s = loop.time()
        for number in range(3):
            await call.write(b"%d" % number)
        loop.call_later(SILENCE_S / 2, network.heal, "service", "client")
        assert [await call.read() for _ in range(3)] == [b"echo:0", b"echo:1", b"echo:2"]
        assert loop.time() - began_s == pytest.approx(SILENCE_S / 2, abs=0.1)

    run_in_virtual_time(story())


def test_a_connection_that_is_cut_for_too_long_breaks_at_both_ends() -> None:
    async def story() -> None:
        network, handlers = Network(lambda *_: 0.001), Handlers()
        channel = await started(network, handlers)
        call: Any = channel.stream_stream(CHAT)()
        await call.write(b"wait")
        await handlers.started.wait()
        network.cut("client", "service")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
        assert raised.value.code() is Code.UNAVAILABLE
        await handlers.cancelled.wait()
        network.heal("client", "service")
        assert await channel.unary_unary(ECHO)(b"1") == b"echo:1"  # type: ignore[arg-type]
        assert len(network.connections) == 1

    run_in_virtual_time(story())


def test_a_process_that_is_gone_breaks_its_connections_and_its_address_is_free() -> None:
    async def story() -> None:
        network, handlers = Network(lambda *_: 0.001), Handlers()
        channel = await started(network, handlers)
        call: Any = channel.unary_unary(ECHO)(b"wait")  # type: ignore[arg-type]
        await handlers.started.wait()
        network.drop("service", "connection reset by peer")
        with pytest.raises(grpc.aio.AioRpcError, match="connection reset by peer"):
            await call
        assert not network.servers
        assert not network.connections

    run_in_virtual_time(story())
