"""A consumer group's keys: a step writes what it changed, and one that was cut short leaves a group that can go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafscale.coordinator.consumer.machine import durable
from kafscale.coordinator.consumer.model import PersistedGroup
from kafscale.coordinator.groups import group_txns
from kafscale.coordinator.groups.consumer_type import persisted_of
from kafscale.coordinator.handlers import consumer_group_heartbeat, delete_groups
from kafscale.storage.consumer_groups import Part, PartKind, part_key, stored_groups
from kafscale.storage.etcd.client import EtcdClient, Put, Txn
from kafscale.storage.groups import (
    ConsumerGroup,
    ConsumerMember,
    ConsumerMemberState,
    GroupState,
    TargetAssignment,
    TopicPartitions,
)
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.slots import slot_of
from kafscale.testkit.old_groups import encode_old_group
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import consumer_group_heartbeat as schema
from kafscale.wire.schema import delete_groups as delete_schema

from services.coordinator.tests.shell_harness import Coordinator, make_topic, running, turns, until
from services.coordinator.tests.test_group_actor import TOO_LARGE, consumer_beat, join

MEMBERS = 1_000
TOPICS = 100
SLOT = slot_of("g")
ETCD_REQUEST_BYTES = 3 << 19


def topic_name(number: int) -> str:
    return f"topic-name-{number:05d}"


async def beat(one: Coordinator, member_id: str, epoch: int, topics: int = TOPICS, **more: Any) -> Any:
    joins = epoch == 0
    request = schema.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if joins else -1,
        subscribed_topic_names=[topic_name(number) for number in range(topics)] if joins else None,
        topic_partitions=more.pop("owned", [] if joins else None),
        **more,
    )
    return await one.ask(consumer_group_heartbeat, schema, request, 1)


async def make_topics(one: Coordinator, count: int, partitions: int) -> None:
    for number in range(count):
        await make_topic(one.etcd, one.keys, topic_name(number), partitions)
    await one.topics.refresh()
    await turns()


def written(one: Coordinator) -> list[Txn]:
    """The jobs that were sent since the last look, one group's each."""
    sent = [job for request in one.door.sent for job in request.success if isinstance(job, Txn)]
    one.door.sent.clear()
    return sent


def size(job: Txn) -> int:
    return sum(len(op.key) + len(op.value) if isinstance(op, Put) else len(op.key) for op in job.success)  # type: ignore[union-attr]


def sizes(one: Coordinator) -> tuple[int, int]:
    """Keys and bytes that were written."""
    jobs = written(one)
    assert all(size(job) < ETCD_REQUEST_BYTES for job in jobs)
    return sum(len(job.success) for job in jobs), sum(map(size, jobs))


async def read(etcd: EtcdClient, keys: Keyspace) -> PersistedGroup | None:
    found = await etcd.prefix(keys.groups_prefix(SLOT))
    group = stored_groups(keys, found.kvs, pytest.fail).get("g")
    if group is None or group.record is None:
        return None
    state = group.assembled().state
    assert isinstance(state, ConsumerGroup)
    return persisted_of("g", state)


class Client:
    """A member that owns at once what it is given, and says so with its next heartbeat."""

    def __init__(self, one: Coordinator, name: str, topics: int, assignor: str | None = None) -> None:
        self.one, self.name, self.topics, self.assignor = one, name, topics, assignor
        self.epoch = 0
        self.owned: list[Any] = []
        self.errors: set[int] = set()

    async def beat(self) -> int:
        joins = self.epoch == 0
        more = {"server_assignor": self.assignor} if joins else {"owned": self.owned}
        told = await beat(self.one, self.name, self.epoch, self.topics, **more)
        error: int = told.error_code
        if error == ErrorCode.NONE:
            self.epoch = told.member_epoch
            if told.assignment is not None:
                self.owned = [
                    schema.ConsumerGroupHeartbeatRequestTopicPartitions(
                        topic_id=each.topic_id, partitions=each.partitions
                    )
                    for each in told.assignment.topic_partitions
                ]
        else:
            self.errors.add(error)
        return error

    @property
    def pairs(self) -> set[tuple[bytes, int]]:
        return {(each.topic_id, number) for each in self.owned for number in each.partitions}


async def settle(clients: list[Client]) -> None:
    """Rounds of heartbeats until a whole one changes nothing."""
    for _ in range(12):
        before = [(client.epoch, client.pairs) for client in clients]
        for start in range(0, len(clients), 100):
            await asyncio.gather(*(client.beat() for client in clients[start : start + 100]))
        if [(client.epoch, client.pairs) for client in clients] == before:
            return
    raise AssertionError("the group does not come to rest")


