"""Connections and the rest of the APIs: bounds, deadlines, refusals, forwarding, the end of connections."""

import asyncio
from struct import pack

import pytest
from door_harness import Cluster, FakeClient, settled, until
from kafscale.frontdoor.routes import BY_KEY, ROWS, Backend, Status
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)

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


async def test_what_is_not_served_is_listed_as_not_offered(cluster: Cluster) -> None:
    client = cluster.client()
    client.ask(18, 4, joined(api_versions.encode_request(api_versions.ApiVersionsRequest("probe", "1"), 4)))
    await settled()
    response = api_versions.decode_response(client.answers[0].body, 4)
    shown = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    assert shown == {
        int(row.key): (row.version_min, row.version_max) if row.status is Status.SERVED else (-1, -1)
        for row in ROWS
    }
    assert shown[ApiKey.PRODUCE] == (0, 13)
    assert shown[ApiKey.JOIN_GROUP] == (-1, -1)


@pytest.mark.parametrize(("name", "code"), [("kafka-python", 0), ("", 42), ("-x", 42), ("a b", 42)])
async def test_a_software_name_that_kafka_would_refuse_is_refused(
    cluster: Cluster, name: str, code: int
) -> None:
    client = cluster.client()
    client.ask(18, 3, joined(api_versions.encode_request(api_versions.ApiVersionsRequest(name, "1.0"), 3)))
    await settled()
    assert api_versions.decode_response(client.answers[0].body, 3).error_code == code


@pytest.mark.parametrize("key", [int(row.key) for row in ROWS if row.status is not Status.SERVED])
async def test_an_api_that_is_not_served_ends_the_connection(cluster: Cluster, key: int) -> None:
    client = cluster.client()
    client.ask(key, BY_KEY[key].version_max, b"\0" * 8)
    assert client.hung_up


REFUSED = [
    (
        2,
        0,
        list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsRequestTopic("t", [])]),
        list_offsets,
    ),
    (20, 0, delete_topics.DeleteTopicsRequest(topic_names=["t"]), delete_topics),
    (19, 1, create_topics.CreateTopicsRequest(), create_topics),
    (23, 1, offset_for_leader_epoch.OffsetForLeaderEpochRequest(), offset_for_leader_epoch),
    (32, 0, describe_configs.DescribeConfigsRequest(), describe_configs),
]


@pytest.mark.parametrize(("key", "version", "message", "schema"), REFUSED)
async def test_a_version_below_ours_gets_the_error_in_its_own_shape(
    cluster: Cluster, key: int, version: int, message: object, schema: object
) -> None:
    client = cluster.client()
    client.ask(key, version, joined(schema.encode_request(message, version)))  # type: ignore[attr-defined]
    await settled()
    assert not client.hung_up
    schema.decode_response(client.answers[0].body, version)  # type: ignore[attr-defined]
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
    (37, 3, create_partitions.CreatePartitionsRequest(), Backend.ADMIN),
    (32, 4, describe_configs.DescribeConfigsRequest(), Backend.ADMIN),
    (33, 2, alter_configs.AlterConfigsRequest(), Backend.ADMIN),
    (44, 1, incremental_alter_configs.IncrementalAlterConfigsRequest(), Backend.ADMIN),
]
SCHEMAS = {
    3: metadata,
    10: find_coordinator,
    22: init_producer_id,
    2: list_offsets,
    23: offset_for_leader_epoch,
    19: create_topics,
    20: delete_topics,
    37: create_partitions,
    32: describe_configs,
    33: alter_configs,
    44: incremental_alter_configs,
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
}


def code_of(key: int, response: object) -> int:
    match key:
        case 3:
            return response.topics[0].error_code  # type: ignore[attr-defined, no-any-return]
        case 10 | 22:
            return response.error_code  # type: ignore[attr-defined, no-any-return]
        case 19:
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
    version = 3 if key == 10 else BY_KEY[key].version_max
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


@pytest.mark.parametrize(("version", "topics"), [(0, []), (9, None)])
async def test_metadata_of_all_topics_is_never_answered_by_a_guess(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, version: int, topics: list[object] | None
) -> None:
    monkeypatch.setattr("kafscale.frontdoor.forwarding.WAIT_MS_MAX", 10)
    client = cluster.client()
    client.ask(3, version, joined(metadata.encode_request(metadata.MetadataRequest(topics=topics), version)))  # type: ignore[arg-type]
    await until(lambda: client.hung_up)


