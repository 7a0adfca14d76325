"""DeleteGroups (42): v0-2.

NON_EMPTY_GROUP (68) while the group has members, GROUP_ID_NOT_FOUND (69) if it does not exist. The group is deleted
before its offsets, because only the group knows that it is empty. Commits wait meanwhile (`Commits.order_lock`).
Offsets of a group that does not exist are deleted too, so an interrupted deletion can be repeated. So are offsets that
a transaction has pending: nothing of the group comes back with its commit.
"""

from __future__ import annotations

import asyncio

from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.actor import GroupFailed
from kafscale.runtime.stream.apis import answering
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_groups as api


@answering(api)
async def handler(context: CoordinatorContext, request: api.DeleteGroupsRequest) -> api.DeleteGroupsResponse:
    results = [
        api.DeleteGroupsResponseGroupResult(group_id=name, error_code=await delete(context, name))
        for name in dict.fromkeys(request.groups_names)
    ]
    return api.DeleteGroupsResponse(results=results)


async def delete(context: CoordinatorContext, name: str) -> ErrorCode:
    async with context.commits.order_lock(name):
        error, deletes = await _begin(context, name)
    errors = [gone for gone in await asyncio.gather(*deletes) if gone is not ErrorCode.NONE]
    return errors[0] if errors else error


async def _begin(context: CoordinatorContext, name: str) -> tuple[ErrorCode, list[asyncio.Future[ErrorCode]]]:
    """Deletes the group. Returns its error, and the queued deletes of its offsets."""
    try:
        held = context.groups.slot(name)
        actor = context.groups.find(name)
        error = ErrorCode.GROUP_ID_NOT_FOUND if actor is None else await context.groups.delete(actor)
    except GroupFailed as failed:
        return failed.error, []
    if error not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
        return error, []
    pending = await context.transaction_offsets.delete_all(held, name)
    return error, [*pending, context.commits.delete_all(held, name)]
