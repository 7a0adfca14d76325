"""What becomes of requests when somebody leaves: cancels, dead services, old requests, drains."""

import asyncio
import random
from collections import Counter

import pytest
from kafscale.runtime.stream import client as stream_client
from kafscale.runtime.stream import server as stream_server
from kafscale.runtime.stream.client import StreamClient
from kafscale.runtime.stream.frame import Outcome, ReplyStatus
from kafscale.runtime.stream.options import READS_SIZES, Stream
from kafscale.runtime.stream.server import InboundRequest, StreamLimits
from stream_harness import (
    FETCH,
    PRODUCE,
    Service,
    client_of,
    echo,
    meta,
    on_uvloop,
    running,
    unanswered,
    until,
)


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
        assert bytes((await client.send(meta(FETCH), (b"!",)).future).body) == b"echo:!"
        assert service.streams.held_bytes == 0


@on_uvloop
async def test_a_cancelled_waiter_is_a_cancel_too() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append}) as service, client_of(service.target) as client:
        waiter = asyncio.ensure_future(client.send(meta(), (b"wait",)).future)
        await until(lambda: len(held) == 1)
        waiter.cancel()
        await until(lambda: held[0].cancelled)
        assert unanswered(client) == 0


@on_uvloop
async def test_a_lost_client_cancels_everything_open_on_its_stream() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append}) as service:
        async with client_of(service.target) as client:
            pending = [client.send(meta(), (b"wait",)) for _ in range(3)]
            await until(lambda: len(held) == 3)
        await until(lambda: all(request.cancelled for request in held))
        for one in pending:
            assert (await one.future).status is ReplyStatus.LOST


@on_uvloop
async def test_a_killed_service_loses_what_was_sent_and_serves_again_after_its_restart() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append, FETCH: echo}) as service, client_of(service.target) as client:
        pending = client.send(meta(), (b"in flight",))
        await until(lambda: len(held) == 1)
        await service.kill()
        assert (await pending.future).status is ReplyStatus.LOST
        await until(lambda: not client._up.is_set())
        assert (await client.send(meta(FETCH), (b"too early",)).future).status is ReplyStatus.REFUSED
        await service.start()
        async with asyncio.timeout(10):
            await client.connect()
        assert bytes((await client.send(meta(FETCH), (b"again",)).future).body) == b"echo:again"


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
        replies = await asyncio.gather(*(one.future for one in pending))
        assert {reply.status for reply in replies} == {ReplyStatus.LOST, ReplyStatus.REFUSED}
        sent = [reply.status.outcome is Outcome.UNKNOWN for reply in replies]
        assert len(sent) == 40
        assert sent == sorted(sent, reverse=True)
        assert sent[0]
        assert not sent[-1]
        assert sum(sent) >= len(held)


class Restarts:
    """Sends through restarts and keeps what was executed and what was reported."""

    def __init__(self) -> None:
        self._source = random.Random(7)
        self.executed: list[int] = []
        self.outcomes: dict[int, Outcome] = {}

    def note(self, request: InboundRequest) -> None:
        self.executed.append(int(bytes(request.body[:8])))
        if self._source.random() < 0.9:
            request.reply((request.body[:8],))

    async def send(self, client: StreamClient, number: int) -> None:
        body = (b"%08d" % number, bytes(self._source.choice((0, 100, 70_000, 2_500_000))))
        reply = await client.send(meta(age_budget_ms=2_000), body, lane=number % 5).future
        self.outcomes[number] = reply.status.outcome
        if reply.status.outcome is Outcome.ANSWERED:
            assert int(bytes(reply.body)) == number

    async def one_round(self, client: StreamClient, service: Service, numbers: range) -> None:
        """Sometimes killed in the middle, sometimes sent into a stream that is dead and does not know it."""
        enough = len(self.executed) + self._source.randrange(20)
        async with asyncio.TaskGroup() as tasks:
            for number in numbers:
                tasks.create_task(self.send(client, number))
            await until(lambda: len(self.executed) > enough or len(self.outcomes) >= numbers.stop)
            await service.kill()
            await service.start()
            async with asyncio.timeout(20):
                await client.connect()


@on_uvloop
async def test_over_restarts_every_request_ends_and_none_is_executed_that_was_reported_unsent() -> None:
    restarts = Restarts()
    async with running({PRODUCE: restarts.note}) as service, client_of(service.target) as client:
        for first in range(0, 360, 60):
            await restarts.one_round(client, service, range(first, first + 60))
        assert unanswered(client) == 0
    by_outcome = {
        outcome: {number for number, found in restarts.outcomes.items() if found == outcome}
        for outcome in Outcome
    }
    executed = set(restarts.executed)
    assert set(restarts.outcomes) == set(range(360))
    assert len(restarts.executed) == len(executed)
    assert by_outcome[Outcome.ANSWERED] <= executed
    assert not by_outcome[Outcome.NOT_EXECUTED] & executed
    assert by_outcome[Outcome.ANSWERED]
    assert by_outcome[Outcome.UNKNOWN]


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
        assert (reply.status, reply.status.outcome) == (ReplyStatus.EXPIRED, Outcome.NOT_EXECUTED)
        assert called == []
        assert service.streams.stats[Stream.BULK].expired == 1
        client.send(meta(age_budget_ms=90_000), (b"young",))
        await until(lambda: len(called) == 1)


