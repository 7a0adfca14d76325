"""The collection of APIs: complete, in agreement with Kafka's own, and each travels as its registration says."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from door_fakes import instance
from door_harness import Cluster, FakeClient, topic_id, until
from group_requests import abort_of
from kafscale.frontdoor.api import Api, Backend
from kafscale.frontdoor.apis import DEFERRED, OFF, REFUSED, SERVED, advertised
from kafscale.frontdoor.assembly import ROLES
from kafscale.runtime.stream.client import StreamClient
from kafscale.runtime.stream.options import SERVER_OPTIONS, Stream
from kafscale.runtime.stream.server import InboundRequest, StreamServer
from kafscale.storage.membership.members import Instance
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import (
    add_partitions_to_txn,
    consumer_group_describe,
    delete_groups,
    describe_groups,
    describe_producers,
    describe_transactions,
    module_of,
    offset_fetch,
    produce,
)

# What Apache Kafka 4.3.0 offers its clients: key, oldest and newest version.
KAFKA = """
0 3-13|1 4-18|2 1-11|3 0-13|8 2-10|9 1-10|10 0-6|11 0-9|12 0-4|13 0-5|14 0-5|15 0-6|16 0-5|17 0-1|18 0-4|19 2-7
20 1-6|21 0-2|22 0-6|23 2-4|24 0-5|25 0-4|26 0-5|27 1-2|28 0-5|29 1-3|30 1-3|31 1-3|32 1-4|33 0-2|34 1-2|35 1-5
36 0-2|37 0-3|38 1-3|39 1-2|40 1-2|41 1-3|42 0-2|43 0-2|44 0-1|45 0-1|46 0-0|47 0-0|48 0-1|49 0-1|50 0-0|51 0-0
55 0-2|57 0-2|60 0-2|61 0-0|64 0-0|65 0-0|66 0-2|68 0-1|69 0-1|71 0-0|72 0-0|74 0-1|75 0-0|76 1-1|77 1-1|78 1-2
79 1-2|88 0-0|89 0-0|90 0-1|91 0-0|92 0-0
"""
EXCEPTIONS = {
    ApiKey.PRODUCE: "0 to 2, which Kafka 4 has dropped, are served for old clients",
    ApiKey.FETCH: "0 to 3, which Kafka 4 has dropped, are served for old clients",
    ApiKey.LIST_OFFSETS: "0, which Kafka 4 has dropped, is served for old clients",
    ApiKey.OFFSET_COMMIT: "0 and 1, which Kafka 4 has dropped, are served for old clients",
    ApiKey.OFFSET_FETCH: "0, which Kafka 4 has dropped, is served for old clients",
    ApiKey.CREATE_TOPICS: "0 and 1, which Kafka 4 has dropped, are served for old clients",
    ApiKey.DELETE_TOPICS: "0, which Kafka 4 has dropped, is served for old clients",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "0 and 1, which Kafka 4 has dropped, are served for old clients",
    ApiKey.DESCRIBE_ACLS: "0, which Kafka 4 has dropped, is served for old tools",
    ApiKey.CREATE_ACLS: "0, which Kafka 4 has dropped, is served for old tools",
    ApiKey.DELETE_ACLS: "0, which Kafka 4 has dropped, is served for old tools",
    ApiKey.DESCRIBE_CONFIGS: "0, which Kafka 4 has dropped, is served for old tools",
    ApiKey.DESCRIBE_LOG_DIRS: "0, which Kafka 4 has dropped, is served for old tools",
    ApiKey.INIT_PRODUCER_ID: "version 6 is unstable in Kafka",
}
TRAVELLING = [api for api in SERVED.values() if api.backend is not Backend.FRONTDOOR]


def kafka_versions() -> dict[int, tuple[int, int]]:
    found = {}
    for cell in KAFKA.replace("\n", "|").strip("|").split("|"):
        key, versions = cell.split()
        low, high = versions.split("-")
        found[int(key)] = (int(low), int(high))
    return found


def test_every_api_of_kafka_is_listed_once_with_its_versions() -> None:
    listed = [*SERVED.values(), *DEFERRED, *REFUSED]
    versions = {int(api.key): api.versions for api in listed}
    kafka = kafka_versions()
    assert len(versions) == len(listed)
    assert set(versions) == set(kafka)
    assert {key for key in kafka if versions[key] != kafka[key]} == set(EXCEPTIONS)
    assert [versions[key] for key in (0, 1, 2, 8, 9, 22)] == [
        (0, 13),
        (0, 18),
        (0, 11),
        (0, 10),
        (0, 10),
        (0, 5),
    ]
    assert all(api.why for api in (*DEFERRED, *REFUSED))


@pytest.mark.parametrize("transactions", [False, True])
def test_only_served_apis_are_advertised_in_the_order_of_their_keys(transactions: bool) -> None:
    shown = advertised(transactions=transactions)
    assert list(shown) == sorted(kafka_versions())
    off = set() if transactions else {int(one.key) for one in OFF}
    assert {key for key, versions in shown.items() if versions != (-1, -1)} == set(SERVED) - off


def test_what_is_off_without_transactions_has_its_versions_all_the_same() -> None:
    assert [one.versions for one in OFF] == [SERVED[int(one.key)].versions for one in OFF]
    names = {one.key.name for one in OFF}
    of_clients = {name for name in ApiKey.__members__ if "TXN" in name}
    assert names == of_clients | {"DESCRIBE_TRANSACTIONS", "LIST_TRANSACTIONS"}


@pytest.mark.parametrize("api", SERVED.values(), ids=lambda api: api.name)
def test_a_served_api_has_a_codec_for_each_version_and_a_file_that_begins_with_its_contract(api: Api) -> None:
    schema = importlib.import_module(f"kafscale.wire.schema.{api.key.name.lower()}")
    low, high = schema.REQUEST_VERSIONS
    assert low <= api.versions[0]
    assert high >= api.versions[1]
    assert api.name == schema.NAME
    folder = Path(str(importlib.import_module("kafscale.frontdoor.handlers").__file__)).parent
    first = (folder / f"{api.key.name.lower()}.py").read_text().splitlines()[0]
    assert first.startswith(f'"""{api.name} ({int(api.key)}): v{api.versions[0]}-{api.versions[1]}'), first


