"""Which front doors are named to clients."""

from __future__ import annotations

import pytest
from kafscale.storage.brokers import brokers_on, replicas_of
from kafscale.storage.membership.members import Instance, InstanceState, Listener

STARTING, READY, DRAINING = InstanceState.STARTING, InstanceState.READY, InstanceState.DRAINING


def front_door(node_id: int, state: InstanceState, host: str = "", *, unannounced: bool = False) -> Instance:
    where = Listener(name="PLAINTEXT", host=host or f"door-{node_id}", port=9092)
    return Instance(
        role="frontdoor",
        node_id=node_id,
        boot_id="b",
        state=state,
        listeners=(where,),
        unannounced=unannounced,
    )


def named(*front_doors: Instance) -> list[int]:
    return [broker.node_id for broker in brokers_on("PLAINTEXT", front_doors)]


@pytest.mark.parametrize("state", [STARTING, DRAINING])
def test_a_front_door_is_named_while_it_takes_clients(state: InstanceState) -> None:
    assert named(front_door(1, state), front_door(3, READY), front_door(2, READY)) == [2, 3]


def test_while_none_takes_clients_all_are_named() -> None:
    assert named(front_door(2, STARTING), front_door(1, DRAINING)) == [1, 2]


def test_one_that_is_not_announced_is_not_named_while_another_takes_clients() -> None:
    new = front_door(1, READY, unannounced=True)
    assert named(new, front_door(2, READY)) == [2]
    assert named(new, front_door(2, DRAINING)) == [1]
    assert named(new, front_door(2, READY, unannounced=True)) == [1, 2]


def test_behind_one_address_the_broker_is_the_lowest_that_takes_clients() -> None:
    assert named(front_door(1, DRAINING, "lb"), front_door(2, READY, "lb"), front_door(3, READY, "lb")) == [2]


@pytest.mark.parametrize(
    ("ids", "leader", "count", "replicas"),
    [
        ((4, 5, 6, 7), 6, 1, [6]),
        ((4, 5, 6, 7), 6, 3, [6, 7, 4]),
        ((4, 5), 5, 3, [5, 4, 1]),
        ((1,), 1, 3, [1, 2, 3]),
        ((2,), 2, 2, [2, 1]),
    ],
)
def test_a_partition_has_as_many_replicas_as_its_topic_wants_and_the_leader_is_the_first(
    ids: tuple[int, ...], leader: int, count: int, replicas: list[int]
) -> None:
    """Ids that no broker has stand for the brokers that are not there."""
    brokers = brokers_on("PLAINTEXT", [front_door(node_id, READY) for node_id in ids])
    assert replicas_of(leader, count, brokers) == replicas
