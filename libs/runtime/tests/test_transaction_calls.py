"""The calls of transactions, over real connections: who may call what, what has a bound, and how a call fails."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
import structlog.testing
from kafscale.rpc.v1.transactions_pb2 import (
    EndRequest,
    JoinReply,
    JoinRequest,
    OverReply,
    OverRequest,
    ParticipantSet,
    TopicParts,
    TransactionEnd,
)
from kafscale.runtime.grpc_identity import GrpcIdentity, PemFiles, plain
from kafscale.runtime.span_delivery import span_line
from kafscale.runtime.tracing import CURRENT_SPAN, Span, Tracer, traced
from kafscale.runtime.transactions import methods
from kafscale.runtime.transactions import serving as serving_end
from kafscale.runtime.transactions.calling import CoordinatorCalls, ParticipantCalls
from kafscale.runtime.transactions.channels import CallFailed, Channels
from kafscale.runtime.transactions.methods import CALL_BYTES_MAX, END, JOIN, OVER, MalformedMessage, Method
from kafscale.runtime.transactions.participants import participants_from_pb, participants_to_pb
from kafscale.storage.keys import TopicId
from kafscale.storage.slots import SLOTS, Slot, slot_of
from kafscale.storage.transactions import Participants
from kafscale.testkit.authority import Authority
from kafscale.testkit.authority import replace as replace_file
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from transaction_harness import (
    Ends,
    Joins,
    Seen,
    channels_to,
    face_of,
    join_request,
    registered,
    serving,
)

IN_TIME_S = 10.0
"""For calls that are answered at once, on a machine that may be busy."""
END_REQUEST = EndRequest(ends=[TransactionEnd(producer_id=7, number=4, commit=True)])


def claimed_by(owner: str, handoff_to: str = "") -> Slot:
    return Slot(epoch=1, owner=owner, handoff_to=handoff_to)


# -- routes ------------------------------------------------------------------------------------------


async def test_a_join_goes_to_the_coordinator_of_the_ids_slot() -> None:
    here, there = Joins(), Joins()
    async with serving("coordinator", here) as near, serving("coordinator", there) as far:
        live = Seen(registered("coordinator", near, 1), registered("coordinator", far, 2))
        owners = {slot_of("payments"): claimed_by("2/b2")}
        async with channels_to(live) as channels:
            reply = await CoordinatorCalls(channels, owners.get).join(join_request(), timeout_s=IN_TIME_S)
    assert reply == JoinReply(number=7)
    assert (here.asked, there.asked) == ([], [join_request()])


async def test_a_call_of_a_traced_request_is_a_span_at_both_ends() -> None:
    """What the coordinator does for it belongs to the trace. A call of another request has none."""
    exporters = InMemorySpanExporter(), InMemorySpanExporter()
    caller, server = (
        Tracer(service=name, instance="1/a", ratio=1, exporter=exporter)
        for name, exporter in zip(("produce", "coordinator"), exporters, strict=True)
    )
    seen: list[Span | None] = []

    class Watching(Joins):
        async def join(self, request: JoinRequest) -> JoinReply:
            seen.append(CURRENT_SPAN.get())
            with traced("etcd txn"):
                return await super().join(request)

    root = caller.start_root("Produce v12")
    assert root is not None
    async with serving("coordinator", Watching(), tracer=server) as address:
        live = Seen(registered("coordinator", address, 1))
        async with channels_to(live) as channels:
            calls = CoordinatorCalls(channels, {slot_of("payments"): claimed_by("1/b1")}.get)
            await calls.join(join_request(), timeout_s=IN_TIME_S)
            CURRENT_SPAN.set(root)
            await calls.join(join_request(), timeout_s=IN_TIME_S)
    caller.close()
    server.close()
    call, txn, served = (
        json.loads(span_line(span)) for exporter in exporters for span in exporter.get_finished_spans()
    )
    assert [each["name"] for each in (txn, served, call)] == ["etcd txn", "Join", "call Join"]
    assert (call["kind"], call["attributes"]) == ("client", {"kafscale.instance": "1/b1"})
    assert [call["parent_id"], served["parent_id"], txn["parent_id"]] == [
        root.traceparent[36:52],
        call["span_id"],
        served["span_id"],
    ]
    assert seen[0] is None
    assert seen[1] is not None


@pytest.mark.parametrize(
    ("slot", "asked"),
    [
        (claimed_by("1/b1"), True),
        (claimed_by("1/b1", handoff_to="5"), True),
        (claimed_by("9/gone"), False),
        (claimed_by("9/gone", handoff_to="1"), True),
        (claimed_by("", handoff_to="1"), True),
        (claimed_by("", handoff_to="9"), False),
        (claimed_by(""), False),
        (None, False),
    ],
)
async def test_a_slot_has_its_registered_owner_or_the_node_it_was_handed_to(
    slot: Slot | None, asked: bool
) -> None:
    joins = Joins()
    async with (
        serving("coordinator", joins) as address,
        channels_to(Seen(registered("coordinator", address))) as channels,
    ):
        calls = CoordinatorCalls(channels, lambda _: slot)
        if asked:
            await calls.join(join_request(), timeout_s=IN_TIME_S)
        else:
            with pytest.raises(CallFailed, match="none is registered"):
                await calls.join(join_request(), timeout_s=IN_TIME_S)
    assert len(joins.asked) == asked


async def test_ends_go_to_produce_and_to_coordinators_by_the_id_of_the_process() -> None:
    owner, group = Ends(), Ends()
    async with serving("produce", ends=owner) as one, serving("coordinator", ends=group) as other:
        produce = Seen(registered("produce", one, 1))
        coordinators = Seen(registered("coordinator", other, 2))
        async with channels_to(produce) as first, channels_to(coordinators) as second:
            calls = ParticipantCalls(first, second)
            for instance in ("1/b1", "2/b2"):
                reply = await calls.end(instance, END_REQUEST, timeout_s=IN_TIME_S)
                assert [(done.producer_id, done.number) for done in reply.done] == [(7, 4)]
            with pytest.raises(CallFailed, match="End to 1/b0: it is not registered"):
                await calls.end("1/b0", END_REQUEST, timeout_s=IN_TIME_S)
    assert owner.asked == group.asked == [END_REQUEST]


# -- over ---------------------------------------------------------------------------------------------


async def over_by(*answers: OverReply | None) -> bool:
    """What coordinators with these answers say together. None: it does not serve the call."""
    async with AsyncExitStack() as stack:
        coordinators = []
        for node_id, answer in enumerate(answers):
            joins = None if answer is None else Joins(over_reply=answer)
            address = await stack.enter_async_context(serving("coordinator", joins))
            coordinators.append(registered("coordinator", address, node_id))
        channels = await stack.enter_async_context(channels_to(Seen(*coordinators)))
        calls = CoordinatorCalls(channels, lambda _: None)
        return await calls.over(OverRequest(producer_id=7, number=4), timeout_s=IN_TIME_S)


LOW, HIGH = range(SLOTS // 2), range(SLOTS // 2, SLOTS)


async def test_a_transaction_is_over_if_every_slot_was_proven_by_somebody() -> None:
    assert await over_by(OverReply(over=True, slots=LOW), OverReply(over=True, slots=HIGH))
    assert await over_by(OverReply(over=True, slots=range(SLOTS)), None)


@pytest.mark.parametrize(
    "answers",
    [
        (),
        (None,),
        (OverReply(over=True, slots=range(SLOTS - 1)),),
        (OverReply(over=True, slots=LOW), None),
        (OverReply(over=True, slots=LOW), OverReply(code=15, over=True, slots=HIGH)),
        (OverReply(over=True, slots=LOW), OverReply(code=15, over=False)),
    ],
)
async def test_a_slot_that_nobody_has_proven_leaves_it_open_whether_it_is_over(
    answers: tuple[OverReply | None, ...],
) -> None:
    with pytest.raises(CallFailed, match=r"Over to all coordinators: \d+ slots unproven"):
        await over_by(*answers)


async def test_a_transaction_that_one_coordinator_has_is_not_over() -> None:
    assert not await over_by(OverReply(over=True, slots=LOW), OverReply(over=False, slots=HIGH))
    assert not await over_by(None, OverReply(over=False, slots=HIGH))


# -- who may call -------------------------------------------------------------------------------------

ROLES = ("frontdoor", "produce", "fetch", "coordinator", "admin", "upkeep")
MAY = {JOIN: {"produce", "coordinator"}, OVER: {"produce"}, END: {"coordinator"}}


@pytest.mark.parametrize("caller", ROLES)
async def test_each_method_takes_the_roles_of_its_row_and_no_other(tmp_path: Path, caller: str) -> None:
    authority = Authority(tmp_path)
    joins, ends = Joins(), Ends()
    served, asking = (GrpcIdentity(authority.role(role)) for role in ("coordinator", caller))
    async with (
        serving("coordinator", joins, ends, served) as address,
        channels_to(Seen(registered("coordinator", address)), asking) as channels,
    ):
        for method, request in ((JOIN, join_request()), (OVER, OverRequest()), (END, END_REQUEST)):
            calling = channels.call("1/b1", method, request, timeout_s=IN_TIME_S)
            if caller in MAY[method]:
                await calling
            else:
                with pytest.raises(CallFailed, match=f"PERMISSION_DENIED.*certificate shows {caller}"):
                    await calling
    assert len(joins.asked) == (caller in MAY[JOIN])
    assert len(ends.asked) == (caller in MAY[END])


async def test_a_certificate_without_a_role_calls_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    served = GrpcIdentity(authority.role("coordinator"))
    stranger = GrpcIdentity(authority.issue("produce.kafscale.internal.example.com"))
    async with (
        serving("coordinator", Joins(), identity=served) as address,
        channels_to(Seen(registered("coordinator", address)), stranger) as channels,
    ):
        with pytest.raises(CallFailed, match="the certificate shows no role"):
            await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)


async def test_nobody_answers_in_the_place_of_a_coordinator(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    fetch, produce = (GrpcIdentity(authority.role(role)) for role in ("fetch", "produce"))
    joins = Joins()
    async with (
        serving("fetch", joins, identity=fetch) as address,
        channels_to(Seen(registered("coordinator", address)), produce) as channels,
    ):
        with pytest.raises(CallFailed, match="UNAVAILABLE"):
            await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)
    async with (
        serving("coordinator", joins) as address,
        channels_to(Seen(registered("coordinator", address)), produce) as channels,
    ):
        with pytest.raises(CallFailed, match="UNAVAILABLE"):
            await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)
    assert joins.asked == []


async def test_a_caller_is_refused_before_its_message_is_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    served, fetch = (GrpcIdentity(authority.role(role)) for role in ("coordinator", "fetch"))
    async with (
        serving("coordinator", Joins(), identity=served) as address,
        fetch.dial("coordinator")(address, ()) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(JOIN.path)(b"\xff", timeout=IN_TIME_S)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


# -- what a service does not serve --------------------------------------------------------------------


async def test_a_service_that_is_not_built_yet_refuses_and_its_connection_stays() -> None:
    async with (
        face_of("coordinator") as (face, address),
        channels_to(Seen(registered("coordinator", address))) as channels,
    ):
        for _ in range(2):
            with pytest.raises(CallFailed, match="UNAVAILABLE: the service is not built yet"):
                await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)
        face.transactions.offer(Joins(), None)
        await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)


async def test_a_service_without_a_method_says_so() -> None:
    async with (
        serving("produce", ends=Ends()) as address,
        channels_to(Seen(registered("produce", address))) as channels,
    ):
        for method, request in ((JOIN, join_request()), (OVER, OverRequest())):
            with pytest.raises(CallFailed, match=f"UNIMPLEMENTED: this service has no {method.name}"):
                await channels.call("1/b1", method, request, timeout_s=IN_TIME_S)


# -- bounds -------------------------------------------------------------------------------------------


async def status_of(address: str, method: Method[JoinRequest, JoinReply], data: bytes) -> grpc.StatusCode:
    async with plain(address, ()) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(method.path)(data, timeout=IN_TIME_S)
    return refused.value.code()


async def test_bytes_that_are_no_request_are_refused() -> None:
    joins = Joins()
    wrong_topic = JoinRequest(
        participants=ParticipantSet(partitions=[TopicParts(topic_id=b"short", partitions=[0])])
    )
    too_long = JoinRequest(transactional_id="x" * CALL_BYTES_MAX)
    async with serving("coordinator", joins) as address:
        for data in (b"\xff", wrong_topic.SerializeToString(), too_long.SerializeToString()):
            assert await status_of(address, JOIN, data) is grpc.StatusCode.INVALID_ARGUMENT
    assert joins.asked == []


async def test_a_request_that_is_too_long_is_not_sent() -> None:
    joins = Joins()
    async with (
        serving("coordinator", joins) as address,
        channels_to(Seen(registered("coordinator", address))) as channels,
    ):
        too_long = JoinRequest(transactional_id="x" * CALL_BYTES_MAX)
        with pytest.raises(CallFailed, match="bytes; 2097152 are allowed"):
            await channels.call("1/b1", JOIN, too_long, timeout_s=IN_TIME_S)
    assert joins.asked == []


async def test_calls_beyond_the_bound_are_refused_and_room_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = replace(JOIN, at_once_max=2)
    monkeypatch.setattr(serving_end, "METHODS", (few,))
    joins = Joins(held=asyncio.Event())
    assert joins.held is not None
    async with (
        serving("coordinator", joins) as address,
        channels_to(Seen(registered("coordinator", address))) as channels,
    ):
        calls = [
            asyncio.create_task(channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S))
            for _ in range(3)
        ]
        (refused,), waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(CallFailed, match="RESOURCE_EXHAUSTED: 2 calls are served already"):
            await refused
        joins.held.set()
        for each in waiting:
            await each
        await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)


async def test_a_call_ends_at_the_callers_deadline_at_both_ends() -> None:
    joins = Joins(held=asyncio.Event())
    async with (
        serving("coordinator", joins) as address,
        channels_to(Seen(registered("coordinator", address))) as channels,
    ):
        with pytest.raises(CallFailed, match="DEADLINE_EXCEEDED"):
            await channels.call("1/b1", JOIN, join_request(), timeout_s=0.1)
        await asyncio.wait_for(joins.cancelled.wait(), IN_TIME_S)


async def test_a_call_without_a_deadline_ends_at_that_of_its_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_end, "METHODS", (replace(JOIN, longest_s=0.05),))
    joins = Joins(held=asyncio.Event())
    async with serving("coordinator", joins) as address, plain(address, ()) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await channel.unary_unary(JOIN.path)(join_request().SerializeToString())
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert joins.cancelled.is_set()


async def test_a_bug_of_a_handler_is_logged_and_leaves_the_outcome_unknown() -> None:
    async with (
        serving("coordinator", Joins(fails=True)) as address,
        channels_to(Seen(registered("coordinator", address))) as channels,
    ):
        with (
            structlog.testing.capture_logs() as lines,
            pytest.raises(CallFailed, match="INTERNAL: the handler failed"),
        ):
            await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["call failed"]


async def test_an_answer_with_wrong_topic_ids_is_a_failure() -> None:
    class Wrong(Joins):
        async def join(self, request: JoinRequest) -> JoinReply:
            topic = TopicParts(topic_id=b"short", partitions=[0])
            return JoinReply(ended=TransactionEnd(participants=ParticipantSet(partitions=[topic])))

    async with (
        serving("coordinator", Wrong()) as address,
        channels_to(Seen(registered("coordinator", address))) as channels,
    ):
        with pytest.raises(CallFailed, match="b'short' is no topic id"):
            await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)


# -- connections --------------------------------------------------------------------------------------


async def test_a_call_to_an_instance_that_goes_fails_and_is_not_waited_for() -> None:
    joins = Joins(held=asyncio.Event())
    async with serving("coordinator", joins) as address:
        live = Seen(registered("coordinator", address))
        async with channels_to(live) as channels:
            calling = asyncio.create_task(
                channels.call("1/b1", JOIN, join_request(), timeout_s=10 * IN_TIME_S)
            )
            await asyncio.wait_for(joins.arrived.wait(), IN_TIME_S)
            live.set()
            with pytest.raises(CallFailed, match="it is not registered"):
                await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)
            with pytest.raises(CallFailed, match="the channel was closed"):
                await asyncio.wait_for(calling, IN_TIME_S)


async def test_a_caller_that_is_cancelled_is_cancelled() -> None:
    joins = Joins(held=asyncio.Event())
    async with (
        serving("coordinator", joins) as address,
        channels_to(Seen(registered("coordinator", address))) as channels,
    ):
        calling = asyncio.create_task(channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S))
        await asyncio.wait_for(joins.arrived.wait(), IN_TIME_S)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await asyncio.wait_for(joins.cancelled.wait(), IN_TIME_S)


async def answered_in_the_end(channels: Channels) -> None:
    async with asyncio.timeout(IN_TIME_S):
        while True:
            try:
                await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)
                return
            except CallFailed:
                await asyncio.sleep(0.01)  # the next connection may be made after a rest


async def test_after_a_failed_connection_calls_fail_at_once_and_a_later_one_connects_anew() -> None:
    joins = Joins()
    async with serving("coordinator", joins) as address:
        live = Seen(registered("coordinator", address))
    async with channels_to(live) as channels:
        with pytest.raises(CallFailed, match="UNAVAILABLE"):
            await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)
        with pytest.raises(CallFailed, match="unreachable: "):
            await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)
        async with serving("coordinator", joins, address=address):
            await answered_in_the_end(channels)
    assert len(joins.asked) == 1


async def test_a_new_connection_uses_the_certificate_of_its_time(tmp_path: Path) -> None:
    """A channel of gRPC keeps the certificate that it was made with, also when it connects again."""
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    served, calling = first.role("coordinator"), first.role("produce")
    joins, live = Joins(), Seen()
    async with channels_to(live, GrpcIdentity(calling)) as channels:
        async with serving("coordinator", joins, identity=GrpcIdentity(served)) as address:
            live.set(registered("coordinator", address))
            await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)
            renew(second, served, calling)
            await channels.call("1/b1", JOIN, join_request(), timeout_s=IN_TIME_S)
            assert len(joins.asked) == 2, "the connection stays as it is"
        async with serving("coordinator", joins, identity=GrpcIdentity(served), address=address):
            await answered_in_the_end(channels)


def renew(authority: Authority, served: PemFiles, calling: PemFiles) -> None:
    """Both get certificates of another authority, and trust no other."""
    replace_file(served.ca, authority.ca.read_bytes())
    authority.role("coordinator", into=served)
    authority.role("produce", into=calling)


# -- messages -----------------------------------------------------------------------------------------


def test_participants_survive_the_wire_and_equal_ones_have_equal_messages() -> None:
    one, other = TopicId(bytes(16)), TopicId(bytes([1] * 16))
    some = Participants(frozenset({(other, 3), (one, 2), (one, 0)}), frozenset({"b", "a"}))
    message = participants_to_pb(some)
    assert participants_from_pb(message) == some
    assert [list(topic.partitions) for topic in message.partitions] == [[0, 2], [3]]
    assert list(message.groups) == ["a", "b"]
    assert participants_from_pb(ParticipantSet()) == Participants()


def test_every_participant_of_every_message_is_looked_at() -> None:
    wrong = ParticipantSet(partitions=[TopicParts(topic_id=bytes(15), partitions=[0])])
    end = TransactionEnd(participants=wrong)
    done = methods.EndReply.Done(participants=wrong)
    with pytest.raises(MalformedMessage):
        JOIN.decode_request(JoinRequest(participants=wrong).SerializeToString())
    with pytest.raises(MalformedMessage):
        JOIN.decode_reply(JoinReply(ended=end).SerializeToString())
    with pytest.raises(MalformedMessage):
        END.decode_request(EndRequest(ends=[TransactionEnd(), end]).SerializeToString())
    with pytest.raises(MalformedMessage):
        END.decode_reply(methods.EndReply(done=[methods.EndReply.Done(), done]).SerializeToString())
    assert OVER.decode_request(OverRequest(number=3).SerializeToString()).number == 3


def test_a_thousand_ends_of_the_longest_group_ids_fit_into_a_call() -> None:
    ends = [
        TransactionEnd(
            producer_id=2**62,
            number=2**62,
            marker_epoch=32_767,
            coordinator_epoch=2**30,
            participants=ParticipantSet(groups=["g" * 1_024]),
        )
        for _ in range(1_000)
    ]
    assert len(EndRequest(ends=ends).SerializeToString()) < CALL_BYTES_MAX