async def test_a_change_that_may_have_happened_is_not_made_twice(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1, 2)
    client = cluster.client()
    request = create_topics.CreateTopicsRequest(topics=[create_topics.CreateTopicsRequestTopic("t", 1, 1)])
    client.ask(19, 7, joined(create_topics.encode_request(request, 7)))
    (sent,) = [one for stream in cluster.streams.values() for one in stream.sent]
    sent.lose(sent=True)
    await settled()
    response = create_topics.decode_response(client.answers[0].body, 7)
    assert response.topics[0].error_code == 7
    assert sum(len(stream.sent) for stream in cluster.streams.values()) == 1


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
        client.ask(3, 9, joined(metadata.encode_request(metadata.MetadataRequest(topics=[]), 9)))
    assert sorted(len(stream.sent) for stream in cluster.streams.values()) == [4]


async def test_a_pipeline_of_many_requests_is_answered_in_order_and_in_few_writes(cluster: Cluster) -> None:
    client = cluster.client()
    client.feed(b"".join(client.frame(18, 0, b"") for _ in range(1000)))
    await until(lambda: len(client.answers) == 1000)
    assert [answer.correlation_id for answer in client.answers] == list(range(1, 1001))
    assert client.transport.writes <= 5
    assert client.transport.reading


async def test_past_its_bound_of_requests_a_connection_is_not_read() -> None:
    async with Cluster.running(frontdoor_requests_max=3) as cluster:
        cluster.serve(Backend.ADMIN, 1)
        client = cluster.client()
        body = joined(metadata.encode_request(metadata.MetadataRequest(topics=[]), 9))
        client.feed(b"".join(client.frame(3, 9, body) for _ in range(5)))
        stream = cluster.stream(Backend.ADMIN, 1, CONTROL)
        assert len(stream.sent) == 3
        assert not client.transport.reading
        stream.sent[1].reply(b"second")
        await settled()
        assert len(stream.sent) == 3, "an answer that cannot be sent yet makes no room"
        stream.sent[0].reply(b"first")
        await settled()
        assert len(stream.sent) == 5
        assert not client.transport.reading
        for one in stream.sent[2:]:
            one.reply(b"more")
        await settled()
        assert client.transport.reading
        assert len(client.answers) == 5


async def test_while_requests_fill_the_memory_nobody_is_read_and_everybody_goes_on_after() -> None:
    async with Cluster.running(memory_bytes=16 << 20) as cluster:
        topic = cluster.topics.add("t", 1, 1)
        cluster.serve(Backend.PRODUCE, 1)
        cluster.own(topic, 0, 1)
        full, other = cluster.client(), cluster.client()
        full.produce(("t", 0, bytes(9 << 20)))
        other.produce(("t", 0, b"small"))
        assert (full.transport.reading, other.transport.reading) == (False, False)
        cluster.producer(1).sent[0].append()
        await settled()
        assert (full.transport.reading, other.transport.reading) == (True, True)
        cluster.producer(1).sent[1].append()
        await settled()
        await until(lambda: cluster.door.gateway._budget.used_bytes == 0)


async def test_who_sends_to_an_instance_that_takes_nothing_is_not_read_until_it_does(
    cluster: Cluster,
) -> None:
    topic = cluster.topics.add("t", 1, 2)
    cluster.serve(Backend.PRODUCE, 1, 2)
    cluster.own(topic, 0, 1)
    cluster.own(topic, 1, 2)
    stuck, other = cluster.client(), cluster.client()
    cluster.producer(1).full = True
    stuck.produce(("t", 0, b"a"))
    other.produce(("t", 1, b"b"))
    assert (stuck.transport.reading, other.transport.reading) == (False, True)
    cluster.producer(1).full = False
    cluster.producer(1).room.set()
    await settled()
    assert stuck.transport.reading


async def test_a_client_that_does_not_take_its_answers_is_not_read(cluster: Cluster) -> None:
    client = cluster.client()
    client.connection.pause_writing()
    assert not client.transport.reading
    client.feed(client.frame(18, 0, b""))
    await settled()
    assert client.answers == []
    client.connection.resume_writing()
    await settled()
    assert len(client.answers) == 1
    assert client.transport.reading


