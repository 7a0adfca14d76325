"""The two ends of the streams over real gRPC on loopback and uvloop."""

import asyncio
import functools
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sized
from contextlib import asynccontextmanager

import grpc.aio
import pytest
import uvloop
from kafscale.runtime.stream.client import BackendLost, StreamClient
from kafscale.runtime.stream.frame import ReplyStatus, RequestMeta
from kafscale.runtime.stream.options import BULK_METHOD, SERVER_OPTIONS
from kafscale.runtime.stream.server import Handler, InboundRequest, StreamLimits, StreamServer, task_handler

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
async def client_of(target: str, kind: str = "bulk", **options: object) -> AsyncIterator[StreamClient]:
    client = StreamClient(target, kind="bulk" if kind == "bulk" else "control", **options)  # type: ignore[arg-type]
    try:
        yield client
    finally:
        await client.close()


def echo(request: InboundRequest) -> None:
    request.reply((b"echo:", request.body), revision=request.meta.revision)


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

    async with running({PRODUCE: note}) as service, client_of(service.target, streams=3) as client:
        pending = [
            client.send(meta(connection_id=number % 7), (b"%d" % number,), lane=number % 7)
            for number in range(10_000)
        ]
        for number, one in enumerate(pending):
            assert int(bytes((await one.future).body)) == number
        assert sum(map(len, seen.values())) == 10_000
        assert all(numbers == sorted(numbers) for numbers in seen.values())
        assert client.stats.messages_out < 2_000
        assert service.streams.stats["bulk"].messages_out < 2_000
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
        assert (await quick.future).body == b"q"
        assert (await slow.future).body == large
        assert arrived == [1, len(large)]


@on_uvloop
async def test_the_control_stream_is_not_held_by_bulk_bytes() -> None:
    held: list[InboundRequest] = []
    limits = StreamLimits(held_bytes_max=1 << 20)
    async with (
        running({PRODUCE: held.append}, {PRODUCE: echo}, limits=limits) as service,
        client_of(service.target) as bulk,
        client_of(service.target, "control") as control,
    ):
        stuck = [bulk.send(meta(), (b"x" * (1 << 20),)) for _ in range(20)]
        await until(lambda: len(held) == 1)
        assert (await control.send(meta(), (b"beat",)).future).body == b"echo:beat"
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
        stats = service.streams.stats["bulk"]
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
        assert (await let_through.future).body == b"echo:1"
        waits = second.send(meta(FETCH), (b"2",))
        await until(lambda: service.streams.stats["bulk"].pauses == 2)
        assert not waits.future.done()
        held[0].reply((b"done",))
        assert (await waits.future).body == b"echo:2"
        assert (await large.future).body == b"done"


@on_uvloop
async def test_a_full_client_queue_refuses_and_says_that_nothing_was_sent() -> None:
    async with client_of("127.0.0.1:1", queue_bytes_max=100_000) as client:
        first = client.send(meta(), (b"x" * 90_000,))
        assert not client.writable
        second = client.send(meta(), (b"x" * 90_000,))
        with pytest.raises(BackendLost) as lost:
            await second.future
        assert not lost.value.sent
        with pytest.raises(BackendLost) as lost:
            await first.future
        assert not lost.value.sent
        await client.drain()
        assert client.writable


@on_uvloop
async def test_a_cancel_reaches_the_handler_and_its_late_reply_goes_nowhere() -> None:
    held: list[InboundRequest] = []
    cancelled: list[int] = []

    def park(request: InboundRequest) -> None:
        held.append(request)
        request.on_cancel(lambda: cancelled.append(1))

    async with running({PRODUCE: park, FETCH: echo}) as service, client_of(service.target) as client:
        pending = client.send(meta(), (b"wait",))
        await until(lambda: len(held) == 1)
        pending.cancel()
        assert pending.future.cancelled()
        await until(lambda: held[0].cancelled)
        assert cancelled == [1]
        held[0].reply((b"late",))
        assert (await client.send(meta(FETCH), (b"!",)).future).body == b"echo:!"
        assert service.streams.held_bytes == 0


