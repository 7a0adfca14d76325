"""The ids of a coordinator on a real etcd: persist, then reply; proofs; what a crash, a fence and a full etcd leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc
import pytest
import pytest_asyncio
from kafscale.coordinator.slots import LOADED_TOGETHER, Held
from kafscale.coordinator.transactions import registry
from kafscale.coordinator.transactions.actor import Decision
from kafscale.coordinator.transactions.model import LAST_EPOCH, ProducerEpoch, Rules
from kafscale.coordinator.transactions.registry import LOOK_EVERY_S, UNUSED_MS
from kafscale.rpc.v1.transactions_pb2 import JoinRequest, OverRequest
from kafscale.runtime.transactions.participants import participants_from_pb, participants_to_pb
from kafscale.storage.coordination import encode_owner
from kafscale.storage.etcd.client import EtcdClient, EtcdRejected, EtcdUnknown, KeyValue, UnknownKind
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.slots import Slot, slot_of
from kafscale.storage.transactions import Outcome, Participants, TransactionState, encode_transaction
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.shell_harness import Coordinator, make_topic, running, turns, until
from services.coordinator.tests.test_etcd_room import fill
from services.coordinator.tests.transaction_harness import (
    NAME,
    TIMEOUT_MS,
    Owners,
    add_owner,
    end,
    held,
    ids,
    init,
    join,
    producer,
    record,
    take_calls,
    transactions,
    until_record,
)

TOPIC_ID = TopicId(b"t".ljust(16, b"."))  # of make_topic
P0, P1 = (TOPIC_ID, 0), (TOPIC_ID, 1)
REFUSED = EtcdRejected(grpc.StatusCode.PERMISSION_DENIED, "no right", "etcd")
UNKNOWN = EtcdUnknown(UnknownKind.TIMEOUT, "no answer")
DAY_MS = 24 * 3_600_000


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> Owners:
    return take_calls(monkeypatch)


@pytest_asyncio.fixture
async def one(etcd: EtcdClient, keyspace: Keyspace, owners: Owners) -> AsyncIterator[Coordinator]:
    await add_owner(etcd, keyspace)
    await make_topic(etcd, keyspace)
    async with running(etcd, keyspace) as coordinator:
        yield coordinator


def kept(one: Coordinator, name: str = NAME) -> str:
    """How the id is kept: at work, at rest, or not at all."""
    slot_id = slot_of(name)
    if name in ids(one)._actors[slot_id]:
        return "at work"
    return "at rest" if name in ids(one)._resting[slot_id] else "not"


async def test_an_answer_leaves_after_the_record_is_written(one: Coordinator) -> None:
    await one.parts.producer_ids.draw()  # the block is in memory
    one.door.gate.clear()
    asked = asyncio.ensure_future(init(one))
    await until(lambda: kept(one) == "at work")
    await turns()
    assert not asked.done()
    one.door.gate.set()
    answer = await asked
    state = await record(one)
    assert state is not None
    assert answer.producer == ProducerEpoch(state.producer_id, 0)
    assert (state.timeout_ms, kept(one)) == (TIMEOUT_MS, "at rest")


async def test_a_transaction_is_joined_decided_and_ended(one: Coordinator, owners: Owners) -> None:
    who = await producer(one)
    answer = await join(one, who, P0, P1)
    assert (answer.error, answer.number, answer.ended) == (ErrorCode.NONE, 1, None)
    assert (await join(one, who, P0, add=False)).error is ErrorCode.NONE
    assert (await end(one, who)).producer == who
    await until(lambda: len(owners.sent) == 2)
    assert {(each, number, commit) for _, each, number, commit in owners.sent} == {
        (P0, 1, True),
        (P1, 1, True),
    }
    await until_record(one, lambda state: state is not None and state.closing is None)
    state = await record(one)
    assert state is not None
    assert (state.last, state.current, kept(one)) == (Outcome.COMMIT, None, "at rest")
    assert (await join(one, who, P0)).number == 2


async def test_tv2_raises_the_epoch_with_each_end(one: Coordinator, owners: Owners) -> None:
    who = await producer(one)
    await join(one, who, P0)
    assert (await end(one, who, tv2=True)).producer == ProducerEpoch(who.producer_id, 1)
    await until(lambda: transactions(one).closing.count == 0)
    assert owners.marker_epochs == {1}


async def test_after_the_last_epoch_the_id_gets_another_producer_id(
    etcd: EtcdClient, keyspace: Keyspace, owners: Owners
) -> None:
    state = TransactionState(id=NAME, producer_id=5, epoch=LAST_EPOCH, timeout_ms=TIMEOUT_MS, changed_ms=0)
    state = replace(state, changed_ms=1 << 50)
    await etcd.put(keyspace.transaction(slot_of(NAME), NAME), encode_transaction(state))
    async with running(etcd, keyspace) as one:
        who = ProducerEpoch(5, LAST_EPOCH)
        await join(one, who, P0)
        answer = await end(one, who, tv2=True)
        assert answer.producer is not None
        assert answer.producer.epoch == 0
        assert answer.producer.producer_id != 5
        assert (await record(one)) is not None


async def test_an_id_without_a_record_is_forgotten_after_the_answer(one: Coordinator) -> None:
    answer = await join(one, ProducerEpoch(5, 0), P0)
    assert (answer.error, kept(one)) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, "not")
    assert (await end(one, ProducerEpoch(5, 0))).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert ids(one).count == 0


async def test_a_coordinator_that_has_lost_its_slot_without_knowing_vouches_for_nothing(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch lags: the claim of another is seen only by the read that was begun for the question."""
    who = await producer(one)
    await join(one, who, P0)
    monkeypatch.setattr(one.parts.slots, "_is_taken", lambda _held, _seen: False)
    foreign = Slot(epoch=9, owner="2/boot2")
    await one.etcd.put(one.keys.slot_claim(slot_of(NAME)), encode_owner(foreign))
    assert (await join(one, who, P0, add=False)).error is ErrorCode.NOT_COORDINATOR
    assert one.parts.slots.lost_count == 1


