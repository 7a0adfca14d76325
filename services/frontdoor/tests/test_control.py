"""Everything but records: ApiVersions, forwarded calls, and what clients get when a service is away."""

from functools import partial

import pytest
from door_fakes import FakeStream
from door_harness import Cluster, FakeClient, settled, until
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.apis import DEFERRED, OFF, REFUSED, SERVED
from kafscale.frontdoor.forwarding import LOSSES_MAX
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    alter_configs,
    api_versions,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    elect_leaders,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_for_leader_epoch,
)

INVALID_REQUEST = 42
CONTROL = "control"


def joined(buffers: object) -> bytes:
    return b"".join(map(bytes, buffers))  # type: ignore[call-overload]


async def test_an_api_versions_request_from_the_future_is_answered_in_version_0(cluster: Cluster) -> None:
    client = cluster.client()
    client.ask(18, 99, b"\x06probe\x021\0")
    client.versions[1] = (18, 0)
    client.ask(18, 0)
    await settled()
    future, now = (api_versions.decode_response(answer.body, 0) for answer in client.answers)
    assert (future.error_code, now.error_code) == (35, 0)
    assert [key for key in future.api_keys if key.api_key == 18][0].max_version == 4
    assert not client.hung_up


@pytest.mark.parametrize("transactions", [False, True])
async def test_what_is_not_served_is_listed_as_not_offered(transactions: bool) -> None:
    async with Cluster.running(transactions=transactions) as cluster:
        client = cluster.client()
        request = api_versions.ApiVersionsRequest("probe", "1")
        client.ask(18, 4, joined(api_versions.encode_request(request, 4)))
        await settled()
        response = api_versions.decode_response(client.answers[0].body, 4)
    shown = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    offered = {key: api.versions for key, api in SERVED.items()}
    absent = (*DEFERRED, *REFUSED) if transactions else (*OFF, *DEFERRED, *REFUSED)
    assert shown == offered | {int(api.key): (-1, -1) for api in absent}
    assert shown[ApiKey.PRODUCE] == (0, 13)
    assert shown[ApiKey.ADD_PARTITIONS_TO_TXN] == ((0, 5) if transactions else (-1, -1))


@pytest.mark.parametrize(("name", "code"), [("kafka-python", 0), ("", 42), ("-x", 42), ("a b", 42)])
async def test_a_software_name_that_kafka_would_refuse_is_refused(
    cluster: Cluster, name: str, code: int
) -> None:
    client = cluster.client()
    client.ask(18, 3, joined(api_versions.encode_request(api_versions.ApiVersionsRequest(name, "1.0"), 3)))
    await settled()
    assert api_versions.decode_response(client.answers[0].body, 3).error_code == code


