"""A service and its clients over real gRPC on loopback and uvloop."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Sized
from contextlib import asynccontextmanager

import grpc.aio
import uvloop
from kafscale.runtime.stream.client import ClientLimits, StreamClient
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.stream.options import SERVER_OPTIONS, Stream
from kafscale.runtime.stream.server import Handler, InboundRequest, StreamServer

PRODUCE, FETCH, SLOW = 0, 1, 2


def on_uvloop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """The loop that services run on."""

    @functools.wraps(test)
    def run() -> None:
        uvloop.run(test())

    return run


def meta(api_key: int = PRODUCE, **fields: object) -> RequestMeta:
    return RequestMeta(**{"connection_id": 1, "api_key": api_key, "api_version": 9, **fields})  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


def has_more_than(held: Sized, count: int) -> bool:
    return len(held) > count


class Service:
    """One service process's worth of server, which can die and come back on its port."""

    def __init__(
        self, bulk: dict[int, Handler], control: dict[int, Handler] | None = None, **options: object
    ) -> None:
        self.streams = StreamServer(bulk=bulk, control=control or {}, **options)  # type: ignore[arg-type]
        self.port = 0
        self._server: grpc.aio.Server | None = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self.streams.add_to(self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def kill(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None


@asynccontextmanager
async def running(
    bulk: dict[int, Handler], control: dict[int, Handler] | None = None, **options: object
) -> AsyncIterator[Service]:
    service = Service(bulk, control, **options)
    await service.start()
    try:
        yield service
    finally:
        await service.kill()


@asynccontextmanager
async def client_of(target: str, kind: Stream = Stream.BULK, **limits: int) -> AsyncIterator[StreamClient]:
    client = StreamClient(target, kind=kind, limits=ClientLimits(**limits))
    try:
        yield client
    finally:
        await client.close()


def unanswered(client: StreamClient) -> int:
    return len(client._pending)


def echo(request: InboundRequest) -> None:
    request.reply((b"echo:", request.body), revision=request.meta.revision)
