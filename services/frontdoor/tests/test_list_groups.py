"""ListGroups: every coordinator is asked, and a tool that asks every broker sees each group once."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from door_fakes import Sent
from door_harness import Cluster, settled, until
from group_requests import ONE, answered, ask, coordinators, sent_to
from kafscale.frontdoor.api import Backend
from kafscale.storage.brokers import brokers_on, coordinator_of
from kafscale.storage.membership.members import Instance, InstanceState, Listener
from kafscale.wire.schema import list_groups

GROUPS = [f"group-{number}" for number in range(40)]
UNAVAILABLE = 15


def front_door(node_id: int, host: str, *, inside: str = "") -> Instance:
    listeners = [Listener(name="PLAINTEXT", host=host, port=9092)]
    if inside:
        listeners.append(Listener(name="INSIDE", host=inside, port=9093))
    return Instance(
        role="frontdoor",
        node_id=node_id,
        boot_id="a",
        state=InstanceState.READY,
        listeners=tuple(listeners),
    )


def tell(
    sent: Sent, groups: Sequence[str], *, code: int = 0, state: str = "Stable", throttle_ms: int = 0
) -> None:
    listed = [
        list_groups.ListGroupsResponseListedGroup(group_id=group, group_state=state) for group in groups
    ]
    response = list_groups.ListGroupsResponse(error_code=code, groups=listed, throttle_time_ms=throttle_ms)
    sent.reply(*list_groups.encode_response(response, sent.meta.api_version))


async def listed(
    cluster: Cluster, *shares: Sequence[str], version: int = 5, listener: str = "PLAINTEXT"
) -> list[str]:
    """What the front door says when the coordinators say this."""
    client = cluster.client()
    client.connection.caller.listener = listener
    ask(client, 16, version, list_groups.ListGroupsRequest())
    for node_id, share in enumerate(shares, start=1):
        tell(sent_to(cluster, node_id)[-1], share)
    await settled()
    response = answered(client)
    assert response.error_code == 0
    return [group.group_id for group in response.groups]


@pytest.mark.parametrize("version", range(6))
async def test_one_front_door_lists_the_groups_of_every_coordinator(cluster: Cluster, version: int) -> None:
    coordinators(cluster)
    assert await listed(cluster, GROUPS[:5], GROUPS[5:9], version=version) == GROUPS[:9]


async def test_the_filters_of_the_request_reach_every_coordinator(cluster: Cluster) -> None:
    coordinators(cluster)
    request = list_groups.ListGroupsRequest(states_filter=["Empty"], types_filter=["consumer"])
    body = ask(cluster.client(), 16, 5, request)
    assert [sent.body for node in (1, 2) for sent in sent_to(cluster, node)] == [body, body]


async def test_every_broker_lists_its_own_groups_and_together_they_list_each_once() -> None:
    doors = [front_door(7, "seven"), front_door(8, "eight"), front_door(9, "nine")]
    seen: list[str] = []
    for node_id in (7, 8, 9):
        async with Cluster.running(node_id=node_id) as cluster:
            coordinators(cluster)
            cluster.front_doors.set(*doors)
            own = await listed(cluster, GROUPS[:20], GROUPS[20:])
        brokers = brokers_on("PLAINTEXT", doors)
        assert own == [group for group in GROUPS if coordinator_of(group, brokers).node_id == node_id]
        seen += own
    assert sorted(seen) == sorted(GROUPS)


@pytest.mark.parametrize("lowest", [3, 7])
async def test_behind_one_address_each_front_door_lists_every_group(cluster: Cluster, lowest: int) -> None:
    """Metadata names one broker there, for whichever of them is reached."""
    coordinators(cluster)
    cluster.front_doors.set(*(front_door(node_id, "balancer") for node_id in (lowest, 7, 9)))
    assert await listed(cluster, GROUPS[:20], GROUPS[20:]) == GROUPS


async def test_what_is_listed_follows_the_listener_of_the_question(cluster: Cluster) -> None:
    """Outside there is one address, inside each front door has its own."""
    coordinators(cluster)
    doors = [front_door(7, "balancer", inside="seven"), front_door(8, "balancer", inside="eight")]
    cluster.front_doors.set(*doors)
    assert await listed(cluster, GROUPS, []) == GROUPS
    brokers = brokers_on("INSIDE", doors)
    own = [group for group in GROUPS if coordinator_of(group, brokers).node_id == 7]
    assert await listed(cluster, GROUPS, [], listener="INSIDE") == own
    assert 0 < len(own) < len(GROUPS)


async def test_of_a_group_that_moves_the_new_owners_word_counts(cluster: Cluster) -> None:
    coordinators(cluster, g1=1)
    client = cluster.client()
    ask(client, 16, 5, list_groups.ListGroupsRequest())
    tell(sent_to(cluster, 1)[0], [ONE], state="Stable", throttle_ms=4)
    tell(sent_to(cluster, 2)[0], [ONE], state="Empty", throttle_ms=9)
    await settled()
    response = answered(client)
    assert [(group.group_id, group.group_state) for group in response.groups] == [(ONE, "Stable")]
    assert response.throttle_time_ms == 9


async def test_a_coordinator_that_leaves_is_asked_while_it_has_a_slot(cluster: Cluster) -> None:
    coordinators(cluster, g1=1)
    one, two = cluster.live[Backend.COORDINATOR].instances()
    leaving = Instance(
        role=one.role,
        node_id=1,
        boot_id="a",
        address=one.address,
        state=InstanceState.DRAINING,
    )
    cluster.live[Backend.COORDINATOR].set(leaving, two)
    assert await listed(cluster, [ONE], GROUPS[:2]) == [ONE, *GROUPS[:2]]


async def refusal(cluster: Cluster, version: int = 5) -> list_groups.ListGroupsResponse:
    client = cluster.client()
    ask(client, 16, version, list_groups.ListGroupsRequest())
    await settled()
    response = answered(client)
    assert isinstance(response, list_groups.ListGroupsResponse)
    return response


@pytest.mark.parametrize("version", range(6))
async def test_without_coordinators_there_is_no_list(cluster: Cluster, version: int) -> None:
    response = await refusal(cluster, version)
    assert (response.error_code, response.groups) == (UNAVAILABLE, [])


async def test_while_a_slot_is_without_coordinator_there_is_no_list(cluster: Cluster) -> None:
    coordinators(cluster, g1=3)
    assert (await refusal(cluster)).error_code == UNAVAILABLE


@pytest.mark.parametrize(
    ("failure", "code"), [("lost", 15), ("unsent", 15), ("nonsense", 15), ("loading", 14)]
)
async def test_a_list_that_lacks_somebodys_groups_is_none(cluster: Cluster, failure: str, code: int) -> None:
    coordinators(cluster)
    client = cluster.client()
    ask(client, 16, 5, list_groups.ListGroupsRequest())
    tell(sent_to(cluster, 1)[0], GROUPS)
    (two,) = sent_to(cluster, 2)
    if failure == "nonsense":
        two.reply(b"\xff")
    elif failure == "loading":
        tell(two, [], code=14)
    else:
        two.lose(sent=failure == "lost")
    await settled()
    response = answered(client)
    assert (response.error_code, response.groups) == (code, [])
    assert (len(sent_to(cluster, 1)), len(sent_to(cluster, 2))) == (1, 1)


async def test_a_front_door_that_is_not_registered_lists_nothing(cluster: Cluster) -> None:
    coordinators(cluster)
    cluster.front_doors.set(front_door(8, "eight"))
    client = cluster.client()
    ask(client, 16, 5, list_groups.ListGroupsRequest())
    for node_id in (1, 2):
        tell(sent_to(cluster, node_id)[0], GROUPS)
    await settled()
    assert answered(client).error_code == UNAVAILABLE


async def test_a_coordinator_that_is_silent_until_the_deadline_is_withdrawn() -> None:
    async with Cluster.running(frontdoor_request_timeout_ms=1_000) as cluster:
        coordinators(cluster)
        client = cluster.client()
        ask(client, 16, 5, list_groups.ListGroupsRequest())
        tell(sent_to(cluster, 1)[0], GROUPS)
        await until(lambda: bool(client.answers))
        assert answered(client).error_code == UNAVAILABLE
        assert sent_to(cluster, 2)[0].cancelled


async def test_who_drains_speaks_for_no_broker_any_more(cluster: Cluster) -> None:
    coordinators(cluster)
    leaving = replace(front_door(7, "seven"), state=InstanceState.DRAINING)
    cluster.front_doors.set(leaving, front_door(8, "eight"))
    client = cluster.client()
    ask(client, 16, 5, list_groups.ListGroupsRequest())
    for node_id in (1, 2):
        tell(sent_to(cluster, node_id)[-1], [])
    await settled()
    assert answered(client).error_code == UNAVAILABLE
