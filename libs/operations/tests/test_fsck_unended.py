"""fsck names transactions that nobody will end, and none that is on its way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafscale.operations.fsck.run import Fsck
from kafscale.operations.fsck.unended import UnendedCheck
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.groups import CommittedOffset
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.objects import MemoryStore
from kafscale.storage.slots import slot_of
from kafscale.storage.topics import TopicState, encode_topic
from kafscale.storage.transactions import (
    ClosingTransaction,
    Participants,
    PendingOffset,
    PendingOffsets,
    TransactionState,
    encode_pending,
    encode_transaction,
)
from kafscale.testkit.logbuilder import LogBuilder, create_topic, marker, records, transactional

NAME, GROUP, PID = "id", "g", 7


@pytest.fixture
async def log(etcd: EtcdClient, keyspace: Keyspace) -> LogBuilder:
    """Producer 7 has transaction -1 (the builder's number) open at 0, and an offset of it pending in a group."""
    log = LogBuilder(etcd, keyspace, MemoryStore(), await create_topic(etcd, keyspace, "orders"))
    await log.append_raw([transactional(PID, records(2))])
    await put_pending(log)
    return log


async def put_pending(log: LogBuilder, *, group: str = GROUP) -> None:
    offset = PendingOffset(
        topic_id=log.topic.topic_id, partition=0, offset=CommittedOffset(offset=1, commit_ms=1)
    )
    value = PendingOffsets(
        group=group, producer_id=PID, epoch=0, number=log.head.open[0].number, offsets=(offset,)
    )
    await log._etcd.put(log._keyspace.pending(slot_of(GROUP), GROUP, PID), encode_pending(value))


async def put_record(log: LogBuilder, state: TransactionState) -> None:
    await log._etcd.put(log._keyspace.transaction(slot_of(NAME), NAME), encode_transaction(state))


def state(*, number: int = -1, current: Participants | None = None) -> TransactionState:
    return TransactionState(
        id=NAME, producer_id=PID, timeout_ms=60_000, number=number, changed_ms=1, current=current
    )


def closing(awaited: Participants, *, number: int = -1, producer_id: int = PID) -> TransactionState:
    left = ClosingTransaction(
        number=number,
        producer_id=producer_id,
        marker_epoch=1,
        bumped=True,
        commit=True,
        coordinator_epoch=1,
        awaited=awaited,
    )
    return replace(state(number=5), producer_id=PID + 1, closing=left)


async def problems(log: LogBuilder) -> list[str]:
    verdict = await Fsck(log._etcd, log._keyspace, log._store, lambda *_: None).run()
    return [f"{each.where}: {each.what}" for each in verdict.problems]


HANGS = (
    "orders/0: transaction -1 of producer 7 is open at 0, and no transactional id has it: it hangs",
    "group g: transaction -1 of producer 7 has 1 offsets pending, and no transactional id has it: they are stuck",
)


async def test_what_no_record_has_hangs(log: LogBuilder) -> None:
    assert await problems(log) == [*HANGS]


async def test_what_is_under_way_or_awaited_does_not(log: LogBuilder) -> None:
    both = Participants.of((log.topic.topic_id, 0), GROUP)
    for known in (state(current=both), closing(both)):
        await put_record(log, known)
        assert await problems(log) == []


@pytest.mark.parametrize("of", ["current", "closing"])
@pytest.mark.parametrize("wrong", ["number", "participants", "producer"])
async def test_another_number_producer_or_participant_is_none_of_it(
    log: LogBuilder, of: str, wrong: str
) -> None:
    partition, group = (log.topic.topic_id, 0), GROUP
    if wrong == "participants":
        partition, group = (TopicId(bytes(16)), 0), "another"
    both, number = Participants.of(partition, group), 3 if wrong == "number" else -1
    if of == "current":
        known = state(number=number, current=both)
        await put_record(log, replace(known, producer_id=1) if wrong == "producer" else known)
    else:
        await put_record(log, closing(both, number=number, producer_id=1 if wrong == "producer" else PID))
    assert await problems(log) == [*HANGS]


async def test_what_ends_while_fsck_looks_does_not_hang(
    log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = UnendedCheck._records

    async def ends(check: UnendedCheck) -> object:
        found = await honest(check)
        await log.append_raw([marker(PID, commit=True)])
        await log._etcd.delete(log._keyspace.pending(slot_of(GROUP), GROUP, PID))
        return found

    monkeypatch.setattr(UnendedCheck, "_records", ends)
    assert await problems(log) == []


async def test_a_topic_that_is_deleted_takes_what_is_open_with_it(log: LogBuilder) -> None:
    deleting = replace(log.topic, state=TopicState.DELETING)
    await log._etcd.put(log._keyspace.topic("orders"), encode_topic(deleting))
    assert await problems(log) == [HANGS[1]]


async def test_an_unreadable_record_may_be_that_of_anything(log: LogBuilder) -> None:
    await log._etcd.put(log._keyspace.transaction(slot_of(NAME), NAME), b"\xff")
    (only,) = await problems(log)
    assert "x/" in only


async def test_pending_offsets_that_cannot_be_read_or_are_of_others_are_named(log: LogBuilder) -> None:
    await put_record(log, state(current=Participants.of((log.topic.topic_id, 0), "other")))
    await put_pending(log, group="other")
    (only,) = await problems(log)
    assert only.endswith("the value names another group or producer")
    await log._etcd.put(log._keyspace.pending(slot_of(GROUP), GROUP, PID), b"\xff")
    (only,) = await problems(log)
    assert "cp/" in only
