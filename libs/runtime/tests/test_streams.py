"""The two ends of the streams: order, coalescing, chunks, bounds, handlers that fail."""

import asyncio
import functools
import time
from unittest.mock import Mock, patch

import grpc.aio
import pytest
import structlog
from kafscale.runtime.stream import client as stream_client
from kafscale.runtime.stream.frame import ReplyPart, ReplyStatus
from kafscale.runtime.stream.options import METHODS, Stream
from kafscale.runtime.stream.outbox import Outbox
from kafscale.runtime.stream.server import InboundRequest, StreamLimits, StreamServer, task_handler
from kafscale.wire.errors import WireError
from stream_harness import (
    FETCH,
    PRODUCE,
    SLOW,
    client_of,
    echo,
    has_more_than,
    meta,
    on_uvloop,
    running,
    unanswered,
    until,
)


@on_uvloop
async def test_a_request_comes_back_with_its_reply() -> None:
    async with running({PRODUCE: echo}) as service, client_of(service.target) as client:
        reply = await client.send(meta(revision=7), (b"ab", memoryview(b"c"))).future
        assert (bytes(reply.body), reply.revision, reply.status) == (b"echo:abc", 7, ReplyStatus.FINAL)


@on_uvloop
async def test_ten_thousand_pipelined_requests_arrive_in_the_order_of_their_lane() -> None:
    seen: dict[int, list[int]] = {}

    def note(request: InboundRequest) -> None:
        seen.setdefault(request.meta.connection_id, []).append(int(bytes(request.body)))
        request.reply((request.body,))

    async with running({PRODUCE: note}) as service, client_of(service.target) as client:
        pending = [
            client.send(meta(connection_id=number % 7), (b"%d" % number,), lane=number % 7)
            for number in range(10_000)
        ]
        for number, one in enumerate(pending):
            assert int(bytes((await one.future).body)) == number
        assert sum(map(len, seen.values())) == 10_000
        assert all(numbers == sorted(numbers) for numbers in seen.values())
        assert service.streams.stats[Stream.BULK].messages_in < 2_000
        assert service.streams.stats[Stream.BULK].messages_out < 2_000
        assert service.streams.open_requests == 0
        assert service.streams.held_bytes == 0


@on_uvloop
async def test_replies_may_come_in_any_order() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append}) as service, client_of(service.target) as client:
        first, second = client.send(meta(), (b"1",)), client.send(meta(), (b"2",))
        await until(lambda: len(held) == 2)
        held[1].reply((b"two",))
        assert bytes((await second.future).body) == b"two"
        assert not first.future.done()
        held[0].reply((b"one",))
        assert bytes((await first.future).body) == b"one"


@on_uvloop
async def test_large_bodies_pass_whole_and_small_ones_pass_them() -> None:
    arrived: list[int] = []

    def note(request: InboundRequest) -> None:
        arrived.append(len(request.body))
        request.reply((request.body,))

    large = bytes(range(256)) * (20 << 12)
    async with running({PRODUCE: note}) as service, client_of(service.target) as client:
        await client.connect()
        slow, quick = client.send(meta(), (large,), lane=1), client.send(meta(), (b"q",), lane=2)
        assert bytes((await quick.future).body) == b"q"
        assert bytes((await slow.future).body) == large
        assert arrived == [1, len(large)]


@on_uvloop
async def test_the_control_stream_is_not_held_by_bulk_bytes() -> None:
    held: list[InboundRequest] = []
    limits = StreamLimits(held_bytes_max=1 << 20)
    async with (
        running({PRODUCE: held.append}, {PRODUCE: echo}, limits=limits) as service,
        client_of(service.target) as bulk,
        client_of(service.target, Stream.CONTROL) as control,
    ):
        stuck = [bulk.send(meta(), (b"x" * (1 << 20),)) for _ in range(20)]
        await until(lambda: len(held) == 1)
        assert bytes((await control.send(meta(), (b"beat",)).future).body) == b"echo:beat"
        assert not any(one.future.done() for one in stuck)
        for one in stuck:
            one.cancel()


@on_uvloop
async def test_a_stream_over_its_byte_limit_is_not_read_until_there_is_room() -> None:
    held: list[InboundRequest] = []
    limits = StreamLimits(held_bytes_max=64 << 10)
    async with (
        running({PRODUCE: held.append}, limits=limits) as service,
        client_of(service.target, queue_bytes_max=64 << 20) as client,
    ):
        pending = [client.send(meta(), (b"x" * 200_000,)) for _ in range(60)]
        stats = service.streams.stats[Stream.BULK]
        for number in range(60):
            await until(functools.partial(has_more_than, held, number))
            assert service.streams.held_bytes <= (64 << 10) + (1 << 20)
            held[number].reply((b"ok",))
        await asyncio.gather(*(one.future for one in pending))
        assert stats.pauses > 10


