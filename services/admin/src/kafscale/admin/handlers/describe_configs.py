"""DescribeConfigs (32): v0-4.   v1 synonyms and sources · v3 types and documentation

Topics and brokers; a broker is a front door, named by its node id, or "" for what all of them were told at run
time. Asked keys that do not exist are left out.
UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST for another kind of resource or an unknown broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kafscale.admin.config_answers import broker_configs, topic_configs
from kafscale.admin.context import AdminContext
from kafscale.admin.plan import Refused
from kafscale.admin.resources import ResourceType, unknown_topic
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.storage.topics import TopicState
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseResourceResult,
    DescribeConfigsResponseResult,
    decode_request,
    encode_response,
)

NODE_ID_DIGITS_MAX = 10
RESOURCES_PER_TURN = 200
"""Of the event loop: tools ask for all topics in one request."""


def handler(context: AdminContext) -> AsyncHandler:
    async def describe_configs(inbound: InboundRequest) -> Sequence[Buffer]:
        request = decode_request(inbound.body, inbound.meta.api_version)
        results = []
        for number, resource in enumerate(request.resources, 1):
            results.append(_answer(resource, _configs(context, request, resource)))
            if number % RESOURCES_PER_TURN == 0:
                await asyncio.sleep(0)
        return answered(inbound, DescribeConfigsResponse(results=results), encode_response)

    return describe_configs


def _configs(
    context: AdminContext, request: DescribeConfigsRequest, resource: DescribeConfigsRequestResource
) -> list[DescribeConfigsResponseResourceResult] | Refused:
    keys, synonyms, docs = (
        resource.configuration_keys,
        request.include_synonyms,
        request.include_documentation,
    )
    if resource.resource_type == ResourceType.TOPIC:
        topic = context.topics.by_name(resource.resource_name)
        if topic is None or topic.state is not TopicState.ACTIVE:
            return unknown_topic(resource.resource_name)
        return topic_configs(topic, keys, synonyms=synonyms, docs=docs)
    if resource.resource_type == ResourceType.BROKER:
        name = resource.resource_name
        if not name:
            return []  # what was set for all brokers at run time (KIP-226): nothing can be
        broker = context.front_doors.by_node(int(name)) if _is_node_id(name) else None
        if broker is None:
            return Refused(ErrorCode.INVALID_REQUEST, f"There is no broker '{name}'.")
        return broker_configs(broker, context.settings, keys, synonyms=synonyms, docs=docs)
    return Refused(
        ErrorCode.INVALID_REQUEST, f"Resources of type {resource.resource_type} have no configs here."
    )


def _is_node_id(name: str) -> bool:
    return name.isdecimal() and len(name) <= NODE_ID_DIGITS_MAX


def _answer(
    resource: DescribeConfigsRequestResource, outcome: list[DescribeConfigsResponseResourceResult] | Refused
) -> DescribeConfigsResponseResult:
    answer = DescribeConfigsResponseResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
    if isinstance(outcome, Refused):
        answer.error_code, answer.error_message = outcome.error, outcome.message
    else:
        answer.configs = outcome
    return answer