# ---- over real streams

TOPIC, GROUP = "t", "g"
REQUESTS: dict[int, Any] = {
    ApiKey.PRODUCE: produce.ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            produce.ProduceRequestTopic(
                name=TOPIC,
                topic_id=topic_id(1),
                partition_data=[produce.ProduceRequestPartition(index=0, records=b"r")],
            )
        ],
    ),
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.DescribeProducersRequest(
        topics=[describe_producers.DescribeProducersRequestTopic(name=TOPIC, partition_indexes=[0])]
    ),
    ApiKey.WRITE_TXN_MARKERS: abort_of(7, TOPIC, 0),
    ApiKey.OFFSET_FETCH: offset_fetch.OffsetFetchRequest(
        group_id=GROUP, groups=[offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    ),
    ApiKey.DESCRIBE_GROUPS: describe_groups.DescribeGroupsRequest(groups=[GROUP]),
    ApiKey.DELETE_GROUPS: delete_groups.DeleteGroupsRequest(groups_names=[GROUP]),
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[GROUP]),
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions.DescribeTransactionsRequest(
        transactional_ids=[GROUP]
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.AddPartitionsToTxnRequest(
        transactions=[add_partitions_to_txn.AddPartitionsToTxnRequestTransaction(transactional_id=GROUP)]
    ),
}
"""What has to name a topic or a group; any other API travels with a request of defaults."""
Arrival = tuple[Backend, Stream, int]


class Streaming(Cluster):
    """A front door whose services are real stream servers, which note what arrives and answer nothing."""

    def _connect(self, to: Instance, kind: Stream) -> StreamClient:
        return StreamClient(to.address, kind=kind)


@asynccontextmanager
async def over_streams() -> AsyncIterator[tuple[Streaming, list[Arrival]]]:
    arrived: list[Arrival] = []

    def note(role: Backend, kind: Stream, request: InboundRequest) -> None:
        arrived.append((role, kind, request.meta.api_key))

    async with AsyncExitStack() as stack:
        addresses: dict[Backend, str] = {}
        for role in ROLES:
            server = grpc.aio.server(options=SERVER_OPTIONS)
            bulk, control = (dict.fromkeys(SERVED, partial(note, role, kind)) for kind in Stream)
            StreamServer(bulk=bulk, control=control).add_to(server)
            addresses[role] = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            await server.start()
            stack.push_async_callback(server.stop, 0)
        cluster = await stack.enter_async_context(Streaming.running())
        topic = cluster.topics.add(TOPIC, 1, 1)
        cluster.own(topic, 0, 1)
        for group in (GROUP, ""):
            cluster.slots.set(group, "1/a")
        for role, address in addresses.items():
            cluster.live[role].set(instance(role, 1, address=address))
        yield cluster, arrived


def ask(client: FakeClient, key: int) -> None:
    schema, version = module_of(key), SERVED[key].versions[1]
    request = REQUESTS.get(key) or getattr(schema, f"{schema.NAME}Request")()
    client.ask(key, version, *schema.encode_request(request, version))


async def test_each_api_travels_to_the_service_and_on_the_stream_of_its_registration() -> None:
    async with over_streams() as (cluster, arrived):
        clients = []
        for api in TRAVELLING:
            clients.append(cluster.client())
            ask(clients[-1], int(api.key))
        await until(lambda: len(arrived) >= len(TRAVELLING))
        assert sorted(arrived, key=lambda one: one[2]) == [
            (api.backend, api.stream, int(api.key)) for api in TRAVELLING
        ]
        assert {key for _, kind, key in arrived if kind is Stream.BULK} == {ApiKey.PRODUCE, ApiKey.FETCH}
        for client in clients:
            client.leave()


async def test_calls_of_one_connection_about_one_group_arrive_in_their_order() -> None:
    calls = [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT, ApiKey.HEARTBEAT]
    calls += [ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.LEAVE_GROUP]
    async with over_streams() as (cluster, arrived):
        client = cluster.client()
        for key in calls:
            ask(client, key)
        await until(lambda: len(arrived) >= len(calls))
        assert arrived == [(Backend.COORDINATOR, Stream.CONTROL, int(key)) for key in calls]
        client.leave()