@on_uvloop
async def test_streams_share_one_bound_and_a_stream_waits_for_the_bytes_of_another() -> None:
    held: list[InboundRequest] = []
    limits = StreamLimits(held_bytes_total_max=100_000)
    async with (
        running({PRODUCE: held.append, FETCH: echo}, limits=limits) as service,
        client_of(service.target) as first,
        client_of(service.target) as second,
    ):
        large = first.send(meta(), (b"x" * 150_000,))
        await until(lambda: len(held) == 1)
        let_through = second.send(meta(FETCH), (b"1",))
        assert bytes((await let_through.future).body) == b"echo:1"
        waits = second.send(meta(FETCH), (b"2",))
        await until(lambda: service.streams.stats[Stream.BULK].pauses == 2)
        assert not waits.future.done()
        held[0].reply((b"done",))
        assert bytes((await waits.future).body) == b"echo:2"
        assert bytes((await large.future).body) == b"done"


@on_uvloop
async def test_a_full_client_queue_refuses_and_says_that_nothing_was_sent() -> None:
    async with client_of("127.0.0.1:1", queue_bytes_max=100_000) as client:
        first = client.send(meta(), (b"x" * 90_000,))
        assert not client.writable
        second = client.send(meta(), (b"x" * 90_000,))
        assert (await second.future).status is ReplyStatus.REFUSED
        assert (await first.future).status is ReplyStatus.REFUSED
        await client.drain()
        assert client.writable


@on_uvloop
async def test_a_handler_that_raises_fails_its_request_only() -> None:
    def broken(_request: InboundRequest) -> None:
        raise RuntimeError("a bug")

    async with running({PRODUCE: broken, FETCH: echo}) as service, client_of(service.target) as client:
        assert (await client.send(meta(), (b"?",)).future).status is ReplyStatus.FAILED
        assert bytes((await client.send(meta(FETCH), (b"!",)).future).body) == b"echo:!"


@on_uvloop
async def test_an_answer_twice_is_a_bug() -> None:
    def twice(request: InboundRequest) -> None:
        request.reply((b"1",))
        request.reply((b"2",))

    async with running({PRODUCE: twice}) as service, client_of(service.target) as client:
        assert bytes((await client.send(meta(), (b"?",)).future).body) == b"1"
        assert service.streams.stats[Stream.BULK].failed == 1


@on_uvloop
async def test_an_api_without_a_handler_is_refused_as_not_executed() -> None:
    async with running({}) as service, client_of(service.target) as client:
        assert (await client.send(meta(), (b"?",)).future).status is ReplyStatus.REFUSED


@on_uvloop
async def test_a_bad_frame_closes_its_stream_and_cancels_what_is_open_on_it() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append}) as service, client_of(service.target) as client:
        open_one = client.send(meta(), (b"1",))
        await until(lambda: len(held) == 1)
        async with grpc.aio.insecure_channel(service.target) as channel:
            call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(METHODS[Stream.BULK])()
            await call.write(b"not a frame at all")
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert not held[0].cancelled
        held[0].reply((b"ok",))
        assert bytes((await open_one.future).body) == b"ok"


class LeavingClient:
    """The service's view of a client that sent one request, and leaves on request."""

    def __init__(self) -> None:
        outbox = Outbox()
        outbox.put_request(1, meta(), (b"1",), lane=0, expires_ms=0)
        self._request = outbox.take(0)
        self.leaves = asyncio.Event()

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    async def send_initial_metadata(self, _metadata: object) -> None:
        pass

    async def read(self) -> object:
        if self._request is not None:
            request, self._request = self._request, None
            return request
        await self.leaves.wait()
        return grpc.aio.EOF

    async def write(self, _message: bytes) -> None:
        pass


@pytest.mark.parametrize("turns", range(8))
async def test_a_reply_while_the_client_leaves_harms_nobody(turns: int) -> None:
    """Between the end of the reader and that of its stream it must not wake a writer that was cancelled."""
    held: list[InboundRequest] = []
    server, grpc_server = StreamServer(bulk={PRODUCE: held.append}, control={}), Mock()
    server.add_to(grpc_server)
    ((handlers,),) = (call.args[0] for call in grpc_server.add_generic_rpc_handlers.call_args_list)
    client = LeavingClient()
    serving = asyncio.create_task(
        handlers.service(Mock(method=METHODS[Stream.BULK])).stream_stream(None, client)
    )
    await until(lambda: has_more_than(held, 0))
    client.leaves.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    held[0].reply((b"late",))
    await serving
    assert server.open_requests == 0


