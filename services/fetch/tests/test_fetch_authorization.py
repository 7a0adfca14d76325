"""What the fetch service asks the authorizer: each API in every variant of its right, and what a denial hides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kafscale.access.rules import NotEnforced, Side, needs_of
from kafscale.fetch import handlers
from kafscale.runtime.authorization import enforced
from kafscale.runtime.stream.apis import exported
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic
from kafscale.testkit.acls import ALICE, VARIANTS, allowing, authorizer, variant
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import error_codes
from kafscale.wire.schema import fetch, list_offsets, module_of, offset_for_leader_epoch

ABSENT_ID = b"absent".ljust(16, b".")
LATEST = -1


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def topic(etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore) -> Topic:
    topic = await create_topic(etcd, keyspace, "t", partitions=1)
    log = LogBuilder(etcd, keyspace, store, topic)
    await log.append(records(3))
    return topic


async def answer(client: Any, key: ApiKey, version: int, message: Any) -> Any:
    """What alice gets."""
    module = module_of(key)
    call = client.send(key, version, module.encode_request(message, version), principal=ALICE)
    body = await call.sink.answered
    assert call.sink.status == ReplyStatus.FINAL
    return module.decode_response(body, version)


def fetching(*topics: tuple[str, bytes], replica: int = -1, version: int = 12) -> fetch.FetchRequest:
    request = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[
            fetch.FetchRequestTopic(
                topic=name,
                topic_id=topic_id,
                partitions=[fetch.FetchRequestPartition(partition=0, partition_max_bytes=1 << 20)],
            )
            for name, topic_id in topics
        ],
    )
    if version >= 15:
        request.replica_state = fetch.FetchRequestReplicaState(replica_id=replica)
    else:
        request.replica_id = replica
    return request


def listing(*names: str, partitions: Sequence[int] = (0,)) -> list_offsets.ListOffsetsRequest:
    asked = [
        list_offsets.ListOffsetsRequestPartition(partition_index=partition, timestamp=LATEST)
        for partition in partitions
    ]
    topics = [list_offsets.ListOffsetsRequestTopic(name=name, partitions=asked) for name in names]
    return list_offsets.ListOffsetsRequest(topics=topics)


def ending(*names: str) -> offset_for_leader_epoch.OffsetForLeaderEpochRequest:
    part = offset_for_leader_epoch.OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=1)
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        topics=[
            offset_for_leader_epoch.OffsetForLeaderEpochRequestTopic(topic=name, partitions=[part])
            for name in names
        ]
    )


@pytest.mark.parametrize("version", [4, 12, 13, 18])
@pytest.mark.parametrize("how", VARIANTS)
async def test_a_topic_is_fetched_with_the_right_to_read_it(
    etcd, keyspace, store, topic, serve, how: str, version: int
) -> None:
    async with serve(etcd, keyspace, store, authorizer=variant(how, "TOPIC t READ")) as client:
        request = fetching(("t", topic.topic_id), version=version)
        (found,) = (await answer(client, ApiKey.FETCH, version, request)).responses[0].partitions
        if VARIANTS[how]:
            assert (found.error_code, found.high_watermark) == (0, 3)
            assert found.records
        else:
            assert (found.error_code, found.high_watermark, found.log_start_offset) == (29, -1, -1)
            assert not found.records


@pytest.mark.parametrize("how", VARIANTS)
async def test_offsets_and_ends_of_epochs_need_the_right_to_describe_the_topic(
    etcd, keyspace, store, topic, serve, how: str
) -> None:
    async with serve(etcd, keyspace, store, authorizer=variant(how, "TOPIC t DESCRIBE")) as client:
        (listed,) = (await answer(client, ApiKey.LIST_OFFSETS, 11, listing("t"))).topics[0].partitions
        assert (listed.error_code, listed.offset) == ((0, 3) if VARIANTS[how] else (29, -1))
        ended = (await answer(client, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, ending("t"))).topics[0].partitions[0]
        assert ended.error_code == (0 if VARIANTS[how] else 29)
        if not VARIANTS[how]:
            assert (ended.leader_epoch, ended.end_offset) == (-1, -1)


async def test_an_end_of_an_epoch_is_also_for_those_who_may_act_for_the_cluster(
    etcd, keyspace, store, topic, serve
) -> None:
    decides = allowing("CLUSTER kafka-cluster CLUSTER_ACTION")
    async with serve(etcd, keyspace, store, authorizer=decides) as client:
        assert not set(error_codes(await answer(client, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, ending("t"))))
        assert set(error_codes(await answer(client, ApiKey.LIST_OFFSETS, 11, listing("t")))) == {29}


async def test_of_a_denied_topic_nobody_learns_whether_it_exists(
    etcd, keyspace, store, topic, serve, monkeypatch
) -> None:
    """Nor is etcd read for it, which would take longer for an absent one."""
    async with serve(etcd, keyspace, store, authorizer=authorizer()) as client:

        async def looked_up(**_: object) -> bool:
            raise AssertionError("a denied name was looked up")

        monkeypatch.setattr(client.topics, "confirmed", looked_up)
        for key, version, request in (
            (ApiKey.FETCH, 12, fetching(("t", bytes(16)), ("absent", bytes(16)))),
            (ApiKey.LIST_OFFSETS, 11, listing("t", "absent")),
            (ApiKey.LIST_OFFSETS, 11, listing("t", "absent", partitions=(0, 0, 5))),
            (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, ending("t", "absent")),
        ):
            response = await answer(client, key, version, request)
            assert set(error_codes(response)) == {29}
            exists, absent = response.responses if key == ApiKey.FETCH else response.topics
            assert exists.partitions == absent.partitions


async def test_topics_that_may_be_read_are_read_beside_those_that_may_not(
    etcd, keyspace, store, topic, serve
) -> None:
    await create_topic(etcd, keyspace, "theirs", partitions=1)
    async with serve(etcd, keyspace, store, authorizer=allowing("TOPIC t READ")) as client:
        request = fetching(("theirs", bytes(16)), ("t", bytes(16)))
        theirs, mine = (await answer(client, ApiKey.FETCH, 12, request)).responses
        assert (theirs.partitions[0].error_code, mine.partitions[0].error_code) == (29, 0)
        assert mine.partitions[0].records


async def test_an_id_is_asked_about_by_the_name_of_its_topic_also_when_only_etcd_knows_it(
    etcd, keyspace, store, topic, serve, monkeypatch
) -> None:
    async with serve(etcd, keyspace, store, authorizer=authorizer()) as client:
        found = client.topics.find
        reads = 0

        def behind(ref: object, partition: int = 0) -> Topic | None:
            """The view does not have the topic until etcd was read."""
            return found(ref, partition) if reads else None

        async def confirmed(**_: object) -> bool:
            nonlocal reads
            reads += 1
            return True

        monkeypatch.setattr(client.topics, "find", behind)
        monkeypatch.setattr(client.topics, "confirmed", confirmed)
        request = fetching(("", topic.topic_id), ("", ABSENT_ID))
        response = await answer(client, ApiKey.FETCH, 13, request)
        assert [each.partitions[0].error_code for each in response.responses] == [29, 100]
        assert reads


@pytest.mark.parametrize("version", [12, 18])
async def test_a_follower_needs_to_act_for_the_cluster_and_no_topic(
    etcd, keyspace, store, topic, serve, version: int
) -> None:
    for right, code in (("CLUSTER kafka-cluster CLUSTER_ACTION", 0), ("TOPIC * READ", 29)):
        async with serve(etcd, keyspace, store, authorizer=allowing(right)) as client:
            request = fetching(("t", topic.topic_id), replica=1, version=version)
            (found,) = (await answer(client, ApiKey.FETCH, version, request)).responses[0].partitions
            assert found.error_code == code
            assert bool(found.records) is (code == 0)


async def test_of_a_denied_follower_every_partition_has_the_error(
    etcd, keyspace, store, topic, serve
) -> None:
    async with serve(etcd, keyspace, store, authorizer=authorizer()) as client:
        request = fetching(("t", topic.topic_id), ("", ABSENT_ID), replica=1, version=13)
        response = await answer(client, ApiKey.FETCH, 13, request)
        assert [each.partitions[0].error_code for each in response.responses] == [29, 29]


@pytest.mark.parametrize(
    ("right", "replica"), [("TOPIC t READ", -1), ("CLUSTER kafka-cluster CLUSTER_ACTION", 1)]
)
async def test_rights_that_are_removed_while_a_request_waits_hold_for_its_answer(
    etcd, keyspace, store, serve, until, right: str, replica: int
) -> None:
    """And those of other topics stay."""
    topic, mine = [await create_topic(etcd, keyspace, name, partitions=1) for name in ("t", "mine")]
    log, decides = LogBuilder(etcd, keyspace, store, topic), allowing(right, "TOPIC mine READ")
    (removed,) = [acl for acl in decides.acls if acl.resource_name != "mine"]
    async with serve(etcd, keyspace, store, authorizer=decides) as client:

        async def waiting() -> Any:
            """For the end of the log."""
            request = fetching(("t", topic.topic_id), ("mine", mine.topic_id), replica=replica)
            request.max_wait_ms = 60_000
            request.topics[0].partitions[0].fetch_offset = log.next
            call = client.send(ApiKey.FETCH, 12, fetch.encode_request(request, 12), principal=ALICE)
            await until(lambda: client.service.fetch.held_requests == 1)
            return call

        async def found(call: Any) -> list[fetch.FetchResponsePartition]:
            response = fetch.decode_response(await call.sink.answered, 12)
            return [each.partitions[0] for each in response.responses]

        call = await waiting()
        await log.append(records(2))
        first, other = await found(call)
        assert (first.error_code, bytes(first.records), other.error_code) == (0, log.expected(0), 0)

        call = await waiting()
        decides.acls.remove(removed)
        await log.append(records(2))
        first, other = await found(call)
        assert (first.error_code, first.high_watermark, bytes(first.records)) == (29, -1, b"")
        assert other.error_code == (29 if replica == 1 else 0)


def test_every_handler_asks_what_the_rules_say_of_a_service() -> None:
    served = [ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH]
    enforced(handlers, served)
    asked = exported(handlers, "NEEDS", tuple)
    assert asked == {int(key): needs_of(key, Side.SERVICE) for key in served}


def test_an_api_that_this_service_does_not_ask_about_ends_the_start() -> None:
    with pytest.raises(NotEnforced, match="Metadata"):
        enforced(handlers, [int(ApiKey.METADATA)])
