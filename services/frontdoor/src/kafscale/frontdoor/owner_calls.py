"""Calls about partitions: each partition's part goes to the produce instance that owns it, once.

Laws: the front door holds nothing and repeats nothing; Produce has its lanes for that (produce_lanes.py). A topic or
partition that the view lacks is looked up first, unless the client may not use the topic. The answer has an entry for
each partition of the request, in its order: the code of the need if the client may not use its topic;
UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER, on which clients retry, if it has no owner, its owner did not answer
(perhaps executed) or etcd could not be read; else what its owner answered. No owner is asked about a denied topic.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog
from kafscale.access.rules import Need
from kafscale.frontdoor.api import Place, Refuse, ToOwners
from kafscale.frontdoor.authorization import RequestAuthorizer
from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.fan_out import Share, fan_out
from kafscale.frontdoor.routing import Routing
from kafscale.runtime.clock import Clock
from kafscale.runtime.stream.frame import Outcome, Reply
from kafscale.storage.topics import READ_PAUSE_S, TopicsView
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError

log = structlog.get_logger("kafscale.frontdoor")

UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNSERVED: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER


def refuse_partitions(how: ToOwners) -> Refuse:
    """An answer with the error for each partition of the request."""

    def refuse(body: memoryview, version: int, code: ErrorCode) -> Sequence[Buffer]:
        request = how.schema.decode_request(body, version)
        return how.schema.encode_response(how.answer(request, lambda place: how.failed(place, code)), version)

    return refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerCaller:
    """What all calls to owners share."""

    routing: Routing
    topics: TopicsView
    clock: Clock
    authorizer: RequestAuthorizer

    def call(self, exchange: Exchange, how: ToOwners, need: Need) -> None:
        """`need`: asked for each topic, or, if it is about the cluster, the same for all."""
        request = how.schema.decode_request(exchange.request.body, exchange.version)
        places = how.places(request)
        denied = self.authorizer.rights_of(exchange).denied(need, [place.topic for place in places])
        split = partial(self._split, OwnerCall(exchange, how, request, places), denied, need.code)
        if all(place.topic in denied or self.topics.find(*place) for place in places):
            split(True)
        else:
            self.topics.confirm(split, recent_s=READ_PAUSE_S)

    def _split(self, call: "OwnerCall", denied: Collection[str], denial: ErrorCode, believe: bool) -> None:
        """`believe`: what the view lacks does not exist."""
        if call.exchange.caller.gone or not call.exchange.unanswered:
            return
        codes: dict[Place, ErrorCode] = {}
        owned: dict[Channel, list[Place]] = {}
        for place in dict.fromkeys(call.places):
            if place.topic in denied:
                codes[place] = denial
                continue
            topic = self.topics.find(*place)
            if topic is None:
                codes[place] = UNKNOWN if believe else UNSERVED
                continue
            channel = self.routing.producer((topic.topic_id, place.partition))
            if channel is not None:
                owned.setdefault(channel, []).append(place)
        shares = [Share(channel, call.share(own)) for channel, own in owned.items()]
        if shares:
            fan_out(call.exchange, self.clock, shares, partial(call.join, codes))
        else:
            call.join(codes, ())


@dataclass(frozen=True, slots=True)
class OwnerCall:
    """One request about partitions, and the one answer that several owners give together."""

    exchange: Exchange
    how: ToOwners
    request: Any
    places: Sequence[Place]

    def share(self, own: Sequence[Place]) -> Sequence[Buffer]:
        """The request for these partitions alone."""
        return self.how.schema.encode_request(self.how.share(self.request, own), self.exchange.version)

    def join(self, codes: Mapping[Place, ErrorCode], replies: Sequence[Reply]) -> None:
        """`codes`: of partitions about which no owner was asked."""
        how, found = self.how, dict[Place, Any]()
        for reply in replies:
            if reply.status.outcome is Outcome.ANSWERED:
                found.update(self._read(reply.body))
        answer = how.answer(
            self.request,
            lambda place: found.get(place) or how.failed(place, codes.get(place, UNSERVED)),
        )
        self.exchange.answer(how.schema.encode_response(answer, self.exchange.version))

    def _read(self, body: memoryview) -> Mapping[Place, Any]:
        try:
            return self.how.entries(self.how.schema.decode_response(body, self.exchange.version))
        except WireError as error:
            log.error("invalid answer of a produce service", reason=str(error))
            return {}
