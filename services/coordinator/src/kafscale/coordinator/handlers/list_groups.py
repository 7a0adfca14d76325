"""ListGroups (16): v0-5.   v4 filter by state (KIP-518) · v5 filter by type (KIP-848)

Lists the groups of this instance's slots. The front door joins the answers of all instances. Filters ignore case, as
Kafka's. COORDINATOR_LOAD_IN_PROGRESS while a slot is being read: the list would lack its groups.
COORDINATOR_NOT_AVAILABLE while this instance's lease may have expired: another instance may own the groups. A group
whose record cannot be read is listed with Kafka's state and type Unknown. INVALID_REQUEST for a list that would be
larger than KAFSCALE_ANSWER_BYTES_MAX.
"""

from __future__ import annotations

from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.registry import AnyActor
from kafscale.runtime.answer_room import TOO_LARGE, AnswerRoom
from kafscale.runtime.stream.apis import answering
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import list_groups as api

CLASSIC, CONSUMER = "classic", "consumer"  # in a Kafka broker's spelling
CONSUMER_PROTOCOL_TYPE = "consumer"
UNKNOWN = "Unknown"
LISTED_BYTES = 64
"""Of one group on the wire, without its name and its protocol type."""


@answering(api)
async def handler(context: CoordinatorContext, request: api.ListGroupsRequest) -> api.ListGroupsResponse:
    if context.slots.is_loading:
        return api.ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if not context.clock.is_fresh():
        return api.ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    listed = [_listed(context, actor) for actor in context.groups.all() if actor.type.exists(actor.group)]
    listed += map(_unreadable, context.groups.unreadable())
    groups = [
        group
        for group in listed
        if (not states or group.group_state.lower() in states)
        and (not types or group.group_type.lower() in types)
    ]
    fits = AnswerRoom(context.settings.answer_bytes_max).take(sum(map(_size, groups)))
    return api.ListGroupsResponse(groups=groups) if fits else api.ListGroupsResponse(error_code=TOO_LARGE)


def _size(group: api.ListGroupsResponseListedGroup) -> int:
    return LISTED_BYTES + len(group.group_id.encode()) + len(group.protocol_type.encode())


def _unreadable(name: str) -> api.ListGroupsResponseListedGroup:
    return api.ListGroupsResponseListedGroup(group_id=name, group_state=UNKNOWN, group_type=UNKNOWN)


def _listed(context: CoordinatorContext, actor: AnyActor) -> api.ListGroupsResponseListedGroup:
    if context.groups.is_classic(actor):
        protocol_type, group_type = actor.group.protocol_type or "", CLASSIC
    else:
        protocol_type, group_type = CONSUMER_PROTOCOL_TYPE, CONSUMER
    return api.ListGroupsResponseListedGroup(
        group_id=actor.name,
        protocol_type=protocol_type,
        group_state=context.groups.state_of(actor),
        group_type=group_type,
    )