async def test_a_step_of_one_member_writes_keys_of_that_member_alone(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with running(etcd, keyspace) as one:
        clients = await group_of_few(one)
        written(one)
        assert (await beat(one, clients[3].name, -1)).error_code == 0
        (job,) = written(one)
        group_key = keyspace.group(SLOT, "g")
        gone = {part_key(keyspace, group_key, Part(kind, clients[3].name)) for kind in PartKind}
        assert {op.key for op in job.success} == {group_key, *gone}  # type: ignore[union-attr]


@pytest.mark.timeout(900)  # half a minute of work for a thousand members
@pytest.mark.parametrize("members", [200, pytest.param(MEMBERS, marks=pytest.mark.deep)])
async def test_steps_of_many_members_over_a_hundred_topics_write_what_they_change(
    etcd: EtcdClient, keyspace: Keyspace, members: int
) -> None:
    """A thousand would be more than one value of etcd can hold."""
    async with running(etcd, keyspace) as one:
        await make_topics(one, TOPICS, members // TOPICS)  # a partition for each member
        clients = [Client(one, f"member-{number:015d}", TOPICS) for number in range(members - 1)]
        await settle(clients)
        assert all(size(job) < ETCD_REQUEST_BYTES for job in written(one))
        found = await etcd.prefix(keyspace.groups_prefix(SLOT))
        whole = sum(len(kv.key) + len(kv.value) for kv in found.kvs)
        assert whole > members * ETCD_REQUEST_BYTES / MEMBERS, "one value could not hold a thousand members"

        await settle(clients)
        assert sizes(one) == (0, 0), "a heartbeat writes nothing"
        last = Client(one, "the-last", TOPICS)
        assert await last.beat() == 0
        keys, joined = sizes(one)
        assert keys < 10, "the group, the new member, and who gives something to it"
        assert joined < 2 * whole / members
        await settle([*clients, last])
        keys, followed = sizes(one)
        assert len(last.pairs) == 1
        assert keys <= 2 * (members + 10), "each member's epoch, and with it the group's key"
        assert followed < 250 * keys, "and no member says again what it had said"
        assert (await beat(one, clients[0].name, -1)).error_code == 0
        keys, left = sizes(one)
        assert (keys, left < 1_000) == (4, True), "the group, and the member that goes"
        assert await clients[1].beat() == 0
        keys, given = sizes(one)
        assert keys <= 5
        assert given < 1_000
        persisted = durable(one.actor("g").group)
    async with running(etcd, keyspace) as again:
        assert durable(again.actor("g").group).members == persisted.members


# -- cut short -------------------------------------------------------------------------------------

FEW = 30


async def group_of_few(one: Coordinator) -> list[Client]:
    await make_topics(one, 2, FEW)
    clients = [Client(one, f"m{number:02d}", 2, "range") for number in range(FEW)]
    await settle(clients)
    return clients


def shares(clients: list[Client]) -> list[tuple[bytes, int]]:
    return sorted(pair for client in clients for pair in client.pairs)


@pytest.mark.parametrize("made", [0, 1, 2, 4, 7])
async def test_a_coordinator_that_dies_amid_a_large_change_leaves_a_group_that_goes_on(
    etcd: EtcdClient, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch, made: int
) -> None:
    monkeypatch.setattr(group_txns, "OPS_PER_TXN_MAX", 5)
    async with running(etcd, keyspace) as one:
        clients = await group_of_few(one)
        before = durable(one.actor("g").group)
        written(one)
        one.door.room = made
        joining = asyncio.ensure_future(Client(one, "a-first-one", 2, "range").beat())  # all the others move
        await until(lambda: not one.door.gate.is_set())
        assert not joining.done()
        joining.cancel()
    cut = await read(etcd, keyspace)
    assert cut is not None
    assert cut.members == before.members
    if made:
        assert cut.epoch > cut.target_epoch == before.target_epoch
    async with running(etcd, keyspace) as again:
        for client in clients:
            client.one = again
        late = Client(again, "a-first-one", 2, "range")
        await settle([*clients, late])
        assert len(shares([*clients, late])) == len(set(shares([*clients, late]))) == 2 * FEW
        assert {error for client in clients for error in client.errors} == set()


async def test_a_late_copy_of_any_write_changes_nothing(
    etcd: EtcdClient, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was thought lost, and was sent again, may come after all that followed."""
    monkeypatch.setattr(group_txns, "OPS_PER_TXN_MAX", 5)
    async with running(etcd, keyspace) as one:
        clients = await group_of_few(one)
        assert await Client(one, "a-first-one", 2, "range").beat() == 0
        await settle(clients)
        copies = written(one)
        before = await etcd.prefix(keyspace.groups_prefix(SLOT))
        assert len(copies) > FEW
        for copy in copies:
            assert not (await etcd.txn(copy)).succeeded
        assert (await etcd.prefix(keyspace.groups_prefix(SLOT))).kvs == before.kvs


async def test_a_large_change_that_etcd_refuses_in_the_middle_is_read_again(
    etcd: EtcdClient, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_txns, "OPS_PER_TXN_MAX", 5)
    async with running(etcd, keyspace) as one:
        clients = await group_of_few(one)
        one.door.before += [None, None, TOO_LARGE]
        late = Client(one, "a-first-one", 2, "range")
        assert await late.beat() == ErrorCode.NOT_COORDINATOR
        await one.has(64)
        await settle([*clients, late])
        assert len(set(shares([*clients, late]))) == 2 * FEW
        persisted = await read(etcd, keyspace)
        assert persisted is not None
        assert persisted.members == durable(one.actor("g").group).members


# -- what was written before members had keys ------------------------------------------------------


def of_old(members: int) -> GroupState:
    topic_id = TopicId(topic_name(0).encode())
    shares = [(TopicPartitions(topic_id=topic_id, partitions=(number,)),) for number in range(members)]
    state = ConsumerGroup(
        group_epoch=7,
        assignment_epoch=7,
        target=tuple(
            TargetAssignment(member_id=f"m{number:02d}", partitions=share)
            for number, share in enumerate(shares)
        ),
        members=tuple(
            ConsumerMember(
                id=f"m{number:02d}",
                member_epoch=7,
                previous_epoch=6,
                state=ConsumerMemberState.STABLE,
                rebalance_timeout_ms=60_000,
                subscribed=(topic_name(0),),
                assigned=share,
            )
            for number, share in enumerate(shares)
        ),
    )
    return GroupState(group="g", state=state)


@pytest.mark.parametrize("cuts", [(), (1,), (3,), (3, 0, 1, 2)])
async def test_a_record_of_old_is_read_and_takes_the_new_form_with_its_first_change(
    etcd: EtcdClient, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch, cuts: tuple[int, ...]
) -> None:
    """However often that is cut short after some transactions."""
    monkeypatch.setattr(group_txns, "OPS_PER_TXN_MAX", 10)
    old = of_old(20)
    await etcd.put(keyspace.group(SLOT, "g"), encode_old_group(old))
    await make_topic(etcd, keyspace, topic_name(0), 20)
    assert isinstance(old.state, ConsumerGroup)
    for made in cuts:
        async with running(etcd, keyspace) as one:
            written(one)
            one.door.room = made
            asking = asyncio.ensure_future(beat(one, "m00", 7, 1))
            await until(lambda one=one: not one.door.gate.is_set())  # type: ignore[misc]
            asking.cancel()
        assert await read(etcd, keyspace) == persisted_of("g", old.state)
    async with running(etcd, keyspace) as one:
        for number in range(20):
            assert (await beat(one, f"m{number:02d}", 7, 1)).error_code == 0
        persisted = durable(one.actor("g").group)
        assert {name: member.assigned for name, member in persisted.members.items()} == {
            each.id: {share.topic_id: frozenset(share.partitions) for share in each.assigned}
            for each in old.state.members
        }
        found = await etcd.prefix(keyspace.groups_prefix(SLOT))
        group = stored_groups(keyspace, found.kvs, pytest.fail)["g"]
        assert (group.is_of_one_value, len(group.parts)) == (False, 60)
    assert await read(etcd, keyspace) == persisted


async def test_what_stands_beneath_no_group_is_no_member_of_the_next_one(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    await make_topic(etcd, keyspace, partitions=2)
    group_key = keyspace.group(SLOT, "g")
    await etcd.put(part_key(keyspace, group_key, Part(PartKind.METADATA, "ghost")), b"\xff")
    async with running(etcd, keyspace) as one:
        assert (await consumer_beat(one, 0)).error_code == 0
    persisted = await read(etcd, keyspace)
    assert persisted is not None
    assert set(persisted.members) == {"m"}


async def test_a_deleted_group_leaves_no_key(etcd: EtcdClient, keyspace: Keyspace) -> None:
    async with running(etcd, keyspace) as one:
        await group_of_few(one)
        for number in range(FEW):
            await beat(one, f"m{number:02d}", -1)
        await etcd.put(part_key(keyspace, keyspace.group(SLOT, "g"), Part(PartKind.TARGET, "ghost")), b"")
        request = delete_schema.DeleteGroupsRequest(groups_names=["g"])
        answer = await one.ask(delete_groups, delete_schema, request, 2)
        assert answer.results[0].error_code == 0
        assert (await etcd.prefix(keyspace.groups_prefix(SLOT))).kvs == ()
        assert (await join(one)).error_code == 0