@on_uvloop
async def test_a_malformed_request_is_the_clients_mistake_and_fills_no_log_of_ours() -> None:
    for prompt in (False, True):
        await sees_a_malformed_request(prompt=prompt)


async def sees_a_malformed_request(*, prompt: bool) -> None:
    async def decodes(_request: InboundRequest) -> tuple[bytes, ...]:
        raise WireError("MetadataRequest", "length -2")

    with structlog.testing.capture_logs() as logs:
        async with asyncio.TaskGroup() as tasks:
            handler = task_handler(decodes, tasks, prompt=prompt)
            async with running({PRODUCE: handler}) as service, client_of(service.target) as client:
                assert (await client.send(meta(), (b"?",)).future).status is ReplyStatus.FAILED
    (line,) = [line for line in logs if line["event"] == "malformed request"]
    assert line["log_level"] == "debug"
    assert "length -2" in line["why"]


@on_uvloop
async def test_coroutine_handlers_run_concurrently_up_to_their_limit_and_may_be_cancelled() -> None:
    for prompt in (False, True):
        await run_concurrently(prompt=prompt)


async def run_concurrently(*, prompt: bool) -> None:
    gate = asyncio.Event()
    running_now = 0
    most = 0

    async def slow(request: InboundRequest) -> tuple[bytes, ...]:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        try:
            await gate.wait()
        finally:
            running_now -= 1
        if bytes(request.body) == b"bad":
            raise ValueError("a bug")
        return (b"slow:", bytes(request.body))

    async with asyncio.TaskGroup() as tasks:
        handler = task_handler(slow, tasks, concurrent_max=3, prompt=prompt)
        async with running({SLOW: handler}) as service, client_of(service.target) as client:
            pending = [client.send(meta(SLOW), (b"%d" % number,)) for number in range(8)]
            bad = client.send(meta(SLOW), (b"bad",))
            await until(lambda: running_now == 3 and service.streams.open_requests == 9)
            pending[0].cancel()
            pending[5].cancel()
            await until(lambda: service.streams.open_requests == 7 and running_now == 3)
            gate.set()
            assert (await bad.future).status is ReplyStatus.FAILED
            for number in (1, 2, 3, 4, 6, 7):
                assert bytes((await pending[number].future).body) == b"slow:%d" % number
            assert most == 3


@on_uvloop
async def test_an_answer_that_its_owner_has_no_room_for_is_thrown_away_and_the_stream_goes_on() -> None:
    asked: list[InboundRequest] = []
    parts: list[int] = []

    def admits(size: int) -> bool:
        parts.append(size)
        return len(parts) <= 2

    async with running({PRODUCE: echo, SLOW: asked.append}) as service, client_of(service.target) as client:
        refused, kept = client.send(meta(SLOW), (b"",)), client.send(meta(SLOW), (b"",))
        refused.admits = admits
        await until(lambda: len(asked) == 2)
        for one in asked:
            one.reply((bytes(5 << 20),))
        reply = await refused.future
        assert (reply.status, bytes(reply.body)) == (ReplyStatus.FAILED, b"")
        assert len((await kept.future).body) == 5 << 20
        assert parts == [1 << 20] * 3, "after a no it is not asked again"
        assert bytes((await client.send(meta(), (b"next",)).future).body) == b"echo:next"
        assert unanswered(client) == 0
        assert len(service.streams._streams) == 1


@on_uvloop
async def test_an_answer_or_a_request_too_large_fails_alone_and_the_stream_goes_on_for_the_others() -> None:
    asked: list[InboundRequest] = []
    limits = StreamLimits(body_bytes_max=2 << 20)
    handlers = {PRODUCE: echo, SLOW: asked.append}
    async with running(handlers, limits=limits) as service, client_of(service.target) as client:
        waiting = client.send(meta(SLOW), (b"held",))
        too_long = await client.send(meta(), (bytes(2 << 20),)).future
        assert (too_long.status, bytes(too_long.body)) == (ReplyStatus.TOO_LARGE, b"")
        never_read = await client.send(meta(), (bytes((2 << 20) + 1),)).future
        assert never_read.status is ReplyStatus.TOO_LARGE
        not_sent = client.send(meta(), (memoryview(bytes(1 << 20)),) * 129)
        assert (await not_sent.future).status is ReplyStatus.TOO_LARGE
        assert service.streams.stats[Stream.BULK].requests == 2, "the last one never left"
        asked[0].reply((b"answered on the same stream",))
        assert bytes((await waiting.future).body) == b"answered on the same stream"
        assert service.streams.stats[Stream.BULK].too_large == 2
        assert len(service.streams._streams) == 1
        assert service.streams.held_bytes == 0


