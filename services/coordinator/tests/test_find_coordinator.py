"""FindCoordinator names one front door per key, the same for every client."""

from __future__ import annotations

import pytest
from kafscale.coordinator.handlers.find_coordinator import find
from kafscale.storage.membership.members import Instance, InstanceState, Listener
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.find_coordinator import FindCoordinatorRequest

FRONT_DOORS = [
    Instance(
        role="frontdoor",
        node_id=node_id,
        boot_id="b",
        state=InstanceState.READY,
        listeners=(
            Listener(name="PLAINTEXT", host="out", port=9000 + node_id),
            Listener(name="INTERNAL", host="in", port=9100 + node_id),
        ),
    )
    for node_id in (1, 2, 3)
]


@pytest.mark.parametrize("version", range(7))
def test_every_version_names_the_same_front_door_for_a_group(version: int) -> None:
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
    answer = find(request, version, "PLAINTEXT", FRONT_DOORS)
    one = answer.coordinators[0] if version >= 4 else answer
    expected = find(request, 0, "PLAINTEXT", list(reversed(FRONT_DOORS)))
    assert (one.error_code, one.node_id, one.host, one.port) == (
        0,
        expected.node_id,
        "out",
        9000 + expected.node_id,
    )


def test_groups_are_spread_over_the_front_doors() -> None:
    request = FindCoordinatorRequest(coordinator_keys=[f"group-{n}" for n in range(100)])
    nodes = [one.node_id for one in find(request, 4, "PLAINTEXT", FRONT_DOORS).coordinators]
    assert {nodes.count(node_id) > 15 for node_id in (1, 2, 3)} == {True}


def test_a_key_is_answered_once_however_often_it_is_named() -> None:
    answer = find(FindCoordinatorRequest(coordinator_keys=["a", "b", "a", "a"]), 4, "PLAINTEXT", FRONT_DOORS)
    assert [one.key for one in answer.coordinators] == ["a", "b"]


def test_the_address_is_that_of_the_listener_that_was_asked() -> None:
    answer = find(FindCoordinatorRequest(key="g"), 1, "INTERNAL", FRONT_DOORS)
    assert (answer.host, answer.port) == ("in", 9100 + answer.node_id)


def test_without_a_front_door_the_coordinator_is_not_available() -> None:
    answer = find(FindCoordinatorRequest(key="g"), 1, "PLAINTEXT", [])
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_unknown_key_type_is_an_invalid_request() -> None:
    answer = find(FindCoordinatorRequest(coordinator_keys=["g"], key_type=9), 4, "PLAINTEXT", FRONT_DOORS)
    assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST
