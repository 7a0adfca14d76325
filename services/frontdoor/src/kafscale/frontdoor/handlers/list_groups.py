"""ListGroups (16): v0-5.   v3 flexible · v4 states · v5 types
Tools ask every broker that Metadata names and put the answers together, so each answers for its own groups: those for
which FindCoordinator, on this listener, names the address of this front door. Behind one shared address that is every
group, as Metadata then names one broker. Every coordinator is asked, once. A list that lacks the groups of one would
be a false statement: if any does not answer, or a slot is without coordinator, it is COORDINATOR_NOT_AVAILABLE as a
whole, which is retried. So it is while this front door itself is not registered. Groups that the client may not
describe are left out.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog
from kafscale.frontdoor.api import Api, Area, Backend, Own
from kafscale.frontdoor.authorization import need_of_each
from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.fan_out import Share, fan_out
from kafscale.frontdoor.parts import Parts
from kafscale.frontdoor.refusals import refuse_exchange, whole
from kafscale.frontdoor.routing import brokers_for
from kafscale.runtime.stream.frame import Outcome, Reply
from kafscale.storage.brokers import coordinator_of
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import list_groups as schema

log = structlog.get_logger("kafscale.frontdoor.groups")

DESCRIBE: Final = need_of_each(ApiKey.LIST_GROUPS)
UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE


class ListGroupsHandler:
    def __init__(self, parts: Parts) -> None:
        self._routing = parts.routing
        self._clock = parts.clock
        self._front_doors = parts.front_doors
        self._node_id = parts.node_id
        self._authorizer = parts.authorizer

    def __call__(self, exchange: Exchange) -> None:
        channels = self._routing.coordinators()
        if not channels:
            refuse_exchange(exchange, UNAVAILABLE)
            return
        shares = [Share(channel, [exchange.request.body]) for channel in channels]
        fan_out(exchange, self._clock, shares, partial(self._join, exchange, channels))

    def _join(self, exchange: Exchange, channels: Sequence[Channel], replies: Sequence[Reply]) -> None:
        view = brokers_for(exchange.caller.listener, self._front_doors, self._node_id)
        answers = [self._read(exchange, reply) for reply in replies]
        refused = next((answer.error_code for answer in answers if answer.error_code), 0)
        if refused or view.here is None:
            refuse_exchange(exchange, ErrorCode(refused or UNAVAILABLE))
            return
        groups: dict[str, schema.ListGroupsResponseListedGroup] = {}
        for channel, answer in zip(channels, answers, strict=True):
            for group in answer.groups:
                # While a slot moves both may name its groups: the new owner knows better.
                if group.group_id not in groups or self._routing.coordinator(group.group_id) is channel:
                    groups[group.group_id] = group
        hidden = self._authorizer.rights_of(exchange).denied(DESCRIBE, groups)
        response = schema.ListGroupsResponse(
            throttle_time_ms=max(answer.throttle_time_ms for answer in answers),
            groups=[
                group
                for name, group in groups.items()
                if name not in hidden and coordinator_of(name, view.brokers) == view.here
            ],
        )
        exchange.answer(schema.encode_response(response, exchange.version))

    @staticmethod
    def _read(exchange: Exchange, reply: Reply) -> schema.ListGroupsResponse:
        if reply.status.outcome is not Outcome.ANSWERED:
            return schema.ListGroupsResponse(error_code=int(UNAVAILABLE))
        try:
            return schema.decode_response(reply.body, exchange.version)
        except WireError as error:
            log.error("invalid answer of a coordinator", reason=str(error))
            return schema.ListGroupsResponse(error_code=int(UNAVAILABLE))


API: Final = Api(
    key=ApiKey.LIST_GROUPS,
    versions=(0, 5),
    backend=Backend.COORDINATOR,
    dispatch=Own(ListGroupsHandler),
    refuse=whole(schema, schema.ListGroupsResponse),
    large_answer=True,
    asks=(DESCRIBE,),
    reads=Area.GROUPS,
)