@on_uvloop
async def test_a_large_answer_is_taken_in_parts_as_it_arrives() -> None:
    large = bytes(range(256)) * (20 << 12)
    parts: list[ReplyPart] = []
    async with (
        running({PRODUCE: lambda request: request.reply((large,), revision=9), FETCH: echo}) as service,
        client_of(service.target) as client,
    ):
        await client.connect()
        pending = client.send(meta(), (b"?",))
        pending.parts = parts.append
        small = client.send(meta(FETCH), (b"s",))
        small.parts = parts.append
        reply = await pending.future
        assert (reply.status, reply.revision, bytes(reply.body)) == (ReplyStatus.FINAL, 9, b"")
        assert b"".join(part.reply.body for part in parts) == large
        assert [part.left_bytes for part in parts] == [(19 - n) << 20 for n in range(20)]
        assert bytes((await small.future).body) == b"echo:s"
        assert unanswered(client) == 0


@on_uvloop
async def test_a_service_that_dies_within_an_answer_leaves_a_lost_request_and_its_parts_end() -> None:
    parts: list[ReplyPart] = []
    handlers = {PRODUCE: lambda request: request.reply((bytes(64 << 20),))}
    async with running(handlers) as service, client_of(service.target) as client:
        await client.connect()
        pending = client.send(meta(), (b"?",))
        pending.parts = parts.append
        await until(lambda: len(parts) >= 1)
        await service.kill()
        assert (await pending.future).status is ReplyStatus.LOST
        assert parts[-1].left_bytes > 0


@on_uvloop
async def test_a_front_door_that_leaves_within_an_answer_gets_no_more_parts() -> None:
    parts: list[ReplyPart] = []
    handlers = {PRODUCE: lambda request: request.reply((bytes(64 << 20),)), FETCH: echo}
    async with running(handlers) as service, client_of(service.target) as client:
        await client.connect()
        pending = client.send(meta(), (b"?",))

        def take(part: ReplyPart) -> None:
            parts.append(part)
            pending.cancel()

        pending.parts = take
        await until(lambda: len(parts) == 1)
        assert bytes((await client.send(meta(FETCH), (b"!",)).future).body) == b"echo:!"
        assert len(parts) == 1
        assert unanswered(client) == 0


@on_uvloop
async def test_patient_requests_leave_together_when_one_that_is_not_leaves() -> None:
    with patch.object(stream_client, "PATIENCE_S", 60.0):
        async with running({PRODUCE: echo}) as service, client_of(service.target) as client:
            await client.send(meta(), (b"first",)).future
            stats = service.streams.stats[Stream.BULK]
            before = stats.messages_in, stats.messages_out
            patient = []
            for number in range(5):
                patient.append(client.send(meta(), (b"%d" % number,), patient=True))
                await asyncio.sleep(0)
            assert not any(one.future.done() for one in patient)
            await client.send(meta(), (b"last",)).future
            assert [bytes((await one.future).body) for one in patient] == [b"echo:%d" % n for n in range(5)]
            assert (stats.messages_in, stats.messages_out) == (before[0] + 1, before[1] + 1)


@on_uvloop
async def test_a_patient_request_waits_only_after_another_message_and_no_longer_than_its_patience() -> None:
    async with running({PRODUCE: echo}) as service, client_of(service.target) as client:
        with patch.object(stream_client, "PATIENCE_S", 0.3):
            await client.connect()
            begin = time.monotonic()
            await client.send(meta(), (b"first",), patient=True).future
            pending = client.send(meta(), (b"second",), patient=True)
            assert bytes((await pending.future).body) == b"echo:second"
            assert 0.25 < time.monotonic() - begin < 10


@on_uvloop
async def test_a_client_that_closes_ends_its_patient_requests() -> None:
    with patch.object(stream_client, "PATIENCE_S", 60.0):
        async with running({PRODUCE: echo}) as service, client_of(service.target) as client:
            await client.send(meta(), (b"first",)).future
            pending = client.send(meta(), (b"second",), patient=True)
            await client.close()
            assert (await pending.future).status is ReplyStatus.REFUSED
