"""Calls about several groups: cut by coordinator, joined in the order of the request."""

from collections.abc import Sequence
from typing import Any

import pytest
from door_fakes import Sent
from door_harness import Cluster, settled, until
from group_requests import ONE, THREE, TWO, answered, ask, coordinators, sent_to
from kafscale.frontdoor.apis import SERVED
from kafscale.wire.schema import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    module_of,
    offset_fetch,
)

KEYS = (9, 15, 42, 69)
BATCHED = [(9, v) for v in (8, 9, 10)] + [
    (key, version) for key in KEYS[1:] for version in range(SERVED[key].versions[1] + 1)
]
UNAVAILABLE, NOT_COORDINATOR = 15, 16


def request_of(key: int, groups: Sequence[str]) -> Any:
    match key:
        case 9:
            entries = [offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
            return offset_fetch.OffsetFetchRequest(groups=entries, require_stable=True)
        case 15:
            return describe_groups.DescribeGroupsRequest(
                groups=list(groups), include_authorized_operations=True
            )
        case 42:
            return delete_groups.DeleteGroupsRequest(groups_names=list(groups))
        case _:
            return consumer_group_describe.ConsumerGroupDescribeRequest(
                group_ids=list(groups), include_authorized_operations=True
            )


def groups_in(key: int, request: Any) -> list[str]:
    match key:
        case 9:
            return [entry.group_id for entry in request.groups]
        case 15:
            return list(request.groups)
        case 42:
            return list(request.groups_names)
        case _:
            return list(request.group_ids)


def asked(sent: Sent) -> list[str]:
    key = sent.meta.api_key
    return groups_in(key, module_of(key).decode_request(sent.body, sent.meta.api_version))


def entries_of(key: int, response: Any) -> list[tuple[str, int]]:
    entries = response.results if key == 42 else response.groups
    return [(entry.group_id, entry.error_code) for entry in entries]


def tell(sent: Sent, *codes: int, groups: Sequence[str] | None = None, throttle_ms: int = 0) -> None:
    """Answers with a code for each group that was asked for."""
    key, version = sent.meta.api_key, sent.meta.api_version
    names = asked(sent) if groups is None else groups
    entry, response = {
        9: (offset_fetch.OffsetFetchResponseGroup, offset_fetch.OffsetFetchResponse),
        15: (describe_groups.DescribeGroupsResponseDescribedGroup, describe_groups.DescribeGroupsResponse),
        42: (delete_groups.DeleteGroupsResponseGroupResult, delete_groups.DeleteGroupsResponse),
        69: (
            consumer_group_describe.ConsumerGroupDescribeResponseDescribed,
            consumer_group_describe.ConsumerGroupDescribeResponse,
        ),
    }[key]
    found = [entry(group_id=name, error_code=code) for name, code in zip(names, codes, strict=True)]
    message = response(throttle_time_ms=throttle_ms, **{"results" if key == 42 else "groups": found})
    sent.reply(*module_of(key).encode_response(message, version))


@pytest.mark.parametrize(("key", "version"), BATCHED)
async def test_each_coordinator_is_asked_for_its_groups_and_the_answer_is_in_the_requests_order(
    cluster: Cluster, key: int, version: int
) -> None:
    coordinators(cluster, g1=1, g2=2, g3=1)
    client = cluster.client()
    ask(client, key, version, request_of(key, [ONE, TWO, THREE]))
    (one,), (two,) = sent_to(cluster, 1), sent_to(cluster, 2)
    assert (asked(one), asked(two)) == ([ONE, THREE], [TWO])
    tell(two, 7, throttle_ms=5)
    await settled()
    assert client.answers == []
    tell(one, 8, 9, throttle_ms=3)
    await settled()
    response = answered(client)
    assert entries_of(key, response) == [(ONE, 8), (TWO, 7), (THREE, 9)]
    assert response.throttle_time_ms == (0 if (key, version) == (15, 0) else 5)


@pytest.mark.parametrize("key", KEYS)
async def test_what_else_a_request_says_is_in_every_share(cluster: Cluster, key: int) -> None:
    coordinators(cluster, g1=1, g2=2)
    version = SERVED[key].versions[1]
    ask(cluster.client(), key, version, request_of(key, [ONE, TWO]))
    for sent in (*sent_to(cluster, 1), *sent_to(cluster, 2)):
        share = module_of(key).decode_request(sent.body, version)
        assert share == request_of(key, asked(sent))


@pytest.mark.parametrize("key", KEYS)
async def test_groups_of_one_coordinator_pass_unread(cluster: Cluster, key: int) -> None:
    coordinators(cluster, g1=2, g2=2)
    client = cluster.client()
    version = SERVED[key].versions[1]
    body = ask(client, key, version, request_of(key, [ONE, TWO]))
    (sent,) = sent_to(cluster, 2)
    assert sent.body == body
    sent.reply(b"as it is")
    await settled()
    assert client.answers[0].body == b"as it is"


@pytest.mark.parametrize("key", KEYS)
async def test_a_group_without_coordinator_has_the_error_and_the_others_their_answer(
    cluster: Cluster, key: int
) -> None:
    coordinators(cluster, g1=1, g3=2)
    client = cluster.client()
    ask(client, key, SERVED[key].versions[1], request_of(key, [TWO, ONE, THREE]))
    tell(sent_to(cluster, 1)[0], 0)
    tell(sent_to(cluster, 2)[0], 0)
    await settled()
    unsent = NOT_COORDINATOR if key == 9 else UNAVAILABLE
    assert entries_of(key, answered(client)) == [(TWO, unsent), (ONE, 0), (THREE, 0)]


@pytest.mark.parametrize(("key", "version"), BATCHED)
async def test_without_any_coordinator_every_group_has_the_error(
    cluster: Cluster, key: int, version: int
) -> None:
    client = cluster.client()
    ask(client, key, version, request_of(key, [ONE, TWO]))
    await settled()
    unsent = NOT_COORDINATOR if key == 9 else UNAVAILABLE
    assert entries_of(key, answered(client)) == [(ONE, unsent), (TWO, unsent)]


@pytest.mark.parametrize("key", KEYS)
async def test_a_lost_share_costs_its_own_groups_alone_and_is_not_sent_again(
    cluster: Cluster, key: int
) -> None:
    coordinators(cluster, g1=1, g2=2)
    client = cluster.client()
    ask(client, key, SERVED[key].versions[1], request_of(key, [ONE, TWO]))
    sent_to(cluster, 1)[0].lose(sent=True)
    cluster.slots.set(ONE, "2/a")
    tell(sent_to(cluster, 2)[0], 0)
    await settled()
    assert entries_of(key, answered(client)) == [(ONE, NOT_COORDINATOR), (TWO, 0)]
    assert (len(sent_to(cluster, 1)), len(sent_to(cluster, 2))) == (1, 1)


@pytest.mark.parametrize("key", KEYS)
async def test_a_share_that_was_not_sent_is_told_from_one_that_was_lost(cluster: Cluster, key: int) -> None:
    coordinators(cluster, g1=1, g2=2)
    client = cluster.client()
    ask(client, key, SERVED[key].versions[1], request_of(key, [ONE, TWO]))
    sent_to(cluster, 1)[0].lose(sent=False)
    sent_to(cluster, 2)[0].lose(sent=True)
    await settled()
    unsent = NOT_COORDINATOR if key == 9 else UNAVAILABLE
    assert entries_of(key, answered(client)) == [(ONE, unsent), (TWO, NOT_COORDINATOR)]


async def test_at_the_deadline_what_is_there_is_answered_and_the_rest_withdrawn() -> None:
    async with Cluster.running(frontdoor_request_timeout_ms=1_000) as cluster:
        coordinators(cluster, g1=1, g2=2)
        client = cluster.client()
        ask(client, 15, 6, request_of(15, [ONE, TWO]))
        tell(sent_to(cluster, 2)[0], 0)
        await until(lambda: bool(client.answers))
        assert entries_of(15, answered(client)) == [(ONE, NOT_COORDINATOR), (TWO, 0)]
        assert sent_to(cluster, 1)[0].cancelled


async def test_a_client_that_leaves_withdraws_every_share(cluster: Cluster) -> None:
    coordinators(cluster, g1=1, g2=2)
    client = cluster.client()
    ask(client, 42, 2, request_of(42, [ONE, TWO]))
    client.leave()
    assert [sent.cancelled for node in (1, 2) for sent in sent_to(cluster, node)] == [True, True]


@pytest.mark.parametrize("key", KEYS)
async def test_a_group_named_twice_is_answered_once(cluster: Cluster, key: int) -> None:
    coordinators(cluster, g1=1, g2=2)
    client = cluster.client()
    ask(client, key, SERVED[key].versions[1], request_of(key, [ONE, TWO, ONE, TWO]))
    tell(sent_to(cluster, 1)[0], 3, groups=[ONE])
    sent_to(cluster, 2)[0].reply(b"\xff")
    await settled()
    assert entries_of(key, answered(client)) == [(ONE, 3), (TWO, NOT_COORDINATOR)]


@pytest.mark.parametrize("groups", [[], ["another"]])
async def test_a_group_that_its_coordinator_left_out_is_not_served(
    cluster: Cluster, groups: list[str]
) -> None:
    coordinators(cluster, g1=1, g2=2)
    client = cluster.client()
    ask(client, 15, 6, request_of(15, [ONE, TWO]))
    tell(sent_to(cluster, 1)[0], *[0] * len(groups), groups=groups)
    tell(sent_to(cluster, 2)[0], 0)
    await settled()
    assert entries_of(15, answered(client)) == [(ONE, NOT_COORDINATOR), (TWO, 0)]


async def test_nonsense_from_one_coordinator_costs_its_own_groups_alone(cluster: Cluster) -> None:
    coordinators(cluster, g1=1, g2=2)
    client = cluster.client()
    ask(client, 15, 6, request_of(15, [ONE, TWO]))
    sent_to(cluster, 1)[0].reply(b"\xff")
    tell(sent_to(cluster, 2)[0], 0)
    await settled()
    assert entries_of(15, answered(client)) == [(ONE, NOT_COORDINATOR), (TWO, 0)]


@pytest.mark.parametrize("key", KEYS)
async def test_no_groups_are_no_entries(cluster: Cluster, key: int) -> None:
    coordinators(cluster, g1=1)
    client = cluster.client()
    ask(client, key, SERVED[key].versions[1], request_of(key, []))
    await settled()
    assert entries_of(key, answered(client)) == []


@pytest.mark.parametrize("key", KEYS)
async def test_a_batch_that_cannot_be_read_ends_the_connection(cluster: Cluster, key: int) -> None:
    client = cluster.client()
    client.ask(key, SERVED[key].versions[1], b"\xff\xff")
    assert client.hung_up
