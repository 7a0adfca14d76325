"""Coordinators with transactions on, and the participants that confirm their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from kafscale.coordinator.slots import Held
from kafscale.coordinator.transactions import service
from kafscale.coordinator.transactions.model import JoinAnswer, ProducerAnswer, ProducerEpoch
from kafscale.coordinator.transactions.registry import TransactionalIds
from kafscale.coordinator.transactions.service import Transactions
from kafscale.rpc.v1.transactions_pb2 import EndReply, EndRequest
from kafscale.runtime.transactions.calling import CallFailed
from kafscale.runtime.transactions.participants import participants_from_pb
from kafscale.storage.coordination import OwnerRecord, encode_owner
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace, PartitionKey
from kafscale.storage.membership.members import Instance, InstanceState
from kafscale.storage.membership.records import encode_live
from kafscale.storage.slots import slot_of
from kafscale.storage.transactions import Participant, Participants, TransactionState, decode_transaction
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.shell_harness import Coordinator

NAME = "id"
TIMEOUT_MS = 60_000


@dataclass
class Owners:
    """All produce instances and other coordinators. `confirms`: whether a participant has carried out its end."""

    sent: list[tuple[str, Participant, int, bool]] = field(default_factory=list)
    """To whom, for which participant, the number, and whether to commit."""
    confirms: Callable[[Participant], bool] = lambda _each: True
    is_away: bool = False
    calls: int = 0
    marker_epochs: set[int] = field(default_factory=set)

    async def end(self, instance: str, request: EndRequest, *, timeout_s: float) -> EndReply:
        self.calls += 1
        reply = EndReply()
        for end in request.ends:
            asked = participants_from_pb(end.participants)
            self.sent += [(instance, each, end.number, end.commit) for each in asked]
            self.marker_epochs.add(end.marker_epoch)
            for each in asked:
                if not isinstance(each, str) and self.confirms(each):
                    done = reply.done.add(producer_id=end.producer_id, number=end.number)
                    done.participants.partitions.add(topic_id=each[0], partitions=[each[1]])
        if self.is_away:
            raise CallFailed("End", instance, "it is away")
        return reply


def take_calls(monkeypatch: pytest.MonkeyPatch) -> Owners:
    """From now on coordinators call these owners."""
    owners = Owners()
    monkeypatch.setattr(service, "ParticipantCalls", lambda *_channels: owners)
    return owners


async def add_owner(etcd: EtcdClient, keys: Keyspace, node_id: int = 7) -> str:
    """A produce instance that is ready."""
    instance = Instance(role="produce", node_id=node_id, boot_id=f"p{node_id}", state=InstanceState.READY)
    await etcd.put(keys.live("produce", node_id, instance.boot_id), encode_live(instance))
    return instance.id


async def give(etcd: EtcdClient, keys: Keyspace, partition: PartitionKey, owner: str) -> None:
    await etcd.put(keys.owner(*partition), encode_owner(OwnerRecord(epoch=1, owner=owner)))


def transactions(one: Coordinator) -> Transactions:
    assert one.parts.transactions is not None
    return one.parts.transactions


def ids(one: Coordinator) -> TransactionalIds:
    return transactions(one).ids


async def init(one: Coordinator, name: str = NAME, expected: ProducerEpoch | None = None) -> ProducerAnswer:
    return await ids(one).init(name, timeout_ms=TIMEOUT_MS, expected=expected)


async def producer(one: Coordinator, name: str = NAME) -> ProducerEpoch:
    answer = await init(one, name)
    assert answer.producer is not None, answer
    return answer.producer


async def join(
    one: Coordinator, who: ProducerEpoch, *some: Participant, name: str = NAME, add: bool = True
) -> JoinAnswer:
    return await ids(one).join(name, who, Participants.of(*some), add=add)


async def end(
    one: Coordinator, who: ProducerEpoch, *, name: str = NAME, commit: bool = True, tv2: bool = False
) -> ProducerAnswer:
    now_ms = one.clock.now_ms()
    return await ids(one).end(name, who, commit=commit, tv2=tv2, reached_ms=now_ms)


async def record(one: Coordinator, name: str = NAME) -> TransactionState | None:
    kv = await one.etcd.get(one.keys.transaction(slot_of(name), name))
    return None if kv is None else decode_transaction(kv.value)


async def until_record(
    one: Coordinator, happened: Callable[[TransactionState | None], bool], name: str = NAME
) -> None:
    """Until it is written, and the instance, which serves the id, has had the answer."""

    def is_heard() -> bool:
        state = ids(one).state_of(name)
        return not isinstance(state, ErrorCode) and happened(state)

    async with asyncio.timeout(20):
        while not (happened(await record(one, name)) and is_heard()):
            await asyncio.sleep(0.01)


def held(one: Coordinator, name: str = NAME) -> Held:
    found = one.parts.slots.held(slot_of(name))
    assert found is not None
    return found
