"""TxnOffsetCommit in the shape of each version: who may commit, what the transactional id says of it, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from kafscale.coordinator.groups import joins as joins_module
from kafscale.coordinator.groups import pending
from kafscale.coordinator.groups.joins import GroupJoins
from kafscale.coordinator.handlers import txn_offset_commit
from kafscale.coordinator.transactions.model import ProducerEpoch
from kafscale.rpc.v1.transactions_pb2 import (
    EndRequest,
    JoinReply,
    JoinRequest,
    OverReply,
    OverRequest,
    ParticipantSet,
    TransactionEnd,
)
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.age import AGE_MS_MAX
from kafscale.runtime.transactions.calling import CallFailed
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.groups import CommittedOffset
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.testkit.acls import ALICE, allowing
from kafscale.testkit.inbound import inbound
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import txn_offset_commit as schema

from services.coordinator.tests.shell_harness import Coordinator, make_topic, running, until
from services.coordinator.tests.test_etcd_room import fill
from services.coordinator.tests.test_group_actor import consumer_beat, join, leave, stable
from services.coordinator.tests.transaction_harness import NAME, producer
from services.coordinator.tests.transaction_harness import end as end_txn
from services.coordinator.tests.transaction_harness import join as join_id

T = TopicId(b"t".ljust(16, b"."))
WHO = ProducerEpoch(7, 3)
VERSIONS = range(6)
E = ErrorCode


@dataclass
class Ids:
    """Coordinators of all transactional ids, elsewhere. `reply`: what they say; `before`: what happens first."""

    reply: JoinReply = field(default_factory=lambda: JoinReply(number=1, under_way_ms=60_000))
    before: Callable[[], Any] | None = None
    asked: list[JoinRequest] = field(default_factory=list)
    fails: bool = False

    async def join(self, request: JoinRequest, *, timeout_s: float) -> JoinReply:
        assert 0 < timeout_s < 5
        self.asked.append(request)
        if self.before is not None:
            await self.before()
        if self.fails:
            raise CallFailed("Join", "somebody", "no answer")
        return self.reply


class Nobody:
    async def join(self, request: JoinRequest) -> JoinReply:
        raise AssertionError("the slot of the id is elsewhere")

    async def over(self, request: OverRequest) -> OverReply:
        raise AssertionError("nobody asks")


@pytest_asyncio.fixture
async def one(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[Coordinator]:
    await make_topic(etcd, keyspace)
    async with running(etcd, keyspace) as coordinator:
        yield coordinator


@pytest.fixture
def ids(one: Coordinator) -> Ids:
    elsewhere = Ids()
    joins = GroupJoins(elsewhere, Nobody(), lambda _slot: None)
    one.context = replace(one.context, group_joins=joins)
    return elsewhere


async def put(
    one: Coordinator,
    version: int = 5,
    *,
    who: ProducerEpoch = WHO,
    topic: str = "t",
    metadata: str = "m",
    count: int = 1,
    aged: bool = False,
    group: str = "g",
    **member: Any,
) -> ErrorCode:
    """The error of all its partitions."""
    partitions = [
        schema.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=9, committed_metadata=metadata
        )
        for index in range(count)
    ]
    request = schema.TxnOffsetCommitRequest(
        transactional_id=NAME,
        group_id=group,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        topics=[schema.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
        **member,
    )
    body = b"".join(schema.encode_request(request, version))
    arrived = inbound(body, schema.API_KEY, version, principal=ALICE)
    arrived.meta = msgspec.structs.replace(arrived.meta, age_budget_ms=AGE_MS_MAX)
    arrived.arrived_ms = one.clock.now_ms() - (AGE_MS_MAX if aged else 0)
    answered = b"".join(await txn_offset_commit.handler(one.context)(arrived))
    answer = schema.decode_response(answered, version)
    (error,) = {each.error_code for found in answer.topics for each in found.partitions}
    return ErrorCode(error)


def waits(one: Coordinator) -> int:
    """How many offsets are pending."""
    return one.parts.transaction_offsets.count


async def committed(one: Coordinator) -> dict[int, int]:
    found = await one.parts.commits.read(one.parts.groups.slot("g"), "g")
    assert not isinstance(found, ErrorCode)
    return {at: each.offset for (_, at), each in found.items() if isinstance(each, CommittedOffset)}


def ended(number: int = 1) -> TransactionEnd:
    participants = ParticipantSet(groups=["g"])
    return TransactionEnd(producer_id=7, number=number, commit=True, participants=participants)


# --- a whole transaction --------------------------------------------------------------------------


async def test_the_group_gets_the_offsets_with_the_commit_of_the_transaction(one: Coordinator) -> None:
    """TV2, and all in one instance."""
    who = await producer(one)
    assert await put(one, who=who) is E.NONE
    assert (await committed(one), waits(one)) == ({}, 1)
    assert (await end_txn(one, who, tv2=True)).error is E.NONE
    await until(lambda: waits(one) == 0)
    assert await committed(one) == {0: 9}


async def test_the_group_gets_nothing_from_an_abort(one: Coordinator) -> None:
    who = await producer(one)
    assert await put(one, who=who) is E.NONE
    await end_txn(one, who, tv2=True, commit=False)
    await until(lambda: waits(one) == 0)
    assert await committed(one) == {}


@pytest.mark.parametrize(("version", "refused"), [(1, 48), (3, 48), (4, 120)])
async def test_before_version_5_the_group_was_added_before(
    one: Coordinator, version: int, refused: int
) -> None:
    who = await producer(one)
    assert await put(one, version, who=who) == refused
    await join_id(one, who, "g")
    one.clock.lived_ms += 500  # a request is younger than its transaction, however slow this machine is
    assert await put(one, version, who=who) is E.NONE
    await end_txn(one, who)
    await until(lambda: waits(one) == 0)
    assert await committed(one) == {0: 9}


async def test_the_question_names_the_group_and_whether_it_joins(one: Coordinator, ids: Ids) -> None:
    for version in VERSIONS:
        assert await put(one, version) is E.NONE
    for version, asked in enumerate(ids.asked):
        assert asked.add is (version == 5)
        assert (asked.transactional_id, asked.producer_id, asked.epoch) == (NAME, *WHO)
        assert [*asked.participants.groups] == ["g"]


# --- what the transactional id says ---------------------------------------------------------------

OF_ID = {
    E.PRODUCER_FENCED: [E.INVALID_PRODUCER_EPOCH] * 6,
    E.INVALID_PRODUCER_ID_MAPPING: [E.INVALID_PRODUCER_ID_MAPPING] * 6,
    E.TRANSACTION_ABORTABLE: [*[E.INVALID_TXN_STATE] * 4, *[E.TRANSACTION_ABORTABLE] * 2],
    E.CONCURRENT_TRANSACTIONS: [
        *[E.COORDINATOR_NOT_AVAILABLE] * 2,
        *[E.COORDINATOR_LOAD_IN_PROGRESS] * 3,
        E.CONCURRENT_TRANSACTIONS,
    ],
}
RETRY = [*[E.COORDINATOR_NOT_AVAILABLE] * 2, *[E.COORDINATOR_LOAD_IN_PROGRESS] * 4]
OF_ID |= dict.fromkeys(
    (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR), RETRY
)


@pytest.mark.parametrize("inside", OF_ID, ids=lambda each: each.name)
async def test_an_error_of_the_id_in_the_words_of_each_version(
    one: Coordinator, ids: Ids, inside: ErrorCode
) -> None:
    ids.reply = JoinReply(code=inside)
    assert [await put(one, version) for version in VERSIONS] == OF_ID[inside]
    assert waits(one) == 0


async def test_an_id_that_does_not_answer_is_asked_again_by_the_client(one: Coordinator, ids: Ids) -> None:
    ids.fails = True
    assert [await put(one, version) for version in VERSIONS] == RETRY


class Slow(Nobody):
    async def join(self, request: JoinRequest) -> JoinReply:
        await asyncio.Event().wait()
        raise AssertionError("nothing happens")


async def test_an_id_of_this_instance_has_no_more_time(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joins_module, "JOIN_TIMEOUT_S", 0.01)
    held = one.parts.groups.slot(NAME)
    joins = GroupJoins(Ids(), Slow(), lambda slot: held if slot == held.slot_id else None)
    one.context = replace(one.context, group_joins=joins)
    assert [await put(one, version) for version in VERSIONS] == RETRY


async def test_a_put_that_crosses_the_end_is_sent_again(one: Coordinator, ids: Ids) -> None:
    async def end() -> None:
        assert (await one.parts.group_ends.end(EndRequest(ends=[ended()]))).done

    ids.before = end
    assert [await put(one, version) for version in VERSIONS] == OF_ID[E.CONCURRENT_TRANSACTIONS]
    assert waits(one) == 0
    ids.before = None
    assert await put(one) is E.NONE


async def test_the_end_of_the_transaction_before_comes_first(one: Coordinator, ids: Ids) -> None:
    assert await put(one, count=2) is E.NONE
    ids.reply = JoinReply(number=2, ended=ended())
    assert await put(one) is E.NONE
    assert (await committed(one), waits(one)) == ({0: 9, 1: 9}, 1)


# --- ages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_request_that_has_expired_takes_no_effect(one: Coordinator, ids: Ids, version: int) -> None:
    assert await put(one, version, aged=True) is E.NOT_COORDINATOR
    assert (ids.asked, waits(one)) == ([], 0)


async def test_a_request_of_an_earlier_transaction_takes_no_effect(one: Coordinator, ids: Ids) -> None:
    """Before version 5 its epoch does not tell."""

    async def wait() -> None:
        one.clock.lived_ms += 100

    ids.before, ids.reply = wait, JoinReply(number=1, under_way_ms=50)
    answers = [await put(one, version) for version in VERSIONS]
    assert answers == [*[E.NOT_COORDINATOR] * 5, E.NONE]


async def test_a_request_that_expires_during_the_question_takes_no_effect(one: Coordinator, ids: Ids) -> None:
    async def wait() -> None:
        one.clock.lived_ms += 6_000

    ids.before = wait
    assert await put(one) is E.NOT_COORDINATOR
    assert waits(one) == 0


# --- what the group says --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_a_classic_member_commits_in_its_generation(one: Coordinator, ids: Ids, version: int) -> None:
    member = await stable(one)
    assert await put(one, version) is E.NONE
    assert await put(one, version, generation_id=1, member_id=member) is E.NONE
    assert await put(one, version, generation_id=2, member_id=member) is E.ILLEGAL_GENERATION
    assert await put(one, version, generation_id=-1, member_id=member) is E.ILLEGAL_GENERATION
    assert await put(one, version, generation_id=1, member_id="who") is E.UNKNOWN_MEMBER_ID
    assert await put(one, version, generation_id=1) is E.UNKNOWN_MEMBER_ID
    unknown = await put(one, version, generation_id=1, member_id=member, group_instance_id="static")
    assert unknown is E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_of_a_consumer_group_commits_in_its_epoch(
    one: Coordinator, ids: Ids, version: int
) -> None:
    epoch = (await consumer_beat(one, 0)).member_epoch
    assert await put(one, version) is E.NONE
    if version >= 3:
        assert await put(one, version, generation_id=epoch, member_id="m") is E.NONE
        assert await put(one, version, generation_id=epoch + 1, member_id="m") is E.ILLEGAL_GENERATION
        assert await put(one, version, generation_id=epoch, member_id="who") is E.UNKNOWN_MEMBER_ID


async def test_a_group_that_does_not_exist_is_made_for_a_producer_without_a_member(
    one: Coordinator, ids: Ids
) -> None:
    assert await put(one, generation_id=1, member_id="m") is E.ILLEGAL_GENERATION
    assert one.parts.groups.find("g") is None
    assert await put(one) is E.NONE
    assert one.parts.groups.find("g") is not None
    assert await put(one, group="") is E.INVALID_GROUP_ID


async def test_the_group_judges_again_after_the_question(one: Coordinator, ids: Ids) -> None:
    member = await stable(one)

    async def rebalance() -> None:
        assert await leave(one, member) == 0
        await join(one)

    ids.before = rebalance
    assert await put(one, generation_id=1, member_id=member) is E.UNKNOWN_MEMBER_ID
    assert waits(one) == 0


async def test_a_slow_coordinator_of_ids_holds_up_no_plain_commit(one: Coordinator, ids: Ids) -> None:
    answer = asyncio.Event()
    ids.before = answer.wait
    slow = asyncio.ensure_future(put(one))
    await until(lambda: bool(ids.asked))
    async with one.parts.commits.order_lock("g"):
        pass
    assert not slow.done()
    answer.set()
    assert await slow is E.NONE


async def test_a_slot_that_comes_back_during_the_question_may_have_missed_the_end(
    one: Coordinator, ids: Ids
) -> None:
    async def lose() -> None:
        held = one.parts.groups.slot("g")
        one.parts.slots.lost(held)
        await one.has(64)

    ids.before = lose
    assert await put(one) is E.NOT_COORDINATOR
    assert waits(one) == 0


async def test_an_error_of_the_group_in_the_words_of_each_version(one: Coordinator, ids: Ids) -> None:
    held = one.parts.groups.slot("g")
    held.loaded = False
    answers = [await put(one, version) for version in VERSIONS]
    assert answers == [*[E.COORDINATOR_NOT_AVAILABLE] * 2, *[E.COORDINATOR_LOAD_IN_PROGRESS] * 4]
    held.loaded = True
    one.fresh = False
    assert {await put(one, version) for version in VERSIONS} == {E.NOT_COORDINATOR}


# --- partitions and bounds ------------------------------------------------------------------------


async def test_errors_of_partitions_ask_nobody(one: Coordinator, ids: Ids) -> None:
    one.context = replace(
        one.context, authorization=Authorization(allowing("TOPIC t READ"), Metrics("coordinator"))
    )
    assert await put(one, topic="unread") is E.TOPIC_AUTHORIZATION_FAILED
    assert await put(one, metadata="x" * 5_000) is E.OFFSET_METADATA_TOO_LARGE
    one.context = replace(one.context, authorization=Authorization(None, Metrics("coordinator")))
    assert await put(one, topic="unknown") is E.UNKNOWN_TOPIC_OR_PARTITION
    assert (ids.asked, waits(one)) == ([], 0)


async def test_what_a_producer_has_pending_is_bounded(
    one: Coordinator, ids: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "OFFSETS_MAX", 2)
    assert await put(one, count=3) is E.INVALID_COMMIT_OFFSET_SIZE
    assert await put(one, count=2) is E.NONE


async def test_a_full_etcd_takes_no_pending_offsets(one: Coordinator, ids: Ids) -> None:
    assert await put(one) is E.NONE
    await fill(one, 0.9)
    assert await put(one) is E.COORDINATOR_NOT_AVAILABLE
