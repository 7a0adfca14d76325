"""What the front door asks the authorizer: the needs of a whole request, and those of groups, keys and topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from door_fakes import Sent
from door_harness import Cluster, FakeClient, settled
from group_requests import (
    ONE,
    ONE_GROUP,
    TWO,
    abort_of,
    about,
    all_sent,
    answered,
    ask,
    code_of,
    coordinators,
    joined,
    of_transaction,
    running,
    sent_to,
)
from kafscale.access.acl import ResourceType
from kafscale.access.rules import Need, NotEnforced, Side, When, needs_of
from kafscale.frontdoor.api import Own
from kafscale.frontdoor.apis import SERVED
from kafscale.frontdoor.authorization import asked_needs, check_apis, in_version, whole_needs
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.testkit.acls import ALICE, VARIANTS, acl, allowing, authorizer, right_of, variant
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode, error_codes
from kafscale.wire.schema import (
    alter_client_quotas,
    alter_user_scram_credentials,
    consumer_group_describe,
    create_acls,
    delete_acls,
    delete_groups,
    describe_groups,
    describe_producers,
    elect_leaders,
    find_coordinator,
    init_producer_id,
    list_groups,
    list_partition_reassignments,
    module_of,
    offset_fetch,
    produce,
)

CONTROL = "control"
SEVERAL = (9, 15, 42, 69)


# ---- whole requests


def request_about(key: int, version: int) -> Any:
    """A request with something in it, so that its refusal has a place for the error."""
    match key:
        case 30:
            return create_acls.CreateAclsRequest(creations=[create_acls.CreateAclsRequestAclCreation()])
        case 31:
            return delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsRequestFilter()])
        case 43:
            topic = elect_leaders.ElectLeadersRequestTopicPartitions(topic="t", partitions=[1])
            return elect_leaders.ElectLeadersRequest(topic_partitions=[topic])
        case 49:
            entry = alter_client_quotas.AlterClientQuotasRequestEntry()
            return alter_client_quotas.AlterClientQuotasRequest(entries=[entry])
        case 51:
            deletion = alter_user_scram_credentials.AlterUserScramCredentialsRequestCredentialDeletion(
                name="alice", mechanism=1
            )
            return alter_user_scram_credentials.AlterUserScramCredentialsRequest(deletions=[deletion])
        case 22:
            return init_producer_id.InitProducerIdRequest(transactional_id=None)
        case 27:
            return abort_of(7, "t", 1)
        case 24 | 25 | 26 | 28:
            return of_transaction(key, version, "tx", ONE)
        case _ if (key, version) in ONE_GROUP:
            return about(key, ONE, version)
        case _:
            names = [name for name in vars(module_of(key)) if name.endswith("Request")]
            return getattr(module_of(key), min(names, key=len))()


def name_in_request(need: Need) -> str:
    return ONE if need.any_of[-1].resource_type is ResourceType.GROUP else ""


WHOLE = [
    (key, version)
    for key, api in SERVED.items()
    if whole_needs(api)
    for version in range(api.versions[0], api.versions[1] + 1)
]


@pytest.mark.parametrize(("key", "version"), WHOLE)
async def test_a_denied_request_has_its_error_and_no_service_gets_it(key: int, version: int) -> None:
    async with running(authorizer()) as cluster:
        client = cluster.client(ALICE)
        ask(client, key, version, request_about(key, version))
        await settled()
        assert all_sent(cluster) == []
        response = answered(client)
        asked = [need for need in whole_needs(SERVED[key]) if in_version(need, version)]
        code = next(int(need.code) for need in asked if need.when is not When.TRANSACTIONAL_ID)
        if key == ApiKey.DESCRIBE_LOG_DIRS and version < 3:
            assert response.results == []  # clients read this as the error
        else:
            assert set(error_codes(response)) == {code}


async def test_a_denied_list_of_reassignments_names_the_partitions_of_the_request() -> None:
    schema = list_partition_reassignments
    asked = schema.ListPartitionReassignmentsRequestTopics(name="t", partition_indexes=[2, 5])
    async with running(authorizer()) as cluster:
        client = cluster.client(ALICE)
        ask(client, schema.API_KEY, 0, schema.ListPartitionReassignmentsRequest(topics=[asked]))
        await settled()
        answer = answered(client)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    named = {topic.name: [each.partition_index for each in topic.partitions] for topic in answer.topics}
    assert named == {"t": [2, 5]}


@pytest.mark.parametrize("how", VARIANTS)
@pytest.mark.parametrize("key", [8, 11, 30, 35, 47, 68, 74])
async def test_a_request_passes_with_the_right_and_in_no_other_case(key: int, how: str) -> None:
    (need,) = whole_needs(SERVED[key])
    version = SERVED[key].versions[1]
    async with running(variant(how, right_of(need, name_in_request(need)))) as cluster:
        client = cluster.client(ALICE)
        ask(client, key, version, request_about(key, version))
        await settled()
        assert bool(all_sent(cluster)) is VARIANTS[how]
        if not VARIANTS[how]:
            assert int(need.code) in error_codes(answered(client))


async def test_without_an_authorizer_nothing_is_asked(cluster: Cluster) -> None:
    coordinators(cluster, g1=1)
    client = cluster.client("User:nobody")
    ask(client, 12, 4, about(12, ONE, 4))
    assert len(sent_to(cluster, 1)) == 1
    assert client.connection.caller.rights is None


async def test_an_anonymous_client_is_a_principal_too() -> None:
    async with running(authorizer(acl(f"GROUP:LITERAL:{ONE} READ", principal="User:ANONYMOUS"))) as cluster:
        ask(cluster.client(), 12, 4, about(12, ONE, 4))
        assert len(sent_to(cluster, 1)) == 1


async def test_rights_belong_to_the_principal_that_the_connection_has_now() -> None:
    async with running(allowing(f"GROUP {ONE} READ")) as cluster:
        client = cluster.client(ALICE)
        ask(client, 12, 4, about(12, ONE, 4))
        first = client.connection.caller.rights
        ask(client, 12, 4, about(12, ONE, 4))
        assert client.connection.caller.rights is first is not None
        client.connection.caller.principal = "User:bob"
        ask(client, 12, 4, about(12, ONE, 4))
        await settled()
        assert len(sent_to(cluster, 1)) == 2


async def test_an_acl_that_comes_is_seen_by_the_next_request() -> None:
    decides = authorizer()
    async with running(decides) as cluster:
        client = cluster.client(ALICE)
        ask(client, 12, 4, about(12, ONE, 4))
        decides.acls.add(acl(f"GROUP:LITERAL:{ONE} READ"))
        ask(client, 12, 4, about(12, ONE, 4))
        await settled()
        assert len(sent_to(cluster, 1)) == 1


async def test_a_request_whose_group_cannot_be_read_is_closed() -> None:
    async with running(allowing(f"GROUP {ONE} READ")) as cluster:
        client = cluster.client(ALICE)
        client.ask(12, 4, b"\x09abc")
        assert client.hung_up
        assert all_sent(cluster) == []


# ---- InitProducerId


PRODUCER_IDS = [
    (None, "CLUSTER kafka-cluster IDEMPOTENT_WRITE", 0),
    (None, "TOPIC anything WRITE", 0),
    (None, "TOPIC anything READ", 31),
    (None, "TRANSACTIONAL_ID tx WRITE", 31),
    ("tx", "TRANSACTIONAL_ID tx WRITE", 0),
    ("tx", "TRANSACTIONAL_ID other WRITE", 53),
    ("tx", "TOPIC anything WRITE", 53),
    ("", "CLUSTER kafka-cluster IDEMPOTENT_WRITE", 53),
]


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize(("transaction", "right", "code"), PRODUCER_IDS)
async def test_a_producer_id_needs_what_its_producer_writes(
    transaction: str | None, right: str, code: int, version: int
) -> None:
    async with running(allowing(right)) as cluster:
        cluster.slots.set("tx", "1/a")
        client = cluster.client(ALICE)
        ask(client, 22, version, init_producer_id.InitProducerIdRequest(transactional_id=transaction))
        await settled()
        assert bool(all_sent(cluster)) is (code == 0)
        if code:
            assert answered(client).error_code == code


# ---- several groups


def several(key: int, *groups: str) -> Any:
    match key:
        case 9:
            entries = [offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
            return offset_fetch.OffsetFetchRequest(groups=entries)
        case 15:
            return describe_groups.DescribeGroupsRequest(groups=list(groups))
        case 42:
            return delete_groups.DeleteGroupsRequest(groups_names=list(groups))
        case _:
            return consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=list(groups))


def answer_well(sent: Sent, *groups: str) -> None:
    key, version = sent.meta.api_key, sent.meta.api_version
    how = {
        9: (offset_fetch.OffsetFetchResponse, "groups", offset_fetch.OffsetFetchResponseGroup),
        15: (
            describe_groups.DescribeGroupsResponse,
            "groups",
            describe_groups.DescribeGroupsResponseDescribedGroup,
        ),
        42: (delete_groups.DeleteGroupsResponse, "results", delete_groups.DeleteGroupsResponseGroupResult),
        69: (
            consumer_group_describe.ConsumerGroupDescribeResponse,
            "groups",
            consumer_group_describe.ConsumerGroupDescribeResponseDescribed,
        ),
    }
    response, field, entry = how[key]
    message = response(**{field: [entry(group_id=group) for group in groups]})
    sent.reply(*module_of(key).encode_response(message, version))


def codes_by_group(key: int, response: Any) -> list[tuple[str, int]]:
    entries = response.results if key == 42 else response.groups
    return [(entry.group_id, entry.error_code) for entry in entries]


def need_of(key: int) -> Need:
    (need,) = needs_of(ApiKey(key), Side.FRONT_DOOR)
    return need


@pytest.mark.parametrize("slots", [(1, 1), (1, 2)])
@pytest.mark.parametrize("key", SEVERAL)
async def test_of_several_groups_the_denied_ones_have_the_error_and_are_asked_of_nobody(
    key: int, slots: tuple[int, int]
) -> None:
    need, version = need_of(key), SERVED[key].versions[1]
    async with running(allowing(right_of(need, TWO))) as cluster:
        coordinators(cluster, g1=slots[0], g2=slots[1])
        client = cluster.client(ALICE)
        ask(client, key, version, several(key, ONE, TWO))
        (sent,) = all_sent(cluster)
        assert sent.body == joined(module_of(key).encode_request(several(key, TWO), version))
        answer_well(sent, TWO)
        await settled()
        assert codes_by_group(key, answered(client)) == [(ONE, 30), (TWO, 0)]


@pytest.mark.parametrize("key", SEVERAL)
async def test_if_all_groups_are_denied_no_coordinator_is_needed(key: int) -> None:
    async with Cluster.running(authorizer()) as cluster:
        client = cluster.client(ALICE)
        version = SERVED[key].versions[1]
        ask(client, key, version, several(key, ONE, TWO))
        await settled()
        assert codes_by_group(key, answered(client)) == [(ONE, 30), (TWO, 30)]


@pytest.mark.parametrize("key", SEVERAL)
async def test_a_denied_group_keeps_its_error_while_the_others_have_no_coordinator(key: int) -> None:
    async with Cluster.running(allowing(right_of(need_of(key), TWO))) as cluster:
        client = cluster.client(ALICE)
        ask(client, key, SERVED[key].versions[1], several(key, ONE, TWO))
        await settled()
        (one, two) = codes_by_group(key, answered(client))
        assert one == (ONE, 30)
        assert two[1] in (15, 16)


@pytest.mark.parametrize("how", VARIANTS)
@pytest.mark.parametrize("key", SEVERAL)
async def test_a_group_among_several_passes_with_the_right_and_in_no_other_case(key: int, how: str) -> None:
    async with running(variant(how, right_of(need_of(key), ONE))) as cluster:
        ask(cluster.client(ALICE), key, SERVED[key].versions[1], several(key, ONE))
        await settled()
        assert bool(all_sent(cluster)) is VARIANTS[how]


@pytest.mark.parametrize("version", range(8))
async def test_offsets_of_one_group_need_the_same(version: int) -> None:
    for right, code in ((f"GROUP {ONE} DESCRIBE", 0), (f"GROUP {TWO} DESCRIBE", 30)):
        async with running(allowing(right)) as cluster:
            client = cluster.client(ALICE)
            ask(client, 9, version, about(9, ONE, version))
            await settled()
            assert bool(all_sent(cluster)) is (code == 0)
            if code:
                assert code_of(9, version, answered(client)) == code


async def test_a_list_of_groups_lacks_those_that_may_not_be_described() -> None:
    for rights, expected in (
        ([f"GROUP {ONE} DESCRIBE"], {ONE}),
        ([f"GROUP {ONE} READ"], {ONE}),
        (["CLUSTER kafka-cluster DESCRIBE"], {ONE, TWO}),
        ([], set()),
    ):
        async with running(allowing(*rights)) as cluster:
            client = cluster.client(ALICE)
            ask(client, 16, 4, list_groups.ListGroupsRequest())
            for node_id in (1, 2):
                listed = list_groups.ListGroupsResponseListedGroup(group_id=f"g-{node_id}")
                response = list_groups.ListGroupsResponse(groups=[listed])
                sent_to(cluster, node_id)[0].reply(*list_groups.encode_response(response, 4))
            await settled()
            assert {group.group_id for group in answered(client).groups} == expected


# ---- FindCoordinator


def find(version: int, *keys: str, key_type: int = 0) -> find_coordinator.FindCoordinatorRequest:
    if version < 4:
        return find_coordinator.FindCoordinatorRequest(key=keys[0], key_type=key_type)
    return find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))


def found(response: Any, version: int) -> list[tuple[str, int]]:
    if version < 4:
        return [("", response.error_code)]
    return [(one.key, one.error_code) for one in response.coordinators]


KEYS = [(0, "GROUP", 30, 0), (1, "TRANSACTIONAL_ID", 53, 1)]


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize(("key_type", "resource", "code", "since"), KEYS)
async def test_a_coordinator_is_found_only_for_keys_that_may_be_described(
    key_type: int, resource: str, code: int, since: int, version: int
) -> None:
    if version < since:
        return
    async with running(allowing(f"{resource} mine DESCRIBE")) as cluster:
        client = cluster.client(ALICE)
        ask(client, 10, version, find(version, "mine", key_type=key_type))
        assert len(all_sent(cluster)) == 1
        ask(client, 10, version, find(version, "theirs", key_type=key_type))
        all_sent(cluster)[0].reply(b"")
        await settled()
        assert len(all_sent(cluster)) == 1
        assert [each[1] for each in found(answered(client, 1), version)] == [code]


async def test_of_several_keys_the_denied_ones_are_not_sent_and_keep_their_place() -> None:
    async with running(allowing("GROUP b DESCRIBE")) as cluster:
        client = cluster.client(ALICE)
        ask(client, 10, 6, find(6, "a", "b", "c"))
        (sent,) = all_sent(cluster)
        assert find_coordinator.decode_request(sent.body, 6).coordinator_keys == ["b"]
        one = find_coordinator.FindCoordinatorResponseCoordinator(key="b", node_id=3, host="h", port=1)
        answer = find_coordinator.FindCoordinatorResponse(coordinators=[one])
        sent.reply(*find_coordinator.encode_response(answer, 6))
        await settled()
        response = answered(client)
        assert found(response, 6) == [("a", 30), ("b", 0), ("c", 30)]
        assert response.coordinators[1] == one


async def test_denied_keys_keep_their_error_if_no_coordinator_answers_for_the_others() -> None:
    async with running(allowing("GROUP b DESCRIBE")) as cluster:
        client = cluster.client(ALICE)
        ask(client, 10, 6, find(6, "a", "b"))
        all_sent(cluster)[0].reply(status=ReplyStatus.EXPIRED)
        await settled()
        assert found(answered(client), 6) == [("a", 30), ("b", 15)]


async def test_an_answer_about_coordinators_that_cannot_be_read_closes_the_connection() -> None:
    async with running(allowing("GROUP b DESCRIBE")) as cluster:
        client = cluster.client(ALICE)
        ask(client, 10, 6, find(6, "a", "b"))
        all_sent(cluster)[0].reply(b"\xff")
        await settled()
        assert client.hung_up


async def test_a_key_type_that_no_rule_knows_is_the_coordinators_to_refuse() -> None:
    async with running(authorizer()) as cluster:
        ask(cluster.client(ALICE), 10, 6, find(6, "a", key_type=2))
        assert len(all_sent(cluster)) == 1


# ---- DescribeProducers


async def test_producers_of_a_denied_topic_are_not_looked_up() -> None:
    request = describe_producers.DescribeProducersRequest(
        topics=[
            describe_producers.DescribeProducersRequestTopic(name=name, partition_indexes=[0])
            for name in ("theirs", "absent", "mine")
        ]
    )
    async with running(allowing("TOPIC mine READ")) as cluster:
        for number, name in enumerate(("mine", "theirs"), 1):
            cluster.own(cluster.topics.add(name, number, 1), 0, 1)
        client = cluster.client(ALICE)
        ask(client, 61, 0, request)
        (sent,) = all_sent(cluster)
        assert [t.name for t in describe_producers.decode_request(sent.body, 0).topics] == ["mine"]
        assert cluster.topics.reads == 0, "a denied name is not looked up"
        sent.reply(
            *describe_producers.encode_response(
                describe_producers.DescribeProducersResponse(
                    topics=[
                        describe_producers.DescribeProducersResponseTopic(
                            name="mine",
                            partitions=[
                                describe_producers.DescribeProducersResponsePartition(partition_index=0)
                            ],
                        )
                    ]
                ),
                0,
            )
        )
        await settled()
        theirs, absent, mine = answered(client).topics
        assert (theirs.partitions[0].error_code, mine.partitions[0].error_code) == (29, 0)
        assert theirs.partitions == absent.partitions


# ---- Produce


@pytest.mark.parametrize("version", [3, 9, 12, 13])
@pytest.mark.parametrize("how", VARIANTS)
async def test_a_topic_is_written_with_the_right_and_in_no_other_case(how: str, version: int) -> None:
    async with running(variant(how, "TOPIC orders WRITE")) as cluster:
        cluster.own(cluster.topics.add("orders", 1, 1), 0, 1)
        client = cluster.client(ALICE)
        client.produce(("orders", 0, b"records"), version=version)
        await settled()
        if VARIANTS[how]:
            (sent,) = all_sent(cluster)
            assert sent.meta.principal == ALICE
        else:
            assert all_sent(cluster) == []
            assert [row[2:] for row in client.produced()] == [(29, -1)]


@pytest.mark.parametrize("version", [9, 12])
async def test_partitions_of_denied_topics_are_answered_while_the_others_are_appended(version: int) -> None:
    async with running(allowing("TOPIC mine WRITE")) as cluster:
        for number, name in enumerate(("mine", "theirs"), 1):
            topic = cluster.topics.add(name, number, 2)
            for partition in range(2):
                cluster.own(topic, partition, 1)
        client = cluster.client(ALICE)
        client.produce(
            ("theirs", 0, b"a"), ("mine", 0, b"b"), ("theirs", 1, b"c"), ("absent", 0, b"d"), version=version
        )
        (sent,) = all_sent(cluster)
        assert sent.produced == [("mine", 0, b"b")]
        assert cluster.topics.reads == 0, "a denied name is not looked up"
        sent.append(offset=7)
        await settled()
        assert client.produced() == [
            ("theirs", 0, 29, -1),
            ("theirs", 1, 29, -1),
            ("mine", 0, 0, 7),
            ("absent", 0, 29, -1),
        ]


async def test_a_topic_by_id_is_asked_about_once_its_name_is_known() -> None:
    async with running(allowing("TOPIC mine WRITE")) as cluster:
        cluster.topics.add("theirs", 4, 1, hidden=True)
        client = cluster.client(ALICE)
        client.produce(("theirs", 0, b"a"), version=13, number=4)
        await settled()
        client.produce(("absent", 0, b"a"), version=13, number=5)
        await settled()
        assert all_sent(cluster) == []
        assert [client.produced(number)[0][2] for number in (0, 1)] == [29, 100]


async def test_with_acks_0_a_denied_topic_closes_the_connection_when_the_others_are_appended() -> None:
    async with running(allowing("TOPIC mine WRITE")) as cluster:
        for number, name in enumerate(("mine", "theirs"), 1):
            cluster.own(cluster.topics.add(name, number, 1), 0, 1)
        client = cluster.client(ALICE)
        client.produce(("theirs", 0, b"a"), ("mine", 0, b"b"), acks=0)
        (sent,) = all_sent(cluster)
        assert sent.produced == [("mine", 0, b"b")]
        assert not client.hung_up
        sent.reply(status=ReplyStatus.NO_REPLY)
        await settled()
        assert client.hung_up


@pytest.mark.parametrize("acks", [-1, 0])
async def test_a_transactional_id_that_may_not_be_written_fails_the_whole_request(acks: int) -> None:
    async with running(allowing("TOPIC mine WRITE", "TRANSACTIONAL_ID tx WRITE")) as cluster:
        cluster.own(cluster.topics.add("mine", 1, 1), 0, 1)
        client = cluster.client(ALICE)
        ask_in_transaction(client, "tx", acks)
        assert len(all_sent(cluster)) == 1
        all_sent(cluster)[0].append()
        ask_in_transaction(client, "other", acks)
        await settled()
        assert len(all_sent(cluster)) == 1
        if acks:
            assert [row[2] for row in client.produced(1)] == [53]
        else:
            assert client.hung_up


def ask_in_transaction(client: FakeClient, transaction: str, acks: int) -> None:
    entry = produce.ProduceRequestPartition(index=0, records=b"r")
    topic = produce.ProduceRequestTopic(name="mine", partition_data=[entry])
    message = produce.ProduceRequest(
        transactional_id=transaction, acks=acks, timeout_ms=5_000, topic_data=[topic]
    )
    ask(client, 0, 9, message)


# ---- what is served asks what the rules say


def test_every_need_of_the_front_door_is_asked() -> None:
    check_apis(SERVED)
    for api in SERVED.values():
        assert set(needs_of(api.key, Side.FRONT_DOOR)) <= set(asked_needs(api))


def unasked() -> Iterator[tuple[str, Any]]:
    """Each way in which an API asks, and the API without it."""
    produce, groups = SERVED[ApiKey.PRODUCE], SERVED[ApiKey.DESCRIBE_GROUPS]
    yield "its handler asks nothing", replace(produce, asks=())
    yield "its handler asks not all", replace(produce, asks=produce.asks[:1])
    yield "it is not split", replace(groups, dispatch=Own(lambda parts: lambda exchange: None))
    yield "it has no row", replace(produce, key=ApiKey.LEADER_AND_ISR)
    yield "a version with two-phase commit", replace(SERVED[ApiKey.INIT_PRODUCER_ID], versions=(0, 6))


@pytest.mark.parametrize(
    ("why", "api"), list(unasked()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_an_api_that_does_not_ask_what_its_row_says_ends_the_start(why: str, api: Any) -> None:
    with pytest.raises(NotEnforced):
        check_apis(MappingProxyType({int(api.key): api}))
