"""Who gets a group's calls: the coordinator that has its slot, its heir, or nobody."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from door_fakes import FakeLive, FakeOwners, FakeSlots, FakeStream, instance
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.backends import Pool
from kafscale.frontdoor.routing import Routing
from kafscale.testkit.etcd import etcd_server, keyspace

__all__ = ["etcd_server", "keyspace"]

COORDINATOR = Backend.COORDINATOR


class Field:
    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.live = {role: FakeLive() for role in Backend}
        self.slots = FakeSlots()
        pools = {role: Pool(role, self.live[role], FakeStream, tasks) for role in Backend}
        self.routing = Routing(pools, FakeOwners(), self.slots)

    def node_of(self, group: str) -> int | None:
        channel = self.routing.coordinator(group)
        return None if channel is None else channel.node_id

    def nodes(self) -> list[int] | None:
        channels = self.routing.coordinators()
        return None if channels is None else [channel.node_id for channel in channels]


@pytest_asyncio.fixture
async def field() -> AsyncIterator[Field]:
    async with asyncio.TaskGroup() as tasks:
        yield Field(tasks)


async def test_a_group_is_at_the_owner_of_its_slot_in_any_state(field: Field) -> None:
    field.live[COORDINATOR].set(instance(COORDINATOR, 1), instance(COORDINATOR, 2, ready=False))
    field.slots.set("g", "2/a")
    assert field.node_of("g") == 2


async def test_nobody_else_gets_the_calls_of_a_slot_without_a_live_owner(field: Field) -> None:
    field.live[COORDINATOR].set(instance(COORDINATOR, 1), instance(COORDINATOR, 2, boot="new"))
    assert field.node_of("g") is None
    field.slots.set("g", "2/old")
    assert field.node_of("g") is None
    field.slots.set("g", "")
    assert field.node_of("g") is None


async def test_a_slot_that_was_handed_over_is_at_its_heir(field: Field) -> None:
    field.live[COORDINATOR].set(instance(COORDINATOR, 1), instance(COORDINATOR, 2))
    field.slots.set("g", "", handoff_to="2")
    assert field.node_of("g") == 2
    field.slots.set("g", "", handoff_to="3")
    assert field.node_of("g") is None


async def test_who_may_know_groups_is_who_is_ready_or_has_a_slot(field: Field) -> None:
    field.live[COORDINATOR].set(
        instance(COORDINATOR, 3),
        instance(COORDINATOR, 1),
        *(instance(COORDINATOR, n, ready=False) for n in (2, 4)),
    )
    field.slots.set("g", "2/a")
    assert field.nodes() == [1, 2, 3]


async def test_while_a_slots_groups_are_known_to_nobody_nobody_can_list_them(field: Field) -> None:
    field.live[COORDINATOR].set(instance(COORDINATOR, 1))
    assert field.nodes() == [1]
    field.slots.set("g", "9/gone")
    assert field.nodes() is None
