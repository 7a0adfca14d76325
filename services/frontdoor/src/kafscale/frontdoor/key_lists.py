"""Lists of all groups or transactional ids: every coordinator is asked, and this front door answers for its share.

Tools ask every broker that Metadata names and put the answers together, so each answers for its own keys: those for
which FindCoordinator, on this listener, names the address of this front door. Behind one shared address that is every
key, as Metadata then names one broker. Every coordinator is asked, once. A list that lacks the keys of one would be a
false statement: if any does not answer, or a slot is without coordinator, it is COORDINATOR_NOT_AVAILABLE as a whole,
which is retried. So it is while this front door itself is not registered. Keys that the client may not describe are
left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog
from kafscale.access.rules import Need
from kafscale.frontdoor.api import Codec
from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.fan_out import Share, fan_out
from kafscale.frontdoor.parts import Parts
from kafscale.frontdoor.refusals import key_in, refuse_exchange
from kafscale.frontdoor.routing import brokers_for
from kafscale.runtime.stream.frame import Outcome, Reply
from kafscale.storage.brokers import coordinator_of
from kafscale.wire.errors import ErrorCode, WireError

log = structlog.get_logger("kafscale.frontdoor.groups")

UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyList:
    """`entries`: the list in an answer, whose entries have the key as `key`. `describe`: asked for each of them."""

    schema: Codec
    response: Callable[..., Any]
    entries: str
    key: str
    describe: Need


class KeyListHandler:
    def __init__(self, how: KeyList, parts: Parts) -> None:
        self._how = how
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
        how = self._how
        view = brokers_for(exchange.caller.listener, self._front_doors, self._node_id)
        answers = [self._read(exchange, reply) for reply in replies]
        refused = next((answer.error_code for answer in answers if answer.error_code), 0)
        if refused or view.here is None:
            refuse_exchange(exchange, ErrorCode(refused or UNAVAILABLE))
            return
        found: dict[str, Any] = {}
        for channel, answer in zip(channels, answers, strict=True):
            for entry in getattr(answer, how.entries):
                # While a slot moves both may name its keys: the new owner knows better.
                key = key_in(entry, how.key)
                if key not in found or self._routing.coordinator(key) is channel:
                    found[key] = entry
        hidden = self._authorizer.rights_of(exchange).denied(how.describe, found)
        response = answers[0]  # what is not about single keys is the same in all answers
        response.throttle_time_ms = max(answer.throttle_time_ms for answer in answers)
        own = [
            entry
            for key, entry in found.items()
            if key not in hidden and coordinator_of(key, view.brokers) == view.here
        ]
        setattr(response, how.entries, own)
        exchange.answer(how.schema.encode_response(response, exchange.version))

    def _read(self, exchange: Exchange, reply: Reply) -> Any:
        if reply.status.outcome is not Outcome.ANSWERED:
            return self._how.response(error_code=int(UNAVAILABLE))
        try:
            return self._how.schema.decode_response(reply.body, exchange.version)
        except WireError as error:
            log.error("invalid answer of a coordinator", reason=str(error))
            return self._how.response(error_code=int(UNAVAILABLE))
