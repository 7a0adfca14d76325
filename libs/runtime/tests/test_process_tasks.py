"""What a request happens to begin does not bear the request's ids."""

import asyncio

import pytest
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.logs import CURRENT_REQUEST
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.runtime.stream.options import Stream
from kafscale.runtime.stream.server import StreamServer, _ServerStream, task_handler
from kafscale.runtime.tracing import CURRENT_SPAN, Span, Tracer
from kafscale.storage.task_groups import OwnTasks
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


@pytest.mark.parametrize("prompt", [False, True])
async def test_a_request_that_waited_behind_others_runs_under_its_own_ids(prompt: bool) -> None:
    seen: list[tuple[int, RequestMeta | None]] = []
    released, everyone = asyncio.Event(), asyncio.Event()

    async def handler(inbound: InboundRequest) -> tuple[bytes, ...]:
        await released.wait()
        seen.append((inbound.meta.correlation_id, CURRENT_REQUEST.get()))
        if len(seen) == 3:
            everyone.set()
        return ()

    async with OwnTasks() as tasks:
        start = task_handler(handler, tasks, concurrent_max=1, prompt=prompt)
        for number in (1, 2, 3):
            token = CURRENT_REQUEST.set(request(number).meta)
            start(request(number))
            CURRENT_REQUEST.reset(token)
        released.set()
        async with asyncio.timeout(30):
            await everyone.wait()
    assert [(number, meta and meta.correlation_id) for number, meta in seen] == [(1, 1), (2, 2), (3, 3)]


async def test_a_prompt_request_is_answered_without_a_task_and_has_one_from_its_first_wait_on() -> None:
    tracer = Tracer(service="x", instance="1/a", ratio=1, exporter=InMemorySpanExporter())
    released, ended = asyncio.Event(), asyncio.Event()
    seen: list[tuple[int, RequestMeta | None, Span | None]] = []

    def note(inbound: InboundRequest) -> None:
        seen.append((inbound.meta.correlation_id, CURRENT_REQUEST.get(), CURRENT_SPAN.get()))

    async def handler(inbound: InboundRequest) -> tuple[bytes, ...]:
        note(inbound)
        if inbound.meta.correlation_id == 2:
            await released.wait()
            await asyncio.sleep(0)
            note(inbound)
            ended.set()
        return ()

    async with OwnTasks() as tasks:
        start = task_handler(handler, tasks, prompt=True)
        asked = [request(number) for number in (1, 2, 3)]
        tasks_before = asyncio.all_tasks()
        for inbound in asked:
            inbound.span = tracer.start_root("Heartbeat v4")
            token = CURRENT_REQUEST.set(inbound.meta)
            start(inbound)
            CURRENT_REQUEST.reset(token)
        assert [inbound.replied for inbound in asked] == [True, False, True]
        assert len(asyncio.all_tasks() - tasks_before) == 1
        assert CURRENT_SPAN.get() is None
        released.set()
        async with asyncio.timeout(30):
            await ended.wait()
    assert asked[1].replied
    assert seen == [(number, asked[number - 1].meta, asked[number - 1].span) for number in (1, 2, 3, 2)]


async def test_a_prompt_request_that_is_cancelled_ends_where_it_waits() -> None:
    ended: list[str] = []

    async def handler(_: InboundRequest) -> tuple[bytes, ...]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return ()

    for turns in (0, 3):  # before its task has begun, and after
        async with OwnTasks() as tasks:
            inbound = request(1)
            task_handler(handler, tasks, prompt=True)(inbound)
            for _ in range(turns):
                await asyncio.sleep(0)
            for cancel in inbound.cancel():
                cancel()
    assert ended == ["cancelled"] * 2


class Silent:
    """A call that nothing is written to."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


async def test_a_stream_is_nobody_s_once_the_handler_has_returned() -> None:
    server = StreamServer(bulk={}, control={}, clock=SystemClock())
    stream = _ServerStream(server, Stream.BULK, Silent())  # type: ignore[arg-type]
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
