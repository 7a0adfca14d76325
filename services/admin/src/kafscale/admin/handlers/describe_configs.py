"""DescribeConfigs (32): v0-4.   v1 synonyms and sources · v3 types and documentation

Topics, groups (KIP-848) and brokers. A broker is a front door, named by its node id; "" means the dynamic configs of
all brokers, of which there are none. A group needs no members to have configs, so no group is unknown. Unknown keys
are left out. A resource that is requested twice is answered once. UNKNOWN_TOPIC_OR_PARTITION, or
INVALID_TOPIC_EXCEPTION for a name that no topic can have; INVALID_REQUEST for another type of resource, an unknown
broker, an empty group id, and for resources that do not fit into the answer; REQUEST_TIMED_OUT if a group's configs
cannot be read. TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED, whether the resource exists or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from kafscale.access.rules import Side, needs_of
from kafscale.admin.cluster_view import active_by_name
from kafscale.admin.config_answers import broker_configs, configs_of, size_of
from kafscale.admin.configs import TOPIC_CONFIGS
from kafscale.admin.context import AdminContext
from kafscale.admin.group_config_store import invalid_name
from kafscale.admin.plan import Refused
from kafscale.admin.resources import (
    ResourceType,
    damaged_topic,
    denial,
    illegal_topic,
    unknown_broker,
    unknown_topic,
    unknown_type,
)
from kafscale.runtime.answer_room import TOO_LARGE, AnswerRoom
from kafscale.runtime.authorization import Asker
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.group_configs import GroupConfigs
from kafscale.storage.schema import UnreadableValue
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_configs as api

NEEDS = needs_of(ApiKey.DESCRIBE_CONFIGS, Side.SERVICE)
RESOURCES_PER_TURN = 100
"""Per iteration of the event loop and per read of etcd: tools request all topics at once."""
RESOURCE_BYTES = 16
"""Of one resource on the wire, at most, without its name and its configs."""

Configs = list[api.DescribeConfigsResponseResourceResult]


@answering_with_meta(api)
async def handler(
    context: AdminContext, request: api.DescribeConfigsRequest, meta: RequestMeta
) -> api.DescribeConfigsResponse:
    asker = context.authorization.of(meta)
    return api.DescribeConfigsResponse(results=await _results(context, request, asker))


async def _results(
    context: AdminContext, request: api.DescribeConfigsRequest, asker: Asker
) -> list[api.DescribeConfigsResponseResult]:
    room = AnswerRoom(context.settings.answer_bytes_max)
    asked = list({_identity(resource): resource for resource in request.resources}.values())
    results = []
    for start in range(0, len(asked), RESOURCES_PER_TURN):
        some = asked[start : start + RESOURCES_PER_TURN]
        denials = [denial(asker, NEEDS, resource) for resource in some]
        groups = await _groups(
            context, [one for one, denied in zip(some, denials, strict=True) if denied is None]
        )
        for resource, denied in zip(some, denials, strict=True):
            outcome = denied or _configs(context, request, resource, groups)
            results.append(
                _answer(
                    resource, outcome if _fits(room, resource, outcome) else Refused(TOO_LARGE, room.refusal)
                )
            )
        await asyncio.sleep(0)
    return results


def _identity(resource: api.DescribeConfigsRequestResource) -> tuple[int, str, frozenset[str]]:
    return resource.resource_type, resource.resource_name, frozenset(resource.configuration_keys or ())


def _fits(room: AnswerRoom, resource: api.DescribeConfigsRequestResource, outcome: Configs | Refused) -> bool:
    """Only configs are counted: an error is not larger than the request's entry."""
    if isinstance(outcome, Refused):
        return True
    return room.take(RESOURCE_BYTES + len(resource.resource_name.encode()) + sum(map(size_of, outcome)))


async def _groups(
    context: AdminContext, resources: Sequence[api.DescribeConfigsRequestResource]
) -> Mapping[str, GroupConfigs | Refused]:
    """The configs of the groups among these resources, in one read."""
    names = [each.resource_name for each in resources if each.resource_type == ResourceType.GROUP]
    refused = {name: reason for name in names if (reason := invalid_name(name)) is not None}
    sound = [name for name in names if name not in refused]
    try:
        held = await context.group_config_store.read_each(sound)
    except EtcdError as trouble:
        timed_out = Refused(ErrorCode.REQUEST_TIMED_OUT, f"etcd did not answer: {trouble}")
        return {**refused, **dict.fromkeys(sound, timed_out)}
    readable = {
        name: Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(found))
        if isinstance(found, UnreadableValue)
        else found
        for name, found in held.items()
    }
    return {**refused, **readable}


def _configs(
    context: AdminContext,
    request: api.DescribeConfigsRequest,
    resource: api.DescribeConfigsRequestResource,
    groups: Mapping[str, GroupConfigs | Refused],
) -> Configs | Refused:
    name, keys = resource.resource_name, resource.configuration_keys
    synonyms, docs = request.include_synonyms, request.include_documentation
    match resource.resource_type:
        case ResourceType.TOPIC:
            topic = active_by_name(context, name)
            if topic is None and context.topics.is_damaged(name):
                return damaged_topic(name)
            if topic is None:
                return illegal_topic(name) or unknown_topic(name)
            return configs_of(TOPIC_CONFIGS, topic.configs, keys, synonyms=synonyms, docs=docs)
        case ResourceType.GROUP:
            group = groups[name]
            if isinstance(group, Refused):
                return group
            return configs_of(context.group_config_table, group.values, keys, synonyms=synonyms, docs=docs)
        case ResourceType.BROKER:
            if not name:
                return []  # dynamic configs of all brokers (KIP-226), which cannot be set here
            refused = unknown_broker(context, name)
            if refused is not None:
                return refused
            broker = context.front_doors.by_node(int(name))
            assert broker is not None, name
            settings, inherited = context.settings, context.group_config_table
            return broker_configs(broker, settings, inherited, keys, synonyms=synonyms, docs=docs)
        case resource_type:
            return unknown_type(resource_type)


def _answer(
    resource: api.DescribeConfigsRequestResource, outcome: Configs | Refused
) -> api.DescribeConfigsResponseResult:
    answer = api.DescribeConfigsResponseResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    if isinstance(outcome, Refused):
        answer.error_code, answer.error_message = outcome.error, outcome.message
    else:
        answer.configs = outcome
    return answer
