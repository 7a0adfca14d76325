"""CreatePartitions (37): v0-3.   v3 throttling error

An equal or lower count is INVALID_PARTITIONS. Assignments are checked (one for each new partition) and then ignored,
because every front door serves every partition. TOPIC_AUTHORIZATION_FAILED; UNKNOWN_TOPIC_OR_PARTITION;
POLICY_VIOLATION for more than 10,000 new partitions in a request, or beyond the cluster's limit.
THROTTLING_QUOTA_EXCEEDED from v3 on, for topics beyond the client's controller_mutation_rate.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import structlog
from kafscale.access.rules import Side, needs_of
from kafscale.admin import plan
from kafscale.admin.cluster_view import active_by_name
from kafscale.admin.context import AdminContext
from kafscale.admin.errors import guarded, unauthorized
from kafscale.admin.mutation_quotas import MutationQuota
from kafscale.admin.plan import Refused
from kafscale.admin.resources import unknown_topic
from kafscale.admin.topic_limits import PARTITIONS_PER_REQUEST, TOO_MANY_AT_ONCE
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.topics import Topic
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_partitions as api

log = structlog.get_logger(__name__)

NEEDS = needs_of(ApiKey.CREATE_PARTITIONS, Side.SERVICE)
(ALTER,) = NEEDS
STRICT_FROM = 3


@answering_with_meta(api)
async def handler(
    context: AdminContext, request: api.CreatePartitionsRequest, meta: RequestMeta
) -> api.CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    once = (name for name, count in times.items() if count == 1)
    denied = context.authorization.of(meta).denied(ALTER, once)
    allowed = (topic for topic in request.topics if topic.name not in denied)
    excessive = sum(_added(context, topic) for topic in allowed) > PARTITIONS_PER_REQUEST
    quota = context.mutation_quotas.of(meta, strict_from=STRICT_FROM)
    results = []
    for asked in {topic.name: topic for topic in request.topics}.values():
        outcome: Topic | Refused
        if times[asked.name] > 1:
            outcome = Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        elif asked.name in denied:
            outcome = unauthorized(ALTER)
        elif excessive:
            outcome = TOO_MANY_AT_ONCE
        else:
            outcome = await _change(context, asked, quota, only_validate=request.validate_only)
        results.append(_answer(asked.name, outcome))
    return api.CreatePartitionsResponse(throttle_time_ms=quota.throttle_ms, results=results)


async def _change(
    context: AdminContext,
    asked: api.CreatePartitionsRequestTopic,
    quota: MutationQuota,
    *,
    only_validate: bool,
) -> Topic | Refused:
    if only_validate or quota.limits:
        added, valid = _added(context, asked), _validate(context, asked)
        outcome = valid if isinstance(valid, Refused) else quota.take(added) or valid
        if only_validate or isinstance(outcome, Refused):
            return outcome
    changed = await guarded(context.store.change(asked.name, partial(_grow, asked)))
    if asked.assignments and isinstance(changed, Topic):
        log.info("replica assignments ignored", topic=asked.name, partitions=changed.partitions)
    return changed


def _added(context: AdminContext, asked: api.CreatePartitionsRequestTopic) -> int:
    topic = active_by_name(context, asked.name)
    return max(0, asked.count - topic.partitions) if topic is not None else 0


def _validate(context: AdminContext, asked: api.CreatePartitionsRequestTopic) -> Topic | Refused:
    topic = active_by_name(context, asked.name)
    return unknown_topic(asked.name) if topic is None else _grow(asked, topic)


def _grow(asked: api.CreatePartitionsRequestTopic, topic: Topic) -> Topic | Refused:
    grown = plan.grow(topic, asked.count)
    new = asked.count - topic.partitions
    if isinstance(grown, Topic) and asked.assignments is not None and len(asked.assignments) != new:
        return Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Increasing the number of partitions by {new} but {len(asked.assignments)} assignments provided.",
        )
    return grown


def _answer(name: str, outcome: Topic | Refused) -> api.CreatePartitionsResponseTopicResult:
    if isinstance(outcome, Refused):
        return api.CreatePartitionsResponseTopicResult(
            name=name, error_code=outcome.error, error_message=outcome.message
        )
    return api.CreatePartitionsResponseTopicResult(name=name)
