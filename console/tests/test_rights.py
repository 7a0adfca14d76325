"""A right that is not known is not given."""

from __future__ import annotations

from kafscale.access.acl import Operation, ResourceType
from kafscale.console.rights import CLUSTER_NAME, KEPT_S, KnownRights, on_cluster, on_topic

ORDERS = (ResourceType.TOPIC, "orders")
SECRET = (ResourceType.TOPIC, "secret")


def test_only_what_the_front_door_said_is_allowed_and_only_for_a_while() -> None:
    rights = KnownRights()
    assert not rights.allows(ORDERS, Operation.READ, 0)
    rights.learn({ORDERS: frozenset({Operation.READ}), SECRET: frozenset()}, 0)
    assert rights.allows(ORDERS, Operation.READ, KEPT_S - 1)
    assert not rights.allows(ORDERS, Operation.WRITE, 1)
    assert not rights.allows(SECRET, Operation.READ, 1)
    assert not rights.allows((ResourceType.GROUP, "orders"), Operation.READ, 1)
    assert not rights.allows(ORDERS, Operation.READ, KEPT_S)
    assert rights.unknown([ORDERS, SECRET, ORDERS], KEPT_S) == [ORDERS, SECRET]


def test_what_is_learned_later_counts() -> None:
    rights = KnownRights()
    rights.learn({ORDERS: frozenset({Operation.READ})}, 0)
    rights.learn({ORDERS: frozenset()}, 1)
    assert not rights.allows(ORDERS, Operation.READ, 1)
    rights.learn({ORDERS: frozenset({Operation.READ})}, 2)
    rights.forget()
    assert not rights.allows(ORDERS, Operation.READ, 2)


def test_needs_name_the_resource_of_the_path() -> None:
    assert on_topic(Operation.READ).resource({"topic": "orders"}) == ORDERS
    assert on_cluster(Operation.DESCRIBE).resource({}) == (ResourceType.CLUSTER, CLUSTER_NAME)
