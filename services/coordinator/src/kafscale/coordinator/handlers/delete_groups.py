"""DeleteGroups (42): v0-2.

NON_EMPTY_GROUP (68) while it has members, GROUP_ID_NOT_FOUND (69) when there is none. The offsets go first:
a group that is there without its offsets can be deleted again, offsets without their group could not.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.delete_groups import (
    DeleteGroupsResponse,
    DeleteGroupsResponseGroupResult,
    decode_request,
    encode_response,
)


def handler(context: CoordinatorContext) -> AsyncHandler:
    async def delete_groups(inbound: InboundRequest) -> Sequence[Buffer]:
        version = inbound.meta.api_version
        request = decode_request(inbound.body, version)
        results = [
            DeleteGroupsResponseGroupResult(group_id=name, error_code=await delete(context, name))
            for name in request.groups_names
        ]
        return encode_response(DeleteGroupsResponse(results=results), version)

    return delete_groups


async def delete(context: CoordinatorContext, name: str) -> ErrorCode:
    try:
        actor = context.groups.find(name)
        if actor is None or not actor.kind.exists(actor.group):
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not actor.kind.is_empty(actor.group):
            return ErrorCode.NON_EMPTY_GROUP
        gone = await context.commits.delete_all(actor.held, name)
        return gone if gone is not ErrorCode.NONE else await context.groups.delete(actor)
    except GroupFailed as failed:
        return failed.error