@on_uvloop
async def test_a_cancelled_waiter_is_a_cancel_too() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append}) as service, client_of(service.target) as client:
        waiter = asyncio.ensure_future(client.send(meta(), (b"wait",)).future)
        await until(lambda: len(held) == 1)
        waiter.cancel()
        await until(lambda: held[0].cancelled)
        assert client.pending == 0


@on_uvloop
async def test_a_lost_client_cancels_everything_open_on_its_stream() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append}) as service:
        async with client_of(service.target) as client:
            pending = [client.send(meta(), (b"wait",)) for _ in range(3)]
            await until(lambda: len(held) == 3)
        await until(lambda: all(request.cancelled for request in held))
        for one in pending:
            with pytest.raises(BackendLost):
                await one.future


@on_uvloop
async def test_a_killed_service_loses_what_was_sent_and_serves_again_after_its_restart() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append, FETCH: echo}) as service, client_of(service.target) as client:
        pending = client.send(meta(), (b"in flight",))
        await until(lambda: len(held) == 1)
        await service.kill()
        with pytest.raises(BackendLost) as lost:
            await pending.future
        assert lost.value.sent
        await until(lambda: not client.connected)
        with pytest.raises(BackendLost) as lost:
            await client.send(meta(FETCH), (b"too early",)).future
        assert not lost.value.sent
        await service.start()
        async with asyncio.timeout(10):
            await client.connect()
        assert (await client.send(meta(FETCH), (b"again",)).future).body == b"echo:again"


@on_uvloop
async def test_what_never_left_is_reported_as_not_sent_when_the_service_dies() -> None:
    limits = StreamLimits(held_bytes_max=1 << 16)
    held: list[InboundRequest] = []
    async with (
        running({PRODUCE: held.append}, limits=limits) as service,
        client_of(service.target, queue_bytes_max=64 << 20) as client,
    ):
        await client.connect()
        pending = [client.send(meta(), (b"x" * (1 << 20),)) for _ in range(40)]
        await until(lambda: len(held) >= 1)
        await service.kill()
        outcomes = await asyncio.gather(*(one.future for one in pending), return_exceptions=True)
        sent = [outcome.sent for outcome in outcomes if isinstance(outcome, BackendLost)]
        assert len(sent) == 40
        assert sent == sorted(sent, reverse=True)
        assert sent[0]
        assert not sent[-1]
        assert sum(sent) >= len(held)


@on_uvloop
async def test_over_restarts_every_request_ends_and_none_is_executed_that_was_reported_unsent() -> None:
    source = random.Random(7)
    executed: list[int] = []

    def note(request: InboundRequest) -> None:
        executed.append(int(bytes(request.body[:8])))
        if source.random() < 0.9:
            request.reply((request.body[:8],))

    outcomes: dict[int, str] = {}

    async def send(client: StreamClient, number: int) -> None:
        body = (b"%08d" % number, bytes(source.choice((0, 100, 70_000, 2_500_000))))
        try:
            reply = await client.send(meta(age_budget_ms=2_000), body, lane=number % 5).future
        except BackendLost as lost:
            outcomes[number] = "unknown" if lost.sent else "unsent"
        else:
            outcomes[number] = "answered"
            assert int(bytes(reply.body)) == number

    async with running({PRODUCE: note}) as service, client_of(service.target, streams=2) as client:
        async with asyncio.TaskGroup() as tasks:
            for round_number in range(6):
                for number in range(round_number * 60, round_number * 60 + 60):
                    tasks.create_task(send(client, number))
                # Sometimes in the middle, sometimes into a stream that is dead and does not know it yet.
                enough = len(executed) + source.randrange(20)
                everything = round_number * 60 + 59
                await until(
                    lambda enough=enough, everything=everything: (  # type: ignore[misc]
                        len(executed) > enough or len(outcomes) > everything
                    )
                )
                await service.kill()
                await service.start()
                async with asyncio.timeout(20):
                    await client.connect()
        assert set(outcomes) == set(range(360))
        assert len(executed) == len(set(executed))
        assert {number for number, outcome in outcomes.items() if outcome == "answered"} <= set(executed)
        assert not {number for number, outcome in outcomes.items() if outcome == "unsent"} & set(executed)
        assert {"answered", "unknown"} <= set(outcomes.values())
        assert client.pending == 0


