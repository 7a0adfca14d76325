"""DeleteTopics (20): v0-6.   v5 error messages · v6 by topic id

Marks the topic, after which clients no longer see it. The answer waits until its objects are deleted and its name is
free, at most for the request's timeout. The deletion then continues. A topic that is named twice is answered once, with
INVALID_REQUEST, as in Kafka.
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST (name and id, or named twice), REQUEST_TIMED_OUT.
TOPIC_AUTHORIZATION_FAILED for a topic that the client may not delete, whether it exists or not; for an id with the
topic's name, if the client may describe it.
THROTTLING_QUOTA_EXCEEDED from v5 on, for topics beyond the client's controller_mutation_rate.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from functools import partial

from kafscale.access.rules import Side, needs_of
from kafscale.admin import plan
from kafscale.admin.cluster_view import active_by_name
from kafscale.admin.context import AdminContext
from kafscale.admin.errors import guarded, unauthorized
from kafscale.admin.mutation_quotas import MutationQuota
from kafscale.admin.plan import Refused
from kafscale.runtime.authorization import Asker
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.topics import Topic
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_topics as api

NEEDS = needs_of(ApiKey.DELETE_TOPICS, Side.SERVICE)
DESCRIBE, DELETE = NEEDS
BY_ID_FROM = 6
STRICT_FROM = 5
NO_ID = bytes(16)
WAIT_MAX_S = 30.0
MARKED_AT_ONCE = 16
UNKNOWN_ID = Refused(ErrorCode.UNKNOWN_TOPIC_ID, "This cluster has no topic with that id.")


@dataclass(frozen=True, slots=True)
class _Rights:
    """What the client may do, and `slots` for the topics that are marked at a time."""

    asker: Asker
    quota: MutationQuota
    slots: asyncio.Semaphore


@answering_with_meta(api)
async def handler(
    context: AdminContext, request: api.DeleteTopicsRequest, meta: RequestMeta
) -> api.DeleteTopicsResponse:
    version = meta.api_version
    asked = (
        request.topics
        if version >= BY_ID_FROM
        else [api.DeleteTopicsRequestTopicState(name=name) for name in request.topic_names]
    )
    times = Counter((topic.name, topic.topic_id) for topic in asked)
    unique = {(topic.name, topic.topic_id): topic for topic in asked}
    wait_s = min(max(request.timeout_ms, 0) / 1000, WAIT_MAX_S)
    quota = context.mutation_quotas.of(meta, strict_from=STRICT_FROM)
    rights = _Rights(context.authorization.of(meta), quota, asyncio.Semaphore(MARKED_AT_ONCE))
    results = await asyncio.gather(
        *(_delete(context, rights, topic, times[key] > 1, wait_s) for key, topic in unique.items())
    )
    return api.DeleteTopicsResponse(throttle_time_ms=quota.throttle_ms, responses=list(results))


async def _delete(
    context: AdminContext,
    rights: _Rights,
    asked: api.DeleteTopicsRequestTopicState,
    twice: bool,
    wait_s: float,
) -> api.DeleteTopicsResponseTopicResult:
    if twice:
        return _refusal(asked, Refused(ErrorCode.INVALID_REQUEST, "The topic is named more than once."))
    async with rights.slots:
        name = await _name_of(context, asked)
        if isinstance(name, Refused):
            return _refusal(asked, name)
        if not rights.asker.allows(DELETE, name):
            return _denied(asked, name, rights.asker)
        topic = active_by_name(context, name)
        refused = None if topic is None else rights.quota.take(topic.partitions)
        if refused is not None:
            return _refusal(asked, refused)
        marked = await guarded(context.store.change(name, partial(_mark, asked)))
    if isinstance(marked, Refused):
        gone = asked.name is None and marked.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _refusal(asked, UNKNOWN_ID if gone else marked)
    await _until_gone(context, marked, wait_s)
    return api.DeleteTopicsResponseTopicResult(name=name, topic_id=marked.topic_id)


def _mark(asked: api.DeleteTopicsRequestTopicState, topic: Topic) -> Topic | Refused:
    """The name may belong to a newer topic than the id."""
    if asked.name is None and topic.topic_id != asked.topic_id:
        return UNKNOWN_ID
    return plan.mark_deleting(topic)


async def _name_of(context: AdminContext, asked: api.DeleteTopicsRequestTopicState) -> str | Refused:
    """If the view lacks the id, etcd is read: another admin may have just created the topic."""
    if asked.name is not None:
        if asked.topic_id != NO_ID:
            return Refused(
                ErrorCode.INVALID_REQUEST, "A topic is named by its name or by its id, not by both."
            )
        return asked.name
    found = context.topics.by_id(asked.topic_id)
    if found is None:
        unread = await guarded(context.topics.refresh())
        if isinstance(unread, Refused):
            return unread
        found = context.topics.by_id(asked.topic_id)
    return UNKNOWN_ID if found is None else found.name


async def _until_gone(context: AdminContext, topic: Topic, wait_s: float) -> None:
    gone = asyncio.Event()

    def look(*_: object) -> None:
        if context.topics.by_id(topic.topic_id) is None:
            gone.set()

    unsubscribe = context.topics.subscribe(look)
    try:
        look()
        async with asyncio.timeout(wait_s):
            await gone.wait()
    except TimeoutError:
        return  # the topic is marked, and its deletion continues
    finally:
        unsubscribe()


def _denied(
    asked: api.DeleteTopicsRequestTopicState, name: str, asker: Asker
) -> api.DeleteTopicsResponseTopicResult:
    answer = _refusal(asked, unauthorized(DELETE))
    if asked.name is None and asker.allows(DESCRIBE, name):
        answer.name = name
    return answer


def _refusal(
    asked: api.DeleteTopicsRequestTopicState, refused: Refused
) -> api.DeleteTopicsResponseTopicResult:
    return api.DeleteTopicsResponseTopicResult(
        name=asked.name, topic_id=asked.topic_id, error_code=refused.error, error_message=refused.message
    )
