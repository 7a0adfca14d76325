"""DescribeLogDirs, DescribeProducers and WriteTxnMarkers: what is cut by broker or by owner, and put together again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from door_fakes import Sent
from door_harness import Cluster, FakeClient, settled, until
from group_requests import answered, ask
from kafscale.frontdoor.api import Backend
from kafscale.storage.brokers import brokers_on, leader_of
from kafscale.storage.membership.members import Instance, InstanceState, Listener
from kafscale.wire.schema import describe_log_dirs, describe_producers
from kafscale.wire.schema import write_txn_markers as markers

CONTROL = "control"
UNKNOWN, NOT_LEADER, NOT_CONTROLLER = 3, 6, 41
Wanted = dict[str, list[int]]


def front_door(node_id: int, host: str, *, inside: str = "") -> Instance:
    listeners = [Listener(name="PLAINTEXT", host=host, port=9092)]
    if inside:
        listeners.append(Listener(name="INSIDE", host=inside, port=9093))
    return Instance(
        role="frontdoor", node_id=node_id, boot_id="a", state=InstanceState.READY, listeners=tuple(listeners)
    )


DOORS = [front_door(node_id, f"door-{node_id}") for node_id in (7, 8, 9)]


# --- DescribeLogDirs ---------------------------------------------------------------------------


def ask_dirs(client: FakeClient, wanted: Mapping[str, Sequence[int]] | None, version: int = 4) -> None:
    topics = None
    if wanted is not None:
        topics = [
            describe_log_dirs.DescribeLogDirsRequestDescribableDirTopic(topic=name, partitions=list(numbers))
            for name, numbers in wanted.items()
        ]
    ask(client, 35, version, describe_log_dirs.DescribeLogDirsRequest(topics=topics))


def asked_of_admin(cluster: Cluster) -> set[tuple[str, int]]:
    """The partitions in the request that admin was sent."""
    (sent,) = cluster.stream(Backend.ADMIN, 1, CONTROL).sent
    request = describe_log_dirs.decode_request(sent.body, sent.meta.api_version)
    assert request.topics is not None, "never all of them: that is more than this broker's"
    return {(topic.topic, number) for topic in request.topics for number in topic.partitions}


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("everything", [False, True])
async def test_a_tool_that_asks_every_broker_hears_of_each_partition_once(
    version: int, everything: bool
) -> None:
    brokers = brokers_on("PLAINTEXT", DOORS)
    seen: list[tuple[str, int]] = []
    for node_id in (7, 8, 9):
        async with Cluster.running(node_id=node_id) as cluster:
            cluster.serve(Backend.ADMIN, 1)
            cluster.front_doors.set(*DOORS)
            topics = [cluster.topics.add(name, place, 8) for place, name in enumerate("tu", start=1)]
            ask_dirs(cluster.client(), None if everything else {"t": range(8), "u": range(8)}, version)
            own = asked_of_admin(cluster)
            assert own == {
                (topic.name, number)
                for topic in topics
                for number in range(8)
                if leader_of(topic.topic_id, number, brokers) == node_id
            }
            seen += own
    assert sorted(seen) == [(name, number) for name in "tu" for number in range(8)]


async def test_behind_one_address_whoever_is_reached_answers_for_all(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    cluster.front_doors.set(*(front_door(node_id, "balancer", inside=f"in-{node_id}") for node_id in (3, 7)))
    cluster.topics.add("t", 1, 8)
    ask_dirs(cluster.client(), None)
    assert asked_of_admin(cluster) == {("t", number) for number in range(8)}


async def test_what_is_led_follows_the_listener_of_the_question(cluster: Cluster) -> None:
    doors = [front_door(node_id, "balancer", inside=f"in-{node_id}") for node_id in (3, 7)]
    cluster.serve(Backend.ADMIN, 1)
    cluster.front_doors.set(*doors)
    topic = cluster.topics.add("t", 1, 8)
    client = cluster.client()
    client.connection.caller.listener = "INSIDE"
    ask_dirs(client, None)
    brokers = brokers_on("INSIDE", doors)
    own = {("t", number) for number in range(8) if leader_of(topic.topic_id, number, brokers) == 7}
    assert 0 < len(own) < 8
    assert asked_of_admin(cluster) == own


async def test_the_answer_about_directories_passes_unread(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    client = cluster.client()
    ask_dirs(client, None)
    cluster.stream(Backend.ADMIN, 1, CONTROL).sent[0].reply(b"whatever it says")
    await settled()
    assert client.answers[0].body == b"whatever it says"


async def test_a_topic_made_just_now_is_looked_up_and_an_unknown_one_left_out(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    cluster.topics.add("new", 1, 1, hidden=True)
    ask_dirs(cluster.client(), {"new": [0], "no": [0]})
    await settled()
    assert asked_of_admin(cluster) == {("new", 0)}
    assert cluster.topics.reads == 1


def code_of_dirs(response: Any, version: int) -> int:
    if version < 3:
        return int(response.results[0].error_code)
    assert response.results == []
    return int(response.error_code)


@pytest.mark.parametrize("version", range(6))
async def test_a_front_door_that_is_not_registered_leads_nothing_that_it_could_tell(
    cluster: Cluster, version: int
) -> None:
    cluster.serve(Backend.ADMIN, 1)
    cluster.front_doors.set(front_door(8, "eight"))
    client = cluster.client()
    ask_dirs(client, None, version)
    await settled()
    assert code_of_dirs(answered(client), version) == NOT_CONTROLLER


async def test_without_etcd_no_topic_is_called_unknown(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    cluster.serve(Backend.PRODUCE, 1)
    cluster.topics.fails = True
    client = cluster.client()
    ask_dirs(client, {"t": [0]})
    await settled()
    ask_producers(client, {"t": [0]})
    await settled()
    assert code_of_dirs(answered(client), 4) == NOT_CONTROLLER
    assert told(client, 1) == [("t", 0, NOT_LEADER, [])]


async def test_without_admin_there_are_no_directories(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.frontdoor.forwarding.WAIT_MS_MAX", 10)
    client = cluster.client()
    ask_dirs(client, None)
    await until(lambda: bool(client.answers))
    assert code_of_dirs(answered(client), 4) == NOT_CONTROLLER


# --- DescribeProducers -------------------------------------------------------------------------


def ask_producers(client: FakeClient, *topics: Wanted) -> None:
    wanted = [
        describe_producers.DescribeProducersRequestTopic(name=name, partition_indexes=numbers)
        for each in topics
        for name, numbers in each.items()
    ]
    ask(client, 61, 0, describe_producers.DescribeProducersRequest(topics=wanted))


def told(client: FakeClient, number: int = 0) -> list[tuple[str, int, int, list[int]]]:
    """Topic, partition, code and producer ids, in the order of the answer."""
    return [
        (
            topic.name,
            part.partition_index,
            part.error_code,
            [each.producer_id for each in part.active_producers],
        )
        for topic in answered(client, number).topics
        for part in topic.partitions
    ]


def tell(sent: Sent, producer_id: int, code: int = 0) -> Wanted:
    """Answers every partition of the share with this producer; the share."""
    request = describe_producers.decode_request(sent.body, 0)
    state = describe_producers.DescribeProducersResponseProducerState(producer_id=producer_id)
    topics = [
        describe_producers.DescribeProducersResponseTopic(
            name=topic.name,
            partitions=[
                describe_producers.DescribeProducersResponsePartition(
                    partition_index=index, error_code=code, active_producers=[] if code else [state]
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics
    ]
    response = describe_producers.DescribeProducersResponse(topics=topics)
    sent.reply(*describe_producers.encode_response(response, 0))
    return {topic.name: topic.partition_indexes for topic in request.topics}


def two_owners(cluster: Cluster) -> None:
    cluster.serve(Backend.PRODUCE, 1, 2)
    topic = cluster.topics.add("t", 1, 4)
    for number, owner in enumerate((1, 2, 1, 2)):
        cluster.own(topic, number, owner)


def share_of(cluster: Cluster, node_id: int) -> Sent:
    (sent,) = cluster.stream(Backend.PRODUCE, node_id, CONTROL).sent
    return sent


async def test_each_owner_is_asked_for_its_own_and_the_order_is_the_requests(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    ask_producers(client, {"t": [3, 0]}, {"no": [0]}, {"t": [1, 9, 2, 0]})
    await settled()
    assert tell(share_of(cluster, 2), 20) == {"t": [3, 1]}
    assert not client.answers
    assert tell(share_of(cluster, 1), 10) == {"t": [0, 2]}
    await settled()
    assert told(client) == [
        ("t", 3, 0, [20]),
        ("t", 0, 0, [10]),
        ("no", 0, UNKNOWN, []),
        ("t", 1, 0, [20]),
        ("t", 9, UNKNOWN, []),
        ("t", 2, 0, [10]),
        ("t", 0, 0, [10]),
    ]


async def test_what_an_owner_says_of_a_partition_is_passed_on(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    ask_producers(client, {"t": [0]})
    tell(share_of(cluster, 1), 0, code=NOT_LEADER)
    await settled()
    assert told(client) == [("t", 0, NOT_LEADER, [])]


@pytest.mark.parametrize("failure", ["lost", "unsent", "nonsense"])
async def test_partitions_of_an_owner_that_does_not_answer_are_asked_for_again(
    cluster: Cluster, failure: str
) -> None:
    two_owners(cluster)
    client = cluster.client()
    ask_producers(client, {"t": [0, 1]})
    tell(share_of(cluster, 2), 20)
    if failure == "nonsense":
        share_of(cluster, 1).reply(b"\xff")
    else:
        share_of(cluster, 1).lose(sent=failure == "lost")
    await settled()
    assert told(client) == [("t", 0, NOT_LEADER, []), ("t", 1, 0, [20])]


async def test_without_produce_services_nobody_owns_anything(cluster: Cluster) -> None:
    cluster.topics.add("t", 1, 1)
    client = cluster.client()
    ask_producers(client, {"t": [0]})
    await settled()
    assert told(client) == [("t", 0, NOT_LEADER, [])]


async def test_a_topic_that_is_being_deleted_has_no_producers(cluster: Cluster) -> None:
    two_owners(cluster)
    cluster.delete("t")
    client = cluster.client()
    ask_producers(client, {"t": [0]})
    await settled()
    assert told(client) == [("t", 0, UNKNOWN, [])]


async def test_a_malformed_question_ends_the_connection(cluster: Cluster) -> None:
    for key in (35, 61):
        client = cluster.client()
        client.ask(key, 0, b"\xff\xff")
        assert client.hung_up


# --- WriteTxnMarkers ---------------------------------------------------------------------------


def ask_aborts(client: FakeClient, *wanted: tuple[int, Wanted], version: int = 2) -> None:
    """Of the transactions of these producers in these partitions."""
    request = markers.WriteTxnMarkersRequest(
        markers=[
            markers.WriteTxnMarkersRequestWritableMarker(
                producer_id=producer_id,
                producer_epoch=3,
                topics=[
                    markers.WriteTxnMarkersRequestWritableMarkerTopic(name, numbers)
                    for name, numbers in topics.items()
                ],
                coordinator_epoch=-1,
            )
            for producer_id, topics in wanted
        ]
    )
    ask(client, 27, version, request)


def abort(sent: Sent, code: int) -> list[tuple[int, Wanted]]:
    """Answers every partition of the share with this code; the share."""
    request = markers.decode_request(sent.body, sent.meta.api_version)
    results = [
        markers.WriteTxnMarkersResponseWritableMarkerResult(
            marker.producer_id,
            [
                markers.WriteTxnMarkersResponseWritableMarkerTopicResult(
                    topic.name,
                    [
                        markers.WriteTxnMarkersResponseWritableMarkerPartitionResult(index, code)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ],
        )
        for marker in request.markers
    ]
    response = markers.WriteTxnMarkersResponse(results)
    sent.reply(*markers.encode_response(response, sent.meta.api_version))
    assert {(marker.producer_epoch, marker.coordinator_epoch) for marker in request.markers} == {(3, -1)}
    return [
        (marker.producer_id, {topic.name: topic.partition_indexes for topic in marker.topics})
        for marker in request.markers
    ]


def aborted(client: FakeClient) -> list[tuple[int, str, int, int]]:
    """Producer, topic, partition and code, in the order of the answer."""
    return [
        (marker.producer_id, topic.name, part.partition_index, part.error_code)
        for marker in answered(client).markers
        for topic in marker.topics
        for part in topic.partitions
    ]


async def test_each_owner_gets_the_markers_of_its_partitions_and_each_producer_its_code(
    cluster: Cluster,
) -> None:
    two_owners(cluster)
    client = cluster.client()
    ask_aborts(client, (7, {"t": [3, 0]}), (8, {"t": [1], "no": [0]}), (9, {"t": [2, 9]}))
    await settled()
    assert abort(share_of(cluster, 2), 47) == [(7, {"t": [3]}), (8, {"t": [1]})]
    assert not client.answers
    assert abort(share_of(cluster, 1), 0) == [(7, {"t": [0]}), (9, {"t": [2]})]
    await settled()
    assert aborted(client) == [
        (7, "t", 3, 47),
        (7, "t", 0, 0),
        (8, "t", 1, 47),
        (8, "no", 0, UNKNOWN),
        (9, "t", 2, 0),
        (9, "t", 9, UNKNOWN),
    ]


async def test_two_producers_of_a_partition_have_codes_of_their_own(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    ask_aborts(client, (7, {"t": [0]}), (8, {"t": [0]}))
    await settled()
    sent = share_of(cluster, 1)
    one = [markers.WriteTxnMarkersResponseWritableMarkerPartitionResult(0, 52)]
    topic = markers.WriteTxnMarkersResponseWritableMarkerTopicResult("t", one)
    result = markers.WriteTxnMarkersResponseWritableMarkerResult(7, [topic])
    sent.reply(*markers.encode_response(markers.WriteTxnMarkersResponse([result]), 2))
    await settled()
    assert aborted(client) == [(7, "t", 0, 52), (8, "t", 0, NOT_LEADER)], "the owner did not name the other"


async def test_without_an_owner_no_marker_is_sent(cluster: Cluster) -> None:
    cluster.topics.add("t", 1, 4)
    client = cluster.client()
    ask_aborts(client, (7, {"t": [0]}))
    await settled()
    assert aborted(client) == [(7, "t", 0, NOT_LEADER)]