@on_uvloop
async def test_an_expired_request_is_dropped_unread() -> None:
    class Late:
        """Every message is as old as the minute that the process stood still."""

        def stalled_since_ms(self, now_ms: int) -> int:
            return now_ms - 60_000

    called: list[InboundRequest] = []
    async with (
        running({PRODUCE: called.append}, watch=Late()) as service,
        client_of(service.target) as client,
    ):
        reply = await client.send(meta(age_budget_ms=30_000), (b"old",)).future
        assert reply.status is ReplyStatus.EXPIRED
        assert called == []
        assert service.streams.stats["bulk"].expired == 1
        client.send(meta(age_budget_ms=90_000), (b"young",)).future.add_done_callback(lambda f: f.exception())
        await until(lambda: len(called) == 1)


@on_uvloop
async def test_a_wedged_service_does_not_hold_a_future_over_its_budget() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append}) as service, client_of(service.target) as client:
        with pytest.raises(BackendLost) as lost:
            await client.send(meta(age_budget_ms=50), (b"?",)).future
        assert lost.value.sent
        await until(lambda: held[0].cancelled)


@on_uvloop
async def test_a_handler_that_raises_fails_its_request_only() -> None:
    def broken(_request: InboundRequest) -> None:
        raise RuntimeError("a bug")

    async with running({PRODUCE: broken, FETCH: echo}) as service, client_of(service.target) as client:
        assert (await client.send(meta(), (b"?",)).future).status is ReplyStatus.FAILED
        assert (await client.send(meta(FETCH), (b"!",)).future).body == b"echo:!"


@on_uvloop
async def test_an_answer_twice_is_a_bug() -> None:
    def twice(request: InboundRequest) -> None:
        request.reply((b"1",))
        request.reply((b"2",))

    async with running({PRODUCE: twice}) as service, client_of(service.target) as client:
        assert (await client.send(meta(), (b"?",)).future).body == b"1"
        assert service.streams.stats["bulk"].failed == 1


@on_uvloop
async def test_a_leaving_service_refuses_and_finishes_what_it_accepted() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append}) as service, client_of(service.target) as client:
        accepted = client.send(meta(), (b"1",))
        await until(lambda: len(held) == 1)
        service.streams.refuse_new()
        with pytest.raises(BackendLost) as lost:
            await client.send(meta(), (b"2",)).future
        assert not lost.value.sent
        idle = asyncio.ensure_future(service.streams.until_idle())
        held[0].reply((b"done",))
        await idle
        service.streams.leave()
        assert (await accepted.future).body == b"done"
        async with client_of(service.target) as late:
            with pytest.raises(BackendLost) as lost:
                await late.send(meta(), (b"3",)).future
            assert not lost.value.sent


@on_uvloop
async def test_an_api_without_a_handler_is_refused_as_not_executed() -> None:
    async with running({}) as service, client_of(service.target) as client:
        with pytest.raises(BackendLost) as lost:
            await client.send(meta(), (b"?",)).future
        assert not lost.value.sent


@on_uvloop
async def test_a_bad_frame_closes_its_stream_and_cancels_what_is_open_on_it() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append}) as service, client_of(service.target) as client:
        open_one = client.send(meta(), (b"1",))
        await until(lambda: len(held) == 1)
        async with grpc.aio.insecure_channel(service.target) as channel:
            call = channel.stream_stream(BULK_METHOD)()
            await call.write(b"not a frame at all")
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert not held[0].cancelled
        held[0].reply((b"ok",))
        assert (await open_one.future).body == b"ok"


@on_uvloop
async def test_coroutine_handlers_run_concurrently_up_to_their_limit_and_may_be_cancelled() -> None:
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
        if request.body == b"bad":
            raise ValueError("a bug")
        return (b"slow:", bytes(request.body))

    async with asyncio.TaskGroup() as tasks:
        handler = task_handler(slow, tasks, concurrent_max=3)
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
                assert (await pending[number].future).body == b"slow:%d" % number
            assert most == 3
