"""What a request happens to begin does not bear the request's ids."""

import asyncio

from kafscale.runtime.clock import SystemClock
from kafscale.runtime.logs import CURRENT_REQUEST
from kafscale.runtime.own_tasks import OwnTasks
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.runtime.stream.server import StreamServer, _ServerStream, task_handler
from kafscale.runtime.tracing import CURRENT_SPAN, Span, Tracer
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

META = RequestMeta(connection_id=1, api_key=3, api_version=9)


class Sink:
    def answer(self, request: InboundRequest, status: int, revision: int, body: object) -> None:
        pass


def request(number: int) -> InboundRequest:
    meta = RequestMeta(connection_id=number, api_key=3, api_version=9, correlation_id=number)
    return InboundRequest(meta, memoryview(b""), arrived_ms=0, sink=Sink())


async def current() -> RequestMeta | None:
    return CURRENT_REQUEST.get()


async def test_a_task_of_the_process_starts_without_the_request_that_made_it() -> None:
    token = CURRENT_REQUEST.set(META)
    try:
        async with OwnTasks() as tasks:
            of_process = tasks.create_task(current())
        async with asyncio.TaskGroup() as own:
            of_request = own.create_task(current())
    finally:
        CURRENT_REQUEST.reset(token)
    assert of_process.result() is None
    assert of_request.result() == META


async def test_a_request_that_waited_behind_others_runs_under_its_own_ids() -> None:
    seen: list[tuple[int, RequestMeta | None]] = []
    released, everyone = asyncio.Event(), asyncio.Event()

    async def handler(inbound: InboundRequest) -> tuple[bytes, ...]:
        await released.wait()
        seen.append((inbound.meta.correlation_id, CURRENT_REQUEST.get()))
        if len(seen) == 3:
            everyone.set()
        return ()

    async with OwnTasks() as tasks:
        start = task_handler(handler, tasks, concurrent_max=1)
        for number in (1, 2, 3):
            token = CURRENT_REQUEST.set(request(number).meta)
            start(request(number))
            CURRENT_REQUEST.reset(token)
        released.set()
        async with asyncio.timeout(30):
            await everyone.wait()
    assert [(number, meta and meta.correlation_id) for number, meta in seen] == [(1, 1), (2, 2), (3, 3)]


class Silent:
    """A call that nothing is written to."""


async def test_a_stream_is_nobody_s_once_the_handler_has_returned() -> None:
    server = StreamServer(bulk={}, control={}, clock=SystemClock())
    stream = _ServerStream(server, "bulk", Silent())  # type: ignore[arg-type]
    seen: list[RequestMeta | None] = []
    stream._call(lambda inbound: seen.append(CURRENT_REQUEST.get()), request(7))
    assert [meta and meta.connection_id for meta in seen] == [7]
    assert CURRENT_REQUEST.get() is None


async def test_the_task_of_a_request_has_its_span() -> None:
    tracer = Tracer(service="x", instance="1/a", ratio=1, exporter=InMemorySpanExporter())
    inbound = request(5)
    inbound.span = tracer.start_root("Metadata v9")
    seen: list[Span | None] = []

    async def handler(_: InboundRequest) -> tuple[bytes, ...]:
        seen.append(CURRENT_SPAN.get())
        return ()

    async with OwnTasks() as tasks:
        task_handler(handler, tasks)(inbound)
    tracer.close()
    assert seen == [inbound.span]
    assert seen != [None]