@on_uvloop
async def test_a_wedged_service_does_not_hold_a_future_over_its_budget() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append}) as service, client_of(service.target) as client:
        assert (await client.send(meta(age_budget_ms=50), (b"?",)).future).status is ReplyStatus.LOST
        await until(lambda: held[0].cancelled)


@on_uvloop
async def test_a_leaving_service_refuses_and_finishes_what_it_accepted() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append}) as service, client_of(service.target) as client:
        accepted = client.send(meta(), (b"1",))
        await until(lambda: len(held) == 1)
        service.streams.refuse_new()
        assert (await client.send(meta(), (b"2",)).future).status is ReplyStatus.REFUSED
        idle = asyncio.ensure_future(service.streams.until_idle())
        held[0].reply((b"done",))
        await idle
        service.streams.leave()
        assert bytes((await accepted.future).body) == b"done"
        async with client_of(service.target) as late:
            assert (await late.send(meta(), (b"3",)).future).status is ReplyStatus.REFUSED


async def drained(service: Service) -> None:
    """As a process that leaves does."""
    service.streams.refuse_new()
    await service.streams.until_idle()
    service.streams.leave()


async def outcomes_around_a_drain() -> Counter[Outcome]:
    """Of sixteen lanes that send until the first request that is not answered."""
    found: Counter[Outcome] = Counter()

    async def send(client: StreamClient, lane: int) -> None:
        outcome = Outcome.ANSWERED
        while outcome is Outcome.ANSWERED:
            outcome = (await client.send(meta(), (b"x" * 100,), lane=lane).future).status.outcome
            found[outcome] += 1

    async with (
        running({PRODUCE: echo}) as service,
        client_of(service.target) as client,
        asyncio.TaskGroup() as tasks,
    ):
        for lane in range(16):
            tasks.create_task(send(client, lane))
        await until(lambda: found[Outcome.ANSWERED] > 100)
        await drained(service)
    return found


@on_uvloop
async def test_a_service_that_leaves_under_load_leaves_no_request_without_an_answer() -> None:
    """The front door closes, too, in the instant in which its stream ends."""
    for _ in range(20):
        found = await outcomes_around_a_drain()
        assert found[Outcome.NOT_EXECUTED] == 16
        assert set(found) == {Outcome.ANSWERED, Outcome.NOT_EXECUTED}


@on_uvloop
async def test_a_request_to_a_service_that_still_answers_others_before_it_leaves_is_refused_at_once() -> None:
    held: list[InboundRequest] = []
    async with running({PRODUCE: held.append}) as service, client_of(service.target) as client:
        first = client.send(meta(), (b"1",))
        await until(lambda: len(held) == 1)
        leaving = asyncio.ensure_future(drained(service))
        await until(lambda: not client._up.is_set())
        second = client.send(meta(), (b"2",))
        assert second.future.done()
        assert second.future.result().status is ReplyStatus.REFUSED
        held[0].reply((b"done",))
        await leaving
        assert bytes((await first.future).body) == b"done"


@on_uvloop
async def test_a_body_that_has_begun_to_leave_arrives_whole_at_a_service_that_leaves() -> None:
    """The stream is not read while it holds too much, so the body waits at the front door when the service leaves."""
    held: list[InboundRequest] = []
    limits = StreamLimits(held_bytes_max=1 << 16)
    body = b"x" * (30 << 20)
    async with (
        running({PRODUCE: held.append}, limits=limits) as service,
        client_of(service.target, queue_bytes_max=64 << 20) as client,
    ):
        first = client.send(meta(), (b"x" * (1 << 20),))
        await until(lambda: len(held) == 1)
        large = client.send(meta(), (body,), lane=1)
        await until(lambda: large.waiting is not None and large.waiting.taken)
        behind = client.send(meta(), (b"small",), lane=1)
        leaving = asyncio.ensure_future(drained(service))
        assert (await behind.future).status is ReplyStatus.REFUSED
        held[0].reply((b"done",))
        await leaving
        assert bytes((await first.future).body) == b"done"
        assert (await large.future).status is ReplyStatus.REFUSED


@pytest.mark.parametrize("reads", [(READS_SIZES,), ()])
def test_a_front_door_of_an_older_version_gets_no_frame_that_it_does_not_know(
    reads: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_client, "READS", reads)

    @on_uvloop
    async def leave() -> None:
        async with running({PRODUCE: echo}) as service, client_of(service.target) as client:
            await client.send(meta(), (b"1",)).future
            before = service.streams.stats[Stream.BULK].messages_out
            service.streams.refuse_new()
            async with asyncio.timeout(1):
                await service.streams.until_idle()
            assert service.streams.stats[Stream.BULK].messages_out == before
            assert (await client.send(meta(), (b"2",)).future).status is ReplyStatus.REFUSED

    leave()


def test_a_front_door_that_stands_still_holds_a_service_that_leaves_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StreamClient, "_service_leaves", lambda _: None)
    monkeypatch.setattr(stream_server, "GOODBYE_TIMEOUT_S", 0.2)

    @on_uvloop
    async def leave() -> None:
        async with running({PRODUCE: echo}) as service, client_of(service.target) as client:
            await client.send(meta(), (b"1",)).future
            async with asyncio.timeout(2):
                await drained(service)
            await until(lambda: not client._up.is_set())

    leave()