async def test_while_etcd_does_not_prove_the_claim_an_answer_from_memory_is_retriable(
    one: Coordinator,
) -> None:
    who = await producer(one)
    await join(one, who, P0)

    async def get(_key: bytes) -> None:
        raise UNKNOWN

    one.door.get = get  # type: ignore[attr-defined]
    assert (await join(one, who, P0, add=False)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_write_that_is_fenced_ends_all_that_waits(one: Coordinator) -> None:
    who = await producer(one)
    one.door.gate.clear()
    joining = asyncio.ensure_future(join(one, who, P0))
    await turns()
    behind = asyncio.ensure_future(end(one, who))
    foreign = Slot(epoch=9, owner="2/boot2")
    await one.etcd.put(one.keys.slot_claim(slot_of(NAME)), encode_owner(foreign))
    one.door.gate.set()
    assert (await joining).error is ErrorCode.NOT_COORDINATOR
    assert (await behind).error is ErrorCode.NOT_COORDINATOR
    state = await record(one)
    assert state is not None
    assert state.current is None


async def test_a_write_that_etcd_refuses_leaves_the_last_written_state(
    one: Coordinator, owners: Owners
) -> None:
    who = await producer(one)
    await join(one, who, P0)
    one.door.before = [REFUSED]
    assert (await join(one, who, P1)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await join(one, who, P1, add=False)).error is ErrorCode.TRANSACTION_ABORTABLE
    assert (await join(one, who, P0, add=False)).error is ErrorCode.NONE
    assert (await end(one, who)).error is ErrorCode.NONE
    await until(lambda: transactions(one).closing.count == 0)
    assert [each for _, each, *_ in owners.sent] == [P0]


async def test_ends_that_were_confirmed_beside_a_refused_write_are_asked_for_again(
    one: Coordinator, owners: Owners
) -> None:
    """They waited for the write, and are forgotten with it."""
    who = await producer(one)
    await join(one, who, P0, P1)
    owners.confirms = lambda each: each == P0
    await end(one, who)
    actor = ids(one)._actors[slot_of(NAME)][NAME]
    await until(lambda: bool(actor.transactions.ended))
    one.door.gate.clear()
    await until(lambda: actor._writing)
    owners.confirms = lambda _each: True
    await until(lambda: len(actor._inbox) == 1)
    one.door.before = [REFUSED]
    one.door.gate.set()
    await until_record(one, lambda state: state is not None and state.closing is None)


async def test_a_late_proof_vouches_for_no_question_after_a_refused_write(one: Coordinator) -> None:
    who = await producer(one)
    await join(one, who, P0)
    reads: list[asyncio.Event] = []

    async def get(key: bytes) -> object:
        reads.append(asyncio.Event())
        await reads[-1].wait()
        return await one.etcd.get(key)

    one.door.get = get  # type: ignore[attr-defined]
    first = asyncio.ensure_future(join(one, who, P0, add=False))
    await until(lambda: len(reads) == 1)
    one.door.before = [REFUSED]
    assert (await join(one, who, P1)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await first).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    second = asyncio.ensure_future(join(one, who, P0, add=False))
    await turns()
    reads[0].set()
    await until(lambda: len(reads) == 2)
    await turns()
    assert not second.done()
    reads[1].set()
    assert (await second).error is ErrorCode.NONE


async def test_a_join_that_makes_the_record_too_large_for_etcd_aborts_its_transaction(
    one: Coordinator, owners: Owners
) -> None:
    """Twice, with the largest transaction still closing: the decision fits too."""
    owners.is_away = True
    room = Rules().participants_bytes_max
    groups = [f"{n:06d}".ljust(1_000, "g") for n in range(room // 1_003)]
    who = await producer(one)
    for epoch in range(2):
        who = ProducerEpoch(who.producer_id, epoch)
        assert (await join(one, who, *groups)).error is ErrorCode.NONE
        assert (await join(one, who, "one more".ljust(1_000))).error is ErrorCode.TRANSACTION_ABORTABLE
        if epoch == 0:
            assert (await end(one, who, tv2=True, commit=False)).error is ErrorCode.NONE
    state = await record(one)
    assert state is not None
    assert state.current is not None
    assert state.closing is not None
    assert len(state.current) == len(state.closing.awaited) == len(groups)


async def test_a_write_with_an_unknown_outcome_is_repeated_and_counts_once(one: Coordinator) -> None:
    await one.parts.producer_ids.draw()  # the block is in memory
    one.door.after = [UNKNOWN]
    who = await producer(one)
    state = await record(one)
    assert state is not None
    assert who == ProducerEpoch(state.producer_id, 0)
    assert one.parts.slots.lost_count == 0


async def test_after_a_crash_between_decision_and_end_the_next_coordinator_sends_the_ends(
    etcd: EtcdClient, keyspace: Keyspace, owners: Owners
) -> None:
    await add_owner(etcd, keyspace)
    await make_topic(etcd, keyspace)
    owners.is_away = True
    one = await Coordinator(etcd, keyspace, 1).start()
    await one.has(64)
    who = await producer(one)
    await join(one, who, P0, P1)
    assert (await end(one, who)).error is ErrorCode.NONE
    await one.die()
    await one.lease_ends()
    owners.is_away, owners.sent = False, []
    async with running(etcd, keyspace) as two:
        await until_record(two, lambda state: state is not None and state.closing is None)
        assert {(each, number, commit) for _, each, number, commit in owners.sent} == {
            (P0, 1, True),
            (P1, 1, True),
        }
        assert (await end(two, who)).error is ErrorCode.NONE, "the repeat of the client is the same decision"


async def test_a_transaction_times_out_and_its_producer_is_fenced(
    etcd: EtcdClient, keyspace: Keyspace, owners: Owners
) -> None:
    await add_owner(etcd, keyspace)
    async with running(etcd, keyspace) as one:
        answer = await ids(one).init(NAME, timeout_ms=20, expected=None)
        assert answer.producer is not None
        await join(one, answer.producer, P0)
        await until(lambda: len(owners.sent) == 1)
        assert owners.sent[0][2:] == (1, False)
        assert (await end(one, answer.producer)).error is ErrorCode.PRODUCER_FENCED
        assert ids(one).decisions == {Decision("abort", "timeout"): 1}


async def test_a_transaction_keeps_its_timeout_when_its_coordinator_changes(
    etcd: EtcdClient, keyspace: Keyspace, owners: Owners
) -> None:
    await add_owner(etcd, keyspace)
    one = await Coordinator(etcd, keyspace, 1).start()
    await one.has(64)
    await join(one, await producer(one), P0)
    await one.die()
    await one.lease_ends()
    two = Coordinator(etcd, keyspace, 2)
    two.clock.later_ms = TIMEOUT_MS
    await two.start()
    await two.has(64)
    await until(lambda: len(owners.sent) == 1)
    assert owners.sent[0][2:] == (1, False)
    await two.die()


async def test_init_aborts_what_is_under_way_and_answers_when_it_has_ended(
    one: Coordinator, owners: Owners
) -> None:
    who = await producer(one)
    await join(one, who, P0)
    again = await init(one)
    assert again.producer == ProducerEpoch(who.producer_id, 2)
    assert owners.sent[0][2:] == (1, False)
    assert ids(one).decisions == {Decision("abort", "fence"): 1}


async def test_a_parked_request_whose_client_leaves_is_abandoned(one: Coordinator, owners: Owners) -> None:
    owners.confirms = lambda _each: False
    who = await producer(one)
    await join(one, who, P0)
    await end(one, who)
    actor = ids(one)._actors[slot_of(NAME)][NAME]
    parked = asyncio.ensure_future(init(one))
    await until(lambda: len(actor.transactions.parked) == 1)
    parked.cancel()
    await asyncio.gather(parked, return_exceptions=True)
    await turns()
    assert actor.transactions.parked == ()


async def test_decisions_are_counted_by_their_cause(one: Coordinator) -> None:
    who = await producer(one)
    await join(one, who, P0)
    await end(one, who, commit=False)
    await until(lambda: transactions(one).closing.count == 0)
    await join(one, who, P0)
    await end(one, who, tv2=True)
    await until(lambda: transactions(one).closing.count == 0)
    assert one.metric("transactions_decided_total", "abort", "tv1") == 1
    assert one.metric("transactions_decided_total", "commit", "tv2") == 1
    assert one.metric("transactions_decided_total", "commit", "timeout") == 0
    assert one.metric("transaction_ends_total", "done") == 2
    assert one.metric("transactions", "Ongoing") == 0
    assert one.metric("transactional_ids") == 1


async def test_a_record_that_cannot_be_read_is_that_of_its_id_alone(
    etcd: EtcdClient, keyspace: Keyspace, owners: Owners
) -> None:
    key = keyspace.transaction(slot_of(NAME), NAME)
    await etcd.put(key, b"\xff")
    await etcd.put(keyspace.transactions_prefix(slot_of(NAME)) + b"a/b", b"")
    async with running(etcd, keyspace) as one:
        assert (await init(one)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await join(one, ProducerEpoch(1, 0), P0)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        neighbour = next(name for n in range(1_000) if slot_of(name := f"n{n}") == slot_of(NAME))
        assert (await init(one, neighbour)).error is ErrorCode.NONE
        assert one.metric("transactional_ids_unreadable") == 1
        kv = await etcd.get(key)
        assert kv is not None
        assert kv.value == b"\xff"


async def test_a_full_etcd_takes_no_new_ids_and_then_no_joins_but_always_decisions(one: Coordinator) -> None:
    who = await producer(one)
    await join(one, who, P0)
    await fill(one, 0.61)
    assert (await init(one, "new")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await join(one, who, P1)).error is ErrorCode.NONE
    await fill(one, 0.76)
    assert (await join(one, who, (P0[0], 2))).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await join(one, who, P1)).error is ErrorCode.NONE, "it is in the record"
    assert (await end(one, who)).error is ErrorCode.NONE
    assert (await init(one)).error is ErrorCode.NONE


async def test_there_are_at_most_so_many_ids(one: Coordinator) -> None:
    ids(one)._ids_max = 2
    await producer(one, "a")
    await producer(one, "b")
    assert (await init(one, "c")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await init(one, "a")).error is ErrorCode.NONE


async def test_an_unused_id_is_deleted_after_its_time(one: Coordinator) -> None:
    await producer(one)
    one.clock.later_ms = 7 * DAY_MS - 1_000
    ids(one).expire()
    assert kept(one) == "at rest"
    one.clock.later_ms = 7 * DAY_MS
    ids(one).expire()
    await until(lambda: kept(one) == "not")
    assert await record(one) is None
    assert LOOK_EVERY_S * 1_000 < DAY_MS


async def test_a_coordinator_with_nearly_too_many_ids_deletes_those_that_rest_since_half_a_day(
    one: Coordinator,
) -> None:
    ids(one)._ids_max = 2
    await producer(one, "a")
    await producer(one, "b")
    one.clock.later_ms = UNUSED_MS // 2
    await producer(one, "b")
    one.clock.later_ms = UNUSED_MS - 1_000
    ids(one).expire()
    assert kept(one, "a") == "at rest"
    one.clock.later_ms = UNUSED_MS
    ids(one).expire()
    await until(lambda: kept(one, "a") == "not")
    assert kept(one, "b") == "at rest"
    assert (await init(one, "c")).error is ErrorCode.NONE
    one.clock.later_ms = 2 * UNUSED_MS
    ids(one)._ids_max = 3
    ids(one).expire()
    assert kept(one, "b") == "at rest"


async def test_requests_to_a_slot_that_is_not_here_or_not_read_are_refused(one: Coordinator) -> None:
    held(one).loaded = False
    assert (await init(one)).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    held(one).loaded = True
    one.fresh = False
    assert (await join(one, ProducerEpoch(1, 0), P0)).error is ErrorCode.NOT_COORDINATOR
    one.fresh = True
    await one.drain()
    assert (await end(one, ProducerEpoch(1, 0))).error is ErrorCode.NOT_COORDINATOR


async def test_a_participant_of_a_deleted_topic_is_dropped_after_a_read_of_the_topics(
    one: Coordinator, owners: Owners
) -> None:
    """There is no such topic, and its owner does not confirm."""
    gone = (TopicId(b"g" * 16), 0)
    owners.confirms = lambda _each: False
    reads = 0
    confirmed = one.topics.confirmed

    async def counted(*, recent_s: float = 0.0) -> bool:
        nonlocal reads
        reads += 1
        assert owners.calls > 0, "the read began after the answer"
        return await confirmed(recent_s=recent_s)

    one.topics.confirmed = counted  # type: ignore[method-assign]
    who = await producer(one)
    await join(one, who, gone)
    await end(one, who)
    await until_record(one, lambda state: state is not None and state.closing is None)
    assert reads >= 1
    assert one.metric("transaction_ends_total", "dropped") == 1


async def test_over_names_the_slots_that_were_proven(one: Coordinator, owners: Owners) -> None:
    joins = transactions(one).joins
    who = await producer(one)
    await join(one, who, P0)
    asked = OverRequest(producer_id=who.producer_id, number=1)
    assert (await joins.over(asked)).over is False
    owners.is_away = True
    await end(one, who)
    assert (await joins.over(asked)).over is False, "it is closing"
    owners.is_away = False
    await until_record(one, lambda state: state is not None and state.closing is None)
    reply = await joins.over(asked)
    assert (reply.over, sorted(reply.slots)) == (True, list(range(64)))
    ids(one)._unreadable[slot_of(NAME)].add("damaged")
    assert slot_of(NAME) not in (await joins.over(asked)).slots


async def test_a_slot_that_is_read_in_part_proves_nothing_over(one: Coordinator) -> None:
    held(one).loaded = False
    reply = await transactions(one).joins.over(OverRequest(producer_id=1, number=1))
    assert sorted(reply.slots) == [each for each in range(64) if each != slot_of(NAME)]
    held(one).loaded = True


async def test_a_slot_that_is_lost_during_the_proof_and_read_again_proves_nothing_over(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    proven, slots = ids(one)._around.proofs.proven, one.parts.slots

    async def lost_meanwhile(claim: Held) -> ErrorCode:
        found = await proven(claim)
        if claim.slot_id == slot_of(NAME):
            slots._held[claim.slot_id] = replace(claim, loaded=False)
        return found

    monkeypatch.setattr(ids(one)._around.proofs, "proven", lost_meanwhile)
    reply = await transactions(one).joins.over(OverRequest(producer_id=1, number=1))
    assert sorted(reply.slots) == [each for each in range(64) if each != slot_of(NAME)]


async def test_the_ids_of_a_slot_are_decoded_some_at_a_time(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else 20,000 of them would stop all groups and ids of the instance for some tenths of a second."""
    decoded = 0
    decode = registry.decode_transaction

    def counted(value: bytes) -> TransactionState:
        nonlocal decoded
        decoded += 1
        return decode(value)

    monkeypatch.setattr(registry, "decode_transaction", counted)
    names = [f"id-{n}" for n in range(2 * LOADED_TOGETHER + 1)]
    states = [TransactionState(id=name, producer_id=1, timeout_ms=1, changed_ms=0) for name in names]
    kvs = [
        KeyValue(one.keys.transaction(slot_of(NAME), each.id), encode_transaction(each), 1, 1, 1, 0)
        for each in states
    ]
    steps = []
    for _ in ids(one).load(held(one), kvs):
        steps.append(decoded)
        decoded = 0
    assert steps == [LOADED_TOGETHER, LOADED_TOGETHER, 1]
    assert len(ids(one)._resting[slot_of(NAME)]) == len(names)


async def test_a_served_join_answers_the_number_and_the_code(one: Coordinator) -> None:
    joins = transactions(one).joins
    who = await producer(one)
    asked = JoinRequest(
        transactional_id=NAME,
        producer_id=who.producer_id,
        epoch=who.epoch,
        add=True,
        participants=participants_to_pb(Participants.of(P0)),
    )
    reply = await joins.join(asked)
    assert (reply.code, reply.number, reply.HasField("ended")) == (0, 1, False)
    asked.epoch = 7
    assert (await joins.join(asked)).code == ErrorCode.PRODUCER_FENCED
    state = await record(one)
    assert state is not None
    assert state.current == participants_from_pb(asked.participants)
