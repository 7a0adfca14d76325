"""Requests that a client sends without waiting for answers: the later one sees what the earlier one wrote, as on a
broker of Kafka, and waits for nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from door_fakes import Sent
from door_harness import Cluster, FakeClient, settled, until
from group_requests import abort_of
from kafscale.frontdoor.api import Api, Backend, Forward
from kafscale.frontdoor.apis import SERVED
from kafscale.frontdoor.assembly import ROLES
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import (
    add_partitions_to_txn,
    consumer_group_describe,
    delete_groups,
    delete_records,
    describe_groups,
    describe_producers,
    describe_transactions,
    list_offsets,
    module_of,
    offset_fetch,
)

K = ApiKey
TOPIC, GROUP = "t", "g"
DELETED: Final = delete_records.DeleteRecordsRequest(
    [delete_records.DeleteRecordsRequestTopic(TOPIC, [delete_records.DeleteRecordsRequestPartition(0, -1)])],
    30_000,
)
REQUESTS: dict[int, Any] = {
    K.DELETE_RECORDS: DELETED,
    K.DESCRIBE_PRODUCERS: describe_producers.DescribeProducersRequest(
        topics=[describe_producers.DescribeProducersRequestTopic(name=TOPIC, partition_indexes=[0])]
    ),
    K.WRITE_TXN_MARKERS: abort_of(7, TOPIC, 0),
    K.OFFSET_FETCH: offset_fetch.OffsetFetchRequest(
        group_id=GROUP, groups=[offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    ),
    K.DESCRIBE_GROUPS: describe_groups.DescribeGroupsRequest(groups=[GROUP]),
    K.DELETE_GROUPS: delete_groups.DeleteGroupsRequest(groups_names=[GROUP]),
    K.CONSUMER_GROUP_DESCRIBE: consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[GROUP]),
    K.DESCRIBE_TRANSACTIONS: describe_transactions.DescribeTransactionsRequest(transactional_ids=[GROUP]),
    K.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.AddPartitionsToTxnRequest(
        transactions=[add_partitions_to_txn.AddPartitionsToTxnRequestTransaction(transactional_id=GROUP)]
    ),
}
"""What has to name a topic or a group; any other API is asked with a request of defaults."""

CHANGES: Final = frozenset(
    (
        *(K.CREATE_TOPICS, K.DELETE_TOPICS, K.CREATE_PARTITIONS, K.DELETE_RECORDS),
        *(K.ALTER_CONFIGS, K.INCREMENTAL_ALTER_CONFIGS, K.ALTER_CLIENT_QUOTAS),
        *(K.CREATE_ACLS, K.DELETE_ACLS, K.ALTER_USER_SCRAM_CREDENTIALS),
        *(K.DELETE_GROUPS, K.OFFSET_DELETE),
    )
)
"""They wait for everything, and everything waits for them."""
READS_RECORDS: Final = frozenset(
    (K.FETCH, K.LIST_OFFSETS, K.OFFSET_FOR_LEADER_EPOCH, K.DESCRIBE_PRODUCERS, K.DESCRIBE_LOG_DIRS)
)
WRITES_GROUPS: Final = frozenset(
    (K.OFFSET_COMMIT, K.TXN_OFFSET_COMMIT, K.HEARTBEAT, K.LEAVE_GROUP, K.CONSUMER_GROUP_HEARTBEAT)
)
READS_GROUPS: Final = frozenset((K.OFFSET_FETCH, K.LIST_GROUPS, K.DESCRIBE_GROUPS, K.CONSUMER_GROUP_DESCRIBE))
TRAVELLING = [api for api in SERVED.values() if api.backend is not Backend.FRONTDOOR]


def waits(earlier: Api, later: Api) -> bool:
    """The law, written down a second time."""
    if earlier.large_answer or earlier.key in CHANGES or later.key in CHANGES:
        return True
    if earlier.key == later.key == K.FETCH:
        return True  # its turn
    writes_records = earlier.key == K.PRODUCE
    return (writes_records and later.key in READS_RECORDS) or (
        earlier.key in WRITES_GROUPS and later.key in READS_GROUPS
    )


@asynccontextmanager
async def door(**settings: int) -> AsyncIterator[Cluster]:
    async with Cluster.running(**settings) as cluster:
        cluster.own(cluster.topics.add(TOPIC, 1, 2), 0, 1)
        for group in (GROUP, ""):
            cluster.slots.set(group, "1/a")
        for role in ROLES:
            cluster.serve(role, 1)
        yield cluster


def ask(client: FakeClient, key: int) -> None:
    if key == K.PRODUCE:
        client.produce((TOPIC, 0, b"r"))
        return
    schema, version = module_of(key), SERVED[key].versions[1]
    request = REQUESTS.get(key) or getattr(schema, f"{schema.NAME}Request")()
    client.ask(key, version, *schema.encode_request(request, version))


def sent(cluster: Cluster, client: FakeClient) -> list[Sent]:
    number = client.connection.caller.connection_id
    return [
        one for stream in cluster.streams.values() for one in stream.sent if one.meta.connection_id == number
    ]


def sent_keys(cluster: Cluster, client: FakeClient) -> set[int]:
    return {one.meta.api_key for one in sent(cluster, client)}


def the(cluster: Cluster, client: FakeClient, key: int) -> Sent:
    (found,) = (one for one in sent(cluster, client) if one.meta.api_key == key)
    return found


@pytest.mark.parametrize("earlier", TRAVELLING, ids=lambda api: api.name)
async def test_of_two_requests_the_second_waits_only_if_it_reads_what_the_first_writes(earlier: Api) -> None:
    async with door() as cluster:
        wrong = []
        for later in TRAVELLING:
            client = cluster.client()
            ask(client, int(earlier.key))
            assert len(sent(cluster, client)) == 1, "the first one never waits"
            ask(client, int(later.key))
            waited = len(sent(cluster, client)) == 1
            if waited is not waits(earlier, later):
                wrong.append((later.name, waited))
            client.leave()
        assert not wrong


def test_every_request_that_changes_something_and_must_not_be_repeated_is_exclusive() -> None:
    changing = {
        key
        for key, api in SERVED.items()
        if isinstance(api.dispatch, Forward) and (api.dispatch.changes_access or not api.dispatch.repeatable)
    }
    assert changing <= CHANGES == {key for key, api in SERVED.items() if api.exclusive}


async def test_a_read_starts_when_all_earlier_writes_are_answered_and_carries_their_revisions() -> None:
    async with door() as cluster:
        client = cluster.client()
        client.produce((TOPIC, 0, b"first"))
        client.produce((TOPIC, 1, b"second"))
        ask(client, K.LIST_OFFSETS)
        client.produce((TOPIC, 0, b"third"))
        first, second, third = cluster.producer(1).sent
        second.append(revision=12)
        third.append(revision=13)
        await settled()
        assert K.LIST_OFFSETS not in sent_keys(cluster, client)
        first.append(revision=11)
        await settled()
        assert the(cluster, client, K.LIST_OFFSETS).meta.revision == 13


async def test_a_fetch_behind_a_produce_carries_its_revision() -> None:
    async with door() as cluster:
        client = cluster.client()
        client.produce((TOPIC, 0, b"r"))
        client.fetch((TOPIC, 0))
        assert not cluster.fetcher(1).sent
        cluster.producer(1).sent[0].append(revision=7)
        await settled()
        assert cluster.fetcher(1).sent[0].meta.revision == 7


async def test_a_look_at_offsets_behind_a_deletion_carries_its_revision() -> None:
    async with door() as cluster:
        client = cluster.client()
        looks = list_offsets.encode_request(list_offsets.ListOffsetsRequest(), 7)
        client.feed(
            client.frame(K.DELETE_RECORDS, 2, b"".join(delete_records.encode_request(DELETED, 2)))
            + client.frame(K.LIST_OFFSETS, 7, b"".join(map(bytes, looks)))
        )
        assert sent_keys(cluster, client) == {K.DELETE_RECORDS}
        the(cluster, client, K.DELETE_RECORDS).reply(b"done", revision=41)
        await settled()
        assert the(cluster, client, K.LIST_OFFSETS).meta.log_start_revision == 41


async def test_a_deletion_waits_for_the_records_before_it() -> None:
    async with door() as cluster:
        client = cluster.client()
        client.produce((TOPIC, 0, b"r"))
        client.fetch((TOPIC, 0))
        ask(client, K.DELETE_RECORDS)
        client.produce((TOPIC, 0, b"behind the deletion"))
        cluster.producer(1).sent[0].append()
        await settled()
        assert K.DELETE_RECORDS not in sent_keys(cluster, client), "the fetch before it is not answered"
        cluster.fetcher(1).sent[0].give()
        await settled()
        assert len(cluster.producer(1).sent) == 1
        the(cluster, client, K.DELETE_RECORDS).reply(b"done")
        await settled()
        assert len(cluster.producer(1).sent) == 2


async def test_a_silent_produce_is_waited_for_until_it_is_accepted() -> None:
    async with door() as cluster:
        client = cluster.client()
        client.produce((TOPIC, 0, b"r"), acks=0)
        ask(client, K.LIST_OFFSETS)
        assert sent_keys(cluster, client) == {K.PRODUCE}
        cluster.producer(1).sent[0].append()
        await settled()
        assert sent_keys(cluster, client) == {K.PRODUCE, K.LIST_OFFSETS}


async def test_the_time_of_a_request_that_waited_begins_when_it_starts() -> None:
    async with door(frontdoor_request_timeout_ms=1_000) as cluster:
        client = cluster.client()
        client.produce((TOPIC, 0, b"slow"), timeout_ms=5_000)
        ask(client, K.LIST_OFFSETS)
        ask(client, K.FIND_COORDINATOR)
        await until(lambda: the(cluster, client, K.FIND_COORDINATOR).cancelled)  # its time is over
        assert not client.hung_up
        cluster.producer(1).sent[0].append()
        await settled()
        look = the(cluster, client, K.LIST_OFFSETS)
        await until(lambda: look.cancelled)


async def test_no_request_that_waits_is_sent_for_a_client_that_has_left() -> None:
    async with door() as cluster:
        client = cluster.client()
        client.produce((TOPIC, 0, b"r"))
        ask(client, K.LIST_OFFSETS)
        client.leave()
        await settled()
        assert sent_keys(cluster, client) == {K.PRODUCE}


async def test_requests_that_wait_count_among_those_of_their_connection() -> None:
    async with door(frontdoor_requests_max=8) as cluster:
        client = cluster.client()
        client.produce((TOPIC, 0, b"r"))
        for _ in range(7):
            ask(client, K.LIST_OFFSETS)
        assert not client.transport.reading
        cluster.producer(1).sent[0].append()
        await settled()
        assert client.transport.reading
        assert len(sent(cluster, client)) == 8


async def test_answers_leave_in_order_and_every_one_that_waits_starts_once() -> None:
    async with door() as cluster:
        client = cluster.client()
        for _ in range(20):
            client.produce((TOPIC, 0, b"r"))
            ask(client, K.LIST_OFFSETS)
        for place, produced in enumerate(list(cluster.producer(1).sent)):
            produced.append(offset=place)
            await settled()
            looks = [one for one in sent(cluster, client) if one.meta.api_key == K.LIST_OFFSETS]
            assert len(looks) == place + 1
            looks[-1].reply(b"look")
            await settled()
        assert [answer.correlation_id for answer in client.answers] == list(range(1, 41))