async def test_what_a_half_closed_client_has_asked_is_still_answered(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    client = cluster.client()
    client.ask(3, 9, joined(metadata.encode_request(metadata.MetadataRequest(topics=[]), 9)))
    assert client.connection.eof_received() is True
    assert not client.hung_up
    cluster.stream(Backend.ADMIN, 1, CONTROL).sent[0].reply(b"late")
    await settled()
    assert client.answers[0].body == b"late"
    assert client.hung_up


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", pack(">i", -1)])
async def test_junk_ends_its_connection_alone(cluster: Cluster, junk: bytes) -> None:
    bad, good = cluster.client(), cluster.client()
    good.feed(good.frame(18, 0, b""))
    bad.feed(junk)
    await settled()
    assert bad.hung_up
    assert not good.hung_up
    assert len(good.answers) == 1


async def test_answers_that_were_ready_are_sent_before_junk_ends_the_connection(cluster: Cluster) -> None:
    client = cluster.client()
    client.feed(client.frame(18, 0, b"") + pack(">i", -1))
    await settled()
    assert client.hung_up
    assert len(client.answers) == 1


async def test_too_many_connections_are_turned_away_at_the_door() -> None:
    async with Cluster.running(max_connections=2) as cluster:
        first, second, third = cluster.client(), cluster.client(), cluster.client()
        assert [client.hung_up for client in (first, second, third)] == [False, False, True]
        await settled()
        first.leave()
        assert not cluster.client().hung_up


async def test_a_request_without_an_answer_in_time_is_refused_and_cancelled() -> None:
    async with Cluster.running(frontdoor_request_timeout_ms=1_000) as cluster:
        cluster.serve(Backend.COORDINATOR, 1)
        client = cluster.client()
        request = init_producer_id.InitProducerIdRequest(transactional_id=None)
        client.ask(22, 4, joined(init_producer_id.encode_request(request, 4)))
        await until(lambda: bool(client.answers))
        assert init_producer_id.decode_response(client.answers[0].body, 4).error_code == 14
        assert cluster.stream(Backend.COORDINATOR, 1, CONTROL).sent[0].cancelled


async def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async with Cluster.running(connections_max_idle_ms=1_000) as cluster:
        cluster.serve(Backend.FETCH, 1)
        idle, busy = cluster.client(), cluster.client()
        busy.fetch(("t", 0), max_wait_ms=60_000)
        await until(lambda: idle.hung_up)
        assert not busy.hung_up


async def test_half_a_request_that_stands_still_ends_the_connection(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.frontdoor.client.MID_FRAME_IDLE_MS_MAX", 50)
    slow, whole = cluster.client(), cluster.client()
    slow.feed(slow.frame(18, 0, b"")[:7])
    whole.feed(whole.frame(18, 0, b""))
    await until(lambda: slow.hung_up)
    assert not whole.hung_up


async def test_a_request_that_comes_byte_by_byte_is_answered(cluster: Cluster) -> None:
    client = cluster.client()
    for byte in client.frame(18, 0, b""):
        client.feed(bytes([byte]))
    await settled()
    assert len(client.answers) == 1


async def test_a_drain_answers_what_is_open_and_turns_newcomers_away(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    idle, busy = cluster.client(), cluster.client()
    busy.ask(3, 9, joined(metadata.encode_request(metadata.MetadataRequest(topics=[]), 9)))
    drain = asyncio.ensure_future(cluster.door.gateway.drain(5_000))
    await settled()
    assert (idle.hung_up, busy.hung_up) == (True, False)
    assert cluster.client().hung_up
    cluster.stream(Backend.ADMIN, 1, CONTROL).sent[0].reply(b"bye")
    await drain
    assert busy.answers[0].body == b"bye"


async def test_a_drain_that_takes_too_long_cuts_off(cluster: Cluster) -> None:
    cluster.serve(Backend.ADMIN, 1)
    client = cluster.client()
    client.ask(3, 9, joined(metadata.encode_request(metadata.MetadataRequest(topics=[]), 9)))
    await cluster.door.gateway.drain(20)
    await settled()
    assert client.hung_up
    assert cluster.stream(Backend.ADMIN, 1, CONTROL).sent[0].cancelled


async def test_an_instance_that_is_gone_fails_what_it_still_has(cluster: Cluster) -> None:
    topic = cluster.topics.add("t", 1, 1)
    cluster.serve(Backend.PRODUCE, 1)
    cluster.own(topic, 0, 1)
    client = cluster.client()
    client.produce(("t", 0, b"a"))
    cluster.serve(Backend.PRODUCE, 2)
    await until(lambda: bool(client.answers))
    assert client.produced() == [("t", 0, 7, -1)]
    assert cluster.producer(1).closed


async def test_requests_errors_and_bytes_are_counted_by_api(cluster: Cluster) -> None:
    client: FakeClient = cluster.client()
    client.ask(18, 99, b"")
    client.ask(18, 0)
    await settled()
    stats = cluster.door.gateway.metrics.by_key[18]
    assert stats.requests.value == 2
    assert stats.in_bytes.value == 2 * (len(client.frame(18, 0, b"")) - 4) + 1, "the first has a tag count"
    assert stats.out_bytes.value == sum(len(answer.body) for answer in [*client.answers])
    errors = dict(cluster.door.gateway.metrics.errors.rows())
    assert errors["ApiVersions", "35"].value == 1


async def test_the_same_complaint_is_logged_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(20):
        cluster.client().feed(b"GET / HTTP/1.1\r\n\r\n")
    await settled()
    assert (capsys.readouterr().out).count("not a Kafka request") == 1
