"""Which front doors are named to clients."""

from __future__ import annotations

import pytest
from kafscale.storage.brokers import brokers_on
from kafscale.storage.membership.members import Instance, InstanceState, Listener

STARTING, READY, DRAINING = InstanceState.STARTING, InstanceState.READY, InstanceState.DRAINING


def front_door(node_id: int, state: InstanceState, host: str = "") -> Instance:
    where = Listener(name="PLAINTEXT", host=host or f"door-{node_id}", port=9092)
    return Instance(role="frontdoor", node_id=node_id, boot_id="b", state=state, listeners=(where,))


def named(*front_doors: Instance) -> list[int]:
    return [broker.node_id for broker in brokers_on("PLAINTEXT", front_doors)]


@pytest.mark.parametrize("state", [STARTING, DRAINING])
def test_a_front_door_is_named_while_it_takes_clients(state: InstanceState) -> None:
    assert named(front_door(1, state), front_door(3, READY), front_door(2, READY)) == [2, 3]


def test_while_none_takes_clients_all_are_named() -> None:
    assert named(front_door(2, STARTING), front_door(1, DRAINING)) == [1, 2]


def test_behind_one_address_the_broker_is_the_lowest_that_takes_clients() -> None:
    assert named(front_door(1, DRAINING, "lb"), front_door(2, READY, "lb"), front_door(3, READY, "lb")) == [2]
