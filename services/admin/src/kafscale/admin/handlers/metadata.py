"""Metadata (3): v0-13.   v1 null = all, empty = none · v4 auto-creation flag · v7 leader epochs · v8 authorized
operations (KIP-430) · v10 topic ids · v12 topics by id · v13 error of the whole answer

Creates unknown topics that the request names, a few with each request, if the request and the server allow it. As in
Kafka, this answer still has UNKNOWN_TOPIC_OR_PARTITION, and the next one has the partitions. A topic that is named
twice is answered once. The topics of Kafka's own state (`RESERVED_NAMES`) are never created.
Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION (never created), POLICY_VIOLATION (the
cluster's limit), KAFKA_STORAGE_ERROR (the topic's record is damaged), LEADER_NOT_AVAILABLE while no front door is
registered, INVALID_REQUEST for topics that do not fit into the answer. If all topics were requested and do not fit, v13
has INVALID_REQUEST for the whole answer. Earlier versions have no field for it, so the connection is closed.
A topic that the client may not describe is TOPIC_AUTHORIZATION_FAILED: without its id if it was named, without its name
if it was requested by its id. If all topics were requested, it is left out. A topic that the client may not create has
that error too.
Brokers, leaders and epochs come from watched views.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Self

import structlog
from kafscale.access.acl import ResourceType
from kafscale.access.rules import Side, needs_of
from kafscale.admin.cluster_view import (
    active,
    active_by_name,
    brokers_of,
    controller_of,
    leader_epoch,
)
from kafscale.admin.context import AdminContext
from kafscale.admin.plan import RESERVED_NAMES, invalid_topic_name
from kafscale.runtime.answer_room import TOO_LARGE, AnswerRoom
from kafscale.runtime.authorization import Asker
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.storage.brokers import Broker, leader_of, replicas_of
from kafscale.storage.topics import INTERNAL_TOPICS, Topic, TopicState
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import metadata as api

log = structlog.get_logger(__name__)

NEEDS = needs_of(ApiKey.METADATA, Side.SERVICE)
OF_NAMED, OF_IDS, OF_ALL, OF_CREATION = NEEDS
NO_ID = bytes(16)
NULL_PADDED = 4
PADDED_LENGTH = {9: 8, 10: 8, 11: 7, 12: 7, 13: 7}  # by version: this null, two or three flags, no tags
ERROR_OF_ALL_FROM = 13
TOPIC_BYTES, PARTITION_BYTES, REPLICA_BYTES = 40, 26, 8
"""On the wire, at most, a topic without its name, and a partition without its replicas."""
WITHOUT_OPERATIONS = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
"""Errors of topics that the client must not know, or that have no name."""
PARTITIONS_PER_TURN = 2_000
"""Per iteration of the event loop."""
NO_REPLICAS: list[int] = []
"""Shared by all partitions, and never changed."""


def handler(context: AdminContext) -> AsyncHandler:
    async def metadata(inbound: InboundRequest) -> Sequence[Buffer]:
        version = inbound.meta.api_version
        request = api.decode_request(_without_padding(inbound.body, version), version)
        brokers = await brokers_of(context, inbound.meta.listener)
        asker = context.authorization.of(inbound.meta)
        async with _Pages(context, brokers) as pages:
            answer = await _answer(context, request, version, pages, asker)
            return answered(inbound, answer, api.encode_response)

    return metadata


def _without_padding(body: memoryview, version: int) -> Buffer:
    """librdkafka 2 reserves four bytes for the count of topics and then writes null, which takes one byte, if it
    requests all topics. Kafka ignores the bytes that remain at the end and misreads the flags. No other client's
    request has this length."""
    if len(body) == PADDED_LENGTH.get(version) and body[:NULL_PADDED] == bytes(NULL_PADDED):
        return bytes(body[NULL_PADDED - 1 :])
    return body


async def _answer(
    context: AdminContext, request: api.MetadataRequest, version: int, pages: _Pages, asker: Asker
) -> api.MetadataResponse:
    answer = api.MetadataResponse(
        brokers=[
            api.MetadataResponseBroker(node_id=b.node_id, host=b.host, port=b.port, rack=b.rack)
            for b in pages.brokers
        ],
        cluster_id=context.cluster_id,
        controller_id=controller_of(pages.brokers),
    )
    if request.topics is None or (version == 0 and not request.topics):
        await _fill_with_all(answer, pages, _visible(active(context), asker), version)
    else:
        answer.topics = await _named(context, request, pages, asker)
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = asker.operations(ResourceType.CLUSTER)
    if request.include_topic_authorized_operations:
        for topic in answer.topics:
            if topic.error_code not in WITHOUT_OPERATIONS:
                topic.topic_authorized_operations = asker.operations(ResourceType.TOPIC, topic.name or "")
    return answer


def _visible(topics: Sequence[Topic], asker: Asker) -> Sequence[Topic]:
    hidden = asker.denied(OF_ALL, (topic.name for topic in topics))
    return [topic for topic in topics if topic.name not in hidden] if hidden else topics


async def _fill_with_all(
    answer: api.MetadataResponse, pages: _Pages, topics: Sequence[Topic], version: int
) -> None:
    """All topics or none: a client treats a missing topic as deleted."""
    if pages.fit(topics):
        answer.topics = [await pages.topic(topic) for topic in topics]
        return
    why = pages.room.refusal
    log.warning("metadata of all topics refused", topics=len(topics), reason=why)
    if version < ERROR_OF_ALL_FROM:
        raise WireError("Metadata", why, version=version)
    answer.error_code = TOO_LARGE


async def _named(
    context: AdminContext, request: api.MetadataRequest, pages: _Pages, asker: Asker
) -> list[api.MetadataResponseTopic]:
    asked = list({(topic.topic_id, topic.name): topic for topic in request.topics or []}.values())
    hidden = asker.denied(OF_NAMED, (topic.name or "" for topic in asked if topic.topic_id == NO_ID))
    found = [_found(context, topic, hidden, asker) for topic in asked]
    created: Mapping[str, ErrorCode] = {}
    if request.allow_auto_topic_creation and context.auto_creation.enabled:
        missing = [name for name in found if isinstance(name, str) and name not in RESERVED_NAMES]
        refused = asker.denied(OF_CREATION, missing)
        created = await context.auto_creation.create(
            [name for name in missing if name not in refused], context.clock.wall_ms()
        )
        created = {**created, **dict.fromkeys(refused, OF_CREATION.code)}
    answers = []
    for outcome in found:
        match outcome:
            case Topic():
                answers.append(await pages.topic(outcome) if pages.fit([outcome]) else pages.refused(outcome))
            case str():
                code = created.get(outcome, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                answers.append(
                    api.MetadataResponseTopic(
                        error_code=code, name=outcome, is_internal=outcome in INTERNAL_TOPICS
                    )
                )
            case api.MetadataResponseTopic():
                answers.append(outcome)
    return answers


def _found(
    context: AdminContext, asked: api.MetadataRequestTopic, hidden: Collection[str], asker: Asker
) -> Topic | str | api.MetadataResponseTopic:
    """The topic, or the name of a topic that may be created, or the answer for this topic. `hidden`: the names of
    topics that the client may not describe."""
    if asked.topic_id != NO_ID:
        topic = context.topics.by_id(asked.topic_id)
        error = ErrorCode.UNKNOWN_TOPIC_ID
        if topic is not None and topic.state is TopicState.ACTIVE:
            if asker.allows(OF_IDS, topic.name):
                return topic
            error = OF_IDS.code
        return api.MetadataResponseTopic(error_code=error, name=None, topic_id=asked.topic_id)
    name = asked.name or ""
    if name in hidden:
        return api.MetadataResponseTopic(error_code=OF_NAMED.code, name=name)
    if invalid_topic_name(name) is not None:
        return api.MetadataResponseTopic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=name)
    if context.topics.is_damaged(name):
        # The topic exists: clients must keep waiting for it, and it must not be created again.
        return api.MetadataResponseTopic(error_code=ErrorCode.KAFKA_STORAGE_ERROR, name=name)
    if context.topics.by_name(name) is None:
        return name
    return active_by_name(context, name) or api.MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name
    )


class _Pages:
    """Builds the topics of one answer, with the brokers of the client's listener.

    Answers that take more than one iteration of the event loop are built one after another. Many large answers at the
    same time would need many times the memory of one.
    """

    def __init__(self, context: AdminContext, brokers: tuple[Broker, ...]) -> None:
        self.room = AnswerRoom(context.settings.answer_bytes_max)
        self._context = context
        self.brokers = brokers
        self._replicas: dict[tuple[int, int], list[int]] = {}  # by leader and count; shared by all partitions
        self._turn = PARTITIONS_PER_TURN
        self._is_large = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._is_large:
            self._context.large_answers.release()

    def fit(self, topics: Iterable[Topic]) -> bool:
        return self.room.take(
            sum(
                TOPIC_BYTES
                + len(topic.name)
                + (PARTITION_BYTES + REPLICA_BYTES * topic.replicas) * topic.partitions
                for topic in topics
            )
        )

    def refused(self, topic: Topic) -> api.MetadataResponseTopic:
        """For a topic that does not fit. An error is not larger than the request's entry, and is not counted."""
        return api.MetadataResponseTopic(error_code=TOO_LARGE, name=topic.name, topic_id=topic.topic_id)

    async def topic(self, topic: Topic) -> api.MetadataResponseTopic:
        partitions, replicas = [], topic.replicas
        for number in range(topic.partitions):
            partitions.append(self._partition(topic, number, replicas))
            self._turn -= 1
            if not self._turn:
                await self._next_turn()
        return api.MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
        )

    async def _next_turn(self) -> None:
        self._turn = PARTITIONS_PER_TURN
        if not self._is_large:
            await self._context.large_answers.acquire()
            self._is_large = True
        await asyncio.sleep(0)

    def _partition(self, topic: Topic, number: int, count: int) -> api.MetadataResponsePartition:
        if not self.brokers:
            return api.MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=number,
                leader_id=-1,
                offline_replicas=NO_REPLICAS,
            )
        leader = leader_of(topic.topic_id, number, self.brokers)
        replicas = self._replicas.get((leader, count))
        if replicas is None:
            replicas = self._replicas[leader, count] = replicas_of(leader, count, self.brokers)
        return api.MetadataResponsePartition(
            partition_index=number,
            leader_id=leader,
            leader_epoch=leader_epoch(self._context, topic, number),
            replica_nodes=replicas,
            isr_nodes=replicas,
            offline_replicas=NO_REPLICAS,
        )