async def test_a_version_below_ours_gets_the_error_in_its_own_shape(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No API of KafScale has such a version, so one version is removed for the test."""
    served = cluster.door.gateway._served
    monkeypatch.setitem(served, 2, served[2]._replace(version_min=1))  # type: ignore[arg-type]
    topics = [list_offsets.ListOffsetsRequestTopic("t", [list_offsets.ListOffsetsRequestPartition(7)])]
    client = cluster.client()
    client.ask(2, 0, joined(list_offsets.encode_request(list_offsets.ListOffsetsRequest(topics=topics), 0)))
    await settled()
    assert not client.hung_up
    answer = list_offsets.decode_response(client.answers[0].body, 0)
    (part,) = answer.topics[0].partitions
    assert (part.partition_index, part.error_code) == (7, 35)
    assert cluster.streams == {}


async def test_a_version_that_nobody_knows_ends_the_connection(cluster: Cluster) -> None:
    client = cluster.client()
    client.ask(3, 99, b"\0" * 8)
    assert client.hung_up


FORWARDED = [
    (3, 9, metadata.MetadataRequest(topics=[]), Backend.ADMIN),
    (10, 3, find_coordinator.FindCoordinatorRequest(key="g"), Backend.COORDINATOR),
    (22, 4, init_producer_id.InitProducerIdRequest(transactional_id=None), Backend.COORDINATOR),
    (2, 7, list_offsets.ListOffsetsRequest(), Backend.FETCH),
    (23, 4, offset_for_leader_epoch.OffsetForLeaderEpochRequest(), Backend.FETCH),
    (19, 7, create_topics.CreateTopicsRequest(), Backend.ADMIN),
    (20, 6, delete_topics.DeleteTopicsRequest(), Backend.ADMIN),
    (21, 2, delete_records.DeleteRecordsRequest(), Backend.ADMIN),
    (37, 3, create_partitions.CreatePartitionsRequest(), Backend.ADMIN),
    (32, 4, describe_configs.DescribeConfigsRequest(), Backend.ADMIN),
    (33, 2, alter_configs.AlterConfigsRequest(), Backend.ADMIN),
    (44, 1, incremental_alter_configs.IncrementalAlterConfigsRequest(), Backend.ADMIN),
    (43, 2, elect_leaders.ElectLeadersRequest(), Backend.ADMIN),
    (29, 3, describe_acls.DescribeAclsRequest(), Backend.ADMIN),
    (30, 3, create_acls.CreateAclsRequest(), Backend.ADMIN),
    (31, 3, delete_acls.DeleteAclsRequest(), Backend.ADMIN),
    (46, 0, list_partition_reassignments.ListPartitionReassignmentsRequest(), Backend.ADMIN),
    (60, 2, describe_cluster.DescribeClusterRequest(), Backend.ADMIN),
    (74, 1, list_config_resources.ListConfigResourcesRequest(), Backend.ADMIN),
    (75, 0, describe_topic_partitions.DescribeTopicPartitionsRequest(), Backend.ADMIN),
]
SCHEMAS = {
    3: metadata,
    10: find_coordinator,
    22: init_producer_id,
    2: list_offsets,
    23: offset_for_leader_epoch,
    19: create_topics,
    20: delete_topics,
    21: delete_records,
    37: create_partitions,
    32: describe_configs,
    33: alter_configs,
    44: incremental_alter_configs,
    43: elect_leaders,
    29: describe_acls,
    30: create_acls,
    31: delete_acls,
    46: list_partition_reassignments,
    60: describe_cluster,
    74: list_config_resources,
    75: describe_topic_partitions,
}


@pytest.mark.parametrize(("key", "version", "message", "backend"), FORWARDED)
async def test_a_control_call_and_its_answer_pass_unread_on_the_control_stream(
    cluster: Cluster, key: int, version: int, message: object, backend: Backend
) -> None:
    cluster.serve(backend, 1)
    client = cluster.client()
    body = joined(SCHEMAS[key].encode_request(message, version))  # type: ignore[attr-defined]
    client.ask(key, version, body)
    (sent,) = cluster.stream(backend, 1, CONTROL).sent
    assert sent.body == body
    sent.reply(b"whatever it says")
    await settled()
    assert client.answers[0].body == b"whatever it says"


EMPTY_ANSWERS = {
    3: (metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")]), 5),
    10: (find_coordinator.FindCoordinatorRequest(key="g"), 15),
    22: (init_producer_id.InitProducerIdRequest(transactional_id=None), 14),
    19: (create_topics.CreateTopicsRequest(topics=[create_topics.CreateTopicsRequestTopic("t", 1, 1)]), 41),
    20: (delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicsRequestTopicState("t")]), 41),
    37: (
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsRequestTopic("t", 2, None)]
        ),
        41,
    ),
    32: (
        describe_configs.DescribeConfigsRequest(
            resources=[describe_configs.DescribeConfigsRequestResource(2, "t", None)]
        ),
        41,
    ),
    33: (
        alter_configs.AlterConfigsRequest(resources=[alter_configs.AlterConfigsRequestResource(2, "t", [])]),
        41,
    ),
    44: (
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[incremental_alter_configs.IncrementalAlterConfigsRequestResource(2, "t", [])]
        ),
        41,
    ),
    43: (elect_leaders.ElectLeadersRequest(), 41),
    29: (describe_acls.DescribeAclsRequest(), 41),
    30: (create_acls.CreateAclsRequest(creations=[create_acls.CreateAclsRequestAclCreation()]), 41),
    31: (delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsRequestFilter()]), 41),
    46: (list_partition_reassignments.ListPartitionReassignmentsRequest(), 41),
    60: (describe_cluster.DescribeClusterRequest(), 41),
    74: (list_config_resources.ListConfigResourcesRequest(), 41),
    75: (
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.DescribeTopicPartitionsRequestTopicRequest("t")]
        ),
        5,
    ),
}


def code_of(key: int, response: object) -> int:
    match key:
        case 3:
            return response.topics[0].error_code  # type: ignore[attr-defined, no-any-return]
        case 31:
            return response.filter_results[0].error_code  # type: ignore[attr-defined, no-any-return]
        case 10 | 22 | 29 | 43 | 46 | 60 | 74:
            return response.error_code  # type: ignore[attr-defined, no-any-return]
        case 19 | 75:
            return response.topics[0].error_code  # type: ignore[attr-defined, no-any-return]
        case 20 | 33 | 44:
            return response.responses[0].error_code  # type: ignore[attr-defined, no-any-return]
        case _:
            return response.results[0].error_code  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("key", EMPTY_ANSWERS)
async def test_without_the_service_the_client_gets_an_error_on_which_it_tries_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, key: int
) -> None:
    monkeypatch.setattr("kafscale.frontdoor.forwarding.WAIT_MS_MAX", 10)
    message, code = EMPTY_ANSWERS[key]
    version = 3 if key == 10 else SERVED[key].versions[1]
    client = cluster.client()
    client.ask(key, version, joined(SCHEMAS[key].encode_request(message, version)))  # type: ignore[attr-defined]
    await until(lambda: bool(client.answers))
    response = SCHEMAS[key].decode_response(client.answers[0].body, version)  # type: ignore[attr-defined]
    assert code_of(key, response) == code


async def test_metadata_without_admin_names_the_front_doors_that_the_client_can_reach(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.frontdoor.forwarding.WAIT_MS_MAX", 10)
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")])
    client = cluster.client()
    client.ask(3, 9, joined(metadata.encode_request(request, 9)))
    await until(lambda: bool(client.answers))
    response = metadata.decode_response(client.answers[0].body, 9)
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [(7, "door", 9092)]
    assert response.controller_id == 7
    assert response.cluster_id == cluster.cluster_id, "librdkafka's process ends at a null"


@pytest.mark.parametrize(("version", "topics"), [(0, []), (9, None)])
async def test_metadata_of_all_topics_is_never_answered_by_a_guess(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, version: int, topics: list[object] | None
) -> None:
    monkeypatch.setattr("kafscale.frontdoor.forwarding.WAIT_MS_MAX", 10)
    client = cluster.client()
    client.ask(3, version, joined(metadata.encode_request(metadata.MetadataRequest(topics=topics), version)))  # type: ignore[arg-type]
    await until(lambda: client.hung_up)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (ReplyStatus.LOST, ErrorCode.REQUEST_TIMED_OUT),
        (ReplyStatus.FAILED, ErrorCode.REQUEST_TIMED_OUT),
        (ReplyStatus.EXPIRED, ErrorCode.NOT_CONTROLLER),
    ],
)
async def test_a_change_is_made_once_and_its_client_learns_whether_it_may_have_happened(
    cluster: Cluster, status: ReplyStatus, code: ErrorCode
) -> None:
    cluster.serve(Backend.ADMIN, 1, 2)
    client = cluster.client()
    request = create_topics.CreateTopicsRequest(topics=[create_topics.CreateTopicsRequestTopic("t", 1, 1)])
    client.ask(19, 7, joined(create_topics.encode_request(request, 7)))
    (sent,) = [one for stream in cluster.streams.values() for one in stream.sent]
    sent.reply(status=status)
    await settled()
    response = create_topics.decode_response(client.answers[0].body, 7)
    assert response.topics[0].error_code == code
    assert sum(len(stream.sent) for stream in cluster.streams.values()) == 1


def one_fetch_service_is_asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> tuple[FakeClient, FakeStream]:
    """A ListOffsets under way, which is sent again soon after it is lost."""
    monkeypatch.setattr("kafscale.frontdoor.forwarding.RETRY_S", 0.001)
    cluster.serve(Backend.FETCH, 1)
    client = cluster.client()
    client.ask(2, 1, joined(list_offsets.encode_request(list_offsets.ListOffsetsRequest(), 1)))
    (stream,) = cluster.streams.values()
    return client, stream


def was_asked(stream: FakeStream, times: int) -> bool:
    return len(stream.sent) >= times


async def test_an_instance_that_cannot_be_reached_yet_is_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is registered a moment before it can be reached: its first connections may fail."""
    client, stream = one_fetch_service_is_asked(cluster, monkeypatch)
    for failures in range(3 * LOSSES_MAX):
        await until(partial(was_asked, stream, failures + 1))
        stream.sent[-1].lose(sent=False)
    await until(partial(was_asked, stream, 3 * LOSSES_MAX + 1))
    assert not client.answers
    stream.sent[-1].reply(b"at last")
    await settled()
    assert client.answers[0].body == b"at last"


async def test_what_is_too_large_for_a_stream_is_refused_for_good_and_asked_once(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1, 2)
    client = cluster.client()
    topics = [metadata.MetadataRequestTopic(name="t")]
    client.ask(3, 9, joined(metadata.encode_request(metadata.MetadataRequest(topics=topics), 9)))
    streams = [cluster.stream(Backend.ADMIN, node, CONTROL) for node in (1, 2)]
    (sent,) = [sent for stream in streams for sent in stream.sent]
    sent.reply(status=ReplyStatus.TOO_LARGE)
    await settled()
    assert sum(len(stream.sent) for stream in streams) == 1
    (topic,) = metadata.decode_response(client.answers[0].body, 9).topics
    assert topic.error_code == INVALID_REQUEST


async def test_a_question_that_every_instance_loses_is_given_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, stream = one_fetch_service_is_asked(cluster, monkeypatch)
    for losses in range(LOSSES_MAX):
        await until(partial(was_asked, stream, losses + 1))
        stream.sent[-1].lose(sent=True)
    await until(lambda: bool(client.answers))
    assert len(stream.sent) == LOSSES_MAX


async def test_a_question_that_was_lost_is_asked_again_elsewhere(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    client = cluster.client()
    client.ask(3, 9, joined(metadata.encode_request(metadata.MetadataRequest(topics=[]), 9)))
    cluster.stream(Backend.ADMIN, 1, CONTROL).sent[0].lose(sent=True)
    cluster.serve(Backend.ADMIN, 2)
    other = cluster.stream(Backend.ADMIN, 2, CONTROL)
    await until(lambda: bool(other.sent))
    other.sent[0].reply(b"ok")
    await settled()
    assert client.answers[0].body == b"ok"


async def test_a_service_that_refuses_because_it_leaves_is_passed_over(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    client = cluster.client()
    client.ask(19, 7, joined(create_topics.encode_request(create_topics.CreateTopicsRequest(), 7)))
    cluster.stream(Backend.ADMIN, 1, CONTROL).sent[0].reply(status=ReplyStatus.REFUSED)
    cluster.serve(Backend.ADMIN, 2)
    other = cluster.stream(Backend.ADMIN, 2, CONTROL)
    await until(lambda: bool(other.sent))


async def test_a_connection_stays_with_its_admin_while_it_is_ready(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1, 2, 3)
    client = cluster.client()
    for _ in range(4):
        request = describe_cluster.DescribeClusterRequest()
        client.ask(60, 1, joined(describe_cluster.encode_request(request, 1)))
    assert sorted(len(stream.sent) for stream in cluster.streams.values()) == [4]


class FakeSpan:
    traceparent = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: dict[str, str | int] = {}
        self.ended = 0

    def set(self, name: str, value: str | int) -> None:
        self.fields[name] = value

    def child(self, name: str, *_: object, **_more: object) -> "FakeSpan":
        return FakeSpan(name)

    def end(self) -> None:
        self.ended += 1


class FakeTracer:
    """Samples every request."""

    def __init__(self) -> None:
        self.spans: list[FakeSpan] = []

    def start_root(self, name: str, attributes: object = None) -> FakeSpan:
        self.spans.append(FakeSpan(name))
        return self.spans[-1]


async def test_a_trace_begins_at_the_front_door_and_goes_on_in_the_service(cluster: Cluster) -> None:
    tracer = FakeTracer()
    cluster.door.gateway._tracer = tracer  # type: ignore[assignment]
    cluster.serve(Backend.ADMIN, 1)
    client = cluster.client()
    client.ask(3, 9, joined(metadata.encode_request(metadata.MetadataRequest(topics=[]), 9)))
    (sent,) = cluster.stream(Backend.ADMIN, 1, CONTROL).sent
    assert sent.meta.traceparent == FakeSpan.traceparent
    (span,) = tracer.spans
    assert (span.name, span.ended) == ("Metadata v9", 0)
    assert (span.fields["kafka.api"], span.fields["kafka.client_id"]) == ("Metadata", "test")
    sent.reply(b"x")
    await settled()
    assert (span.ended, span.fields["kafscale.outcome"], span.fields["kafscale.response_bytes"]) == (
        1,
        "answered",
        1,
    )
    gone = cluster.client()
    gone.ask(3, 9, joined(metadata.encode_request(metadata.MetadataRequest(topics=[]), 9)))
    gone.leave()
    assert (tracer.spans[1].ended, tracer.spans[1].fields["kafscale.outcome"]) == (1, "abandoned")
