"""CreateTopics (19): v0-7.   v1 validate_only · v4 -1 for defaults (KIP-464) · v5 configs answered (KIP-525) · v7 ids

Per topic: TOPIC_ALREADY_EXISTS (also while a topic with the name is being deleted), INVALID_TOPIC_EXCEPTION (also for
the names of Kafka's own state; INVALID_REQUEST for `__cluster_metadata`, as in Kafka), INVALID_PARTITIONS,
INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST for a name that is given twice,
POLICY_VIOLATION for more than 10,000 partitions in a request (for all of its topics, as in Kafka) or beyond the
cluster's limits, REQUEST_TIMED_OUT if the outcome is unknown. Assignments give the number of partitions. The brokers in
them are ignored, because every front door serves every partition. TOPIC_AUTHORIZATION_FAILED for a topic that the
client may not create, whether it exists or not. Without the right to describe its configs, the answer has no configs
and no counts, and that error in `topic_config_error_code`. THROTTLING_QUOTA_EXCEEDED from v6 on, for topics beyond the
client's controller_mutation_rate.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import structlog
from kafscale.access.rules import Side, needs_of
from kafscale.admin.config_table import ConfigKey
from kafscale.admin.configs import TOPIC_CONFIGS
from kafscale.admin.context import AdminContext
from kafscale.admin.errors import guarded
from kafscale.admin.mutation_quotas import MutationQuota
from kafscale.admin.plan import Assignment, NewTopic, Refused
from kafscale.admin.topic_limits import PARTITIONS_PER_REQUEST, TOO_MANY_AT_ONCE
from kafscale.admin.topics import draft
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_topics as api

log = structlog.get_logger(__name__)

NEEDS = needs_of(ApiKey.CREATE_TOPICS, Side.SERVICE)
CREATE, DESCRIBE_CONFIGS = NEEDS
UNAUTHORIZED = Refused(CREATE.code, "Authorization failed.")
"""With Kafka's words, which are others than in DeleteTopics (ControllerApis.createTopics)."""
CREATIONS_AT_ONCE = 16
UNKNOWN_COUNT = -1
NO_ID = TopicId(bytes(16))
STRICT_FROM = 6


@answering_with_meta(api)
async def handler(
    context: AdminContext, request: api.CreateTopicsRequest, meta: RequestMeta
) -> api.CreateTopicsResponse:
    asker, quota = context.authorization.of(meta), context.mutation_quotas.of(meta, strict_from=STRICT_FROM)
    names = Counter(topic.name for topic in request.topics)
    once = [name for name, times in names.items() if times == 1]
    denied, hidden = asker.denied(CREATE, once), asker.denied(DESCRIBE_CONFIGS, once)
    slots = asyncio.Semaphore(CREATIONS_AT_ONCE)
    allowed = (topic for topic in request.topics if topic.name not in denied)
    excessive = sum(map(_partitions, allowed)) > PARTITIONS_PER_REQUEST

    async def one(asked: api.CreateTopicsRequestTopic) -> api.CreateTopicsResponseTopicResult:
        if names[asked.name] > 1:
            twice = Refused(
                ErrorCode.INVALID_REQUEST, "Create topics request has topic named more than once."
            )
            return _answer(asked, twice)
        if asked.name in denied:
            return _answer(asked, UNAUTHORIZED)
        if excessive:
            return _answer(asked, TOO_MANY_AT_ONCE)
        async with slots:
            answer = _answer(asked, await _create(context, request, asked, quota))
        return _without_configs(answer) if asked.name in hidden else answer

    unique = {topic.name: topic for topic in request.topics}.values()
    results = await asyncio.gather(*(one(asked) for asked in unique))
    return api.CreateTopicsResponse(throttle_time_ms=quota.throttle_ms, topics=list(results))


def _partitions(asked: api.CreateTopicsRequestTopic) -> int:
    """At least one, also for a topic that is refused later: the answer has configs for each topic."""
    return max(1, asked.num_partitions, len(asked.assignments))


async def _create(
    context: AdminContext,
    request: api.CreateTopicsRequest,
    asked: api.CreateTopicsRequestTopic,
    quota: MutationQuota,
) -> Topic | Refused:
    new = NewTopic(
        name=asked.name,
        partitions=asked.num_partitions,
        replication_factor=asked.replication_factor,
        assignments=[
            Assignment(each.partition_index, len(set(each.broker_ids))) for each in asked.assignments
        ],
        configs={config.name: config.value for config in asked.configs},
    )
    if request.validate_only or quota.limits:
        count = await guarded(context.store.check(new))
        if isinstance(count, Refused):
            return count
        if (excessive := quota.take(count)) is not None:
            return excessive
        if request.validate_only:
            return replace(draft(new, count, 0, 0), topic_id=NO_ID)
    created = await guarded(context.store.create(new, context.clock.wall_ms()))
    if asked.assignments and isinstance(created, Topic):
        log.info("replica assignments ignored", topic=asked.name, partitions=created.partitions)
    return created


def _answer(
    asked: api.CreateTopicsRequestTopic, outcome: Topic | Refused
) -> api.CreateTopicsResponseTopicResult:
    match outcome:
        case Refused():
            return api.CreateTopicsResponseTopicResult(
                name=asked.name, error_code=outcome.error, error_message=outcome.message
            )
        case Topic():
            return api.CreateTopicsResponseTopicResult(
                name=asked.name,
                topic_id=outcome.topic_id,
                error_message=None,
                num_partitions=outcome.partitions,
                replication_factor=outcome.replicas,
                configs=_configs(outcome.configs),
            )


def _without_configs(
    answer: api.CreateTopicsResponseTopicResult,
) -> api.CreateTopicsResponseTopicResult:
    """The client may not describe the topic's configs."""
    if answer.error_code == ErrorCode.NONE:
        answer.topic_config_error_code = DESCRIBE_CONFIGS.code
        answer.num_partitions = answer.replication_factor = UNKNOWN_COUNT
        answer.configs = []
    return answer


def _configs(chosen: Mapping[str, str]) -> list[api.CreateTopicsResponseTopicConfigs]:
    return [
        api.CreateTopicsResponseTopicConfigs(
            name=key.name,
            value=chosen[key.name],
            read_only=False,
            config_source=TOPIC_CONFIGS.source,
        )
        if key.name in chosen
        else _default(key)
        for key in TOPIC_CONFIGS.shown(chosen)
    ]


@cache
def _default(key: ConfigKey) -> api.CreateTopicsResponseTopicConfigs:
    """Cached and read-only: a request may create thousands of topics."""
    return api.CreateTopicsResponseTopicConfigs(
        name=key.name, value=key.default, read_only=False, config_source=key.default_source
    )
