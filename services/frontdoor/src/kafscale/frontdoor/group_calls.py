"""Calls about what lies in one slot, as a consumer group does: to the coordinator that has the slot, once.

Law: a group call is sent at most once, and two calls of one connection never pass each other. An OffsetCommit
that the front door sent again could overwrite a newer one of the same consumer, and one that it held could
arrive behind it. So the front door holds nothing and repeats nothing. Without a coordinator the client gets
COORDINATOR_NOT_AVAILABLE, after a loss NOT_COORDINATOR (perhaps executed), and on both it finds the coordinator and
retries. A coordinator's answer passes unread. Calls of one connection take one lane of the stream to an instance, so
they arrive in the order of the socket. When a slot moves between two of them, the old owner's fence keeps the first
from taking effect after the second.
A call that names several groups or transactional ids is split by coordinator. The answers are joined in the order of
the request, each key once; one whose coordinator did not answer has the error in its own entry, and so has one that the
client may not use. No coordinator is asked about the latter.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from kafscale.access.rules import Need
from kafscale.frontdoor.api import Codes, Refuse, ToSlot, ToSlots
from kafscale.frontdoor.authorization import RequestAuthorizer
from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.fan_out import Share, fan_out
from kafscale.frontdoor.refusals import key_in, refuse_exchange
from kafscale.frontdoor.routing import Routing
from kafscale.runtime.clock import Clock, LoopWatch
from kafscale.runtime.stream.frame import Outcome, Reply
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError

log = structlog.get_logger("kafscale.frontdoor.groups")

GRACE_MS: Final = 10_000
"""Longer than the 5 s that clients add to the rebalance timeout: they give up before we do."""


class SlotCaller:
    """What all calls to slots share."""

    def __init__(
        self,
        *,
        routing: Routing,
        clock: Clock,
        watch: LoopWatch,
        wait_ms_max: int,
        authorizer: RequestAuthorizer,
    ) -> None:
        self._authorizer = authorizer
        self._routing = routing
        self._clock = clock
        self._watch = watch
        self._wait_ms_max = wait_ms_max

    def call(self, exchange: Exchange, how: ToSlot) -> None:
        body, version = exchange.request.body, exchange.version
        key = how.key_of(body, flexible=version >= exchange.api.key.flexible_from)
        if how.wait_ms is not None:
            self._wait(exchange, how.wait_ms(body, version))
        if how.age_ms_max is not None and not self._in_time(exchange, how.age_ms_max):
            refuse_exchange(exchange, how.codes.not_executed)
            return
        self._pass_on(exchange, self._routing.coordinator(key), how.codes)

    def call_several(self, exchange: Exchange, how: ToSlots, need: Need | None) -> None:
        """`need`: asked for each key."""
        batch = Batch(how, exchange.request.body, exchange.version)
        if how.age_ms_max is not None and not self._in_time(exchange, how.age_ms_max):
            refuse_exchange(exchange, how.codes.not_executed)
            return
        denied: Collection[str] = ()
        if need is not None:
            denied = self._authorizer.rights_of(exchange).denied(need, batch.keys)
            batch.deny(denied, need.code)
        places: dict[Channel | None, list[int]] = {}
        for place, key in enumerate(batch.keys):
            if key not in denied:
                places.setdefault(self._routing.coordinator(key), []).append(place)
        if len(places) == 1 and not denied:
            self._pass_on(exchange, next(iter(places)), how.codes)
            return
        places.pop(None, None)
        shares = [Share(channel, batch.share(own)) for channel, own in places.items() if channel is not None]
        join = partial(self._join, exchange, batch, list(places.values()))
        if shares:
            fan_out(exchange, self._clock, shares, join)
        else:
            join(())

    @staticmethod
    def _join(
        exchange: Exchange, batch: "Batch", places: Sequence[Sequence[int]], replies: Sequence[Reply]
    ) -> None:
        body, exchange.error = batch.join(places, replies)
        exchange.answer(body)

    def _wait(self, exchange: Exchange, wait_ms: int) -> None:
        """A rebalance may keep the call for that long; it never has less time than any other call."""
        bounded_ms = min(max(wait_ms, 0), self._wait_ms_max)
        exchange.deadline_ms = max(exchange.deadline_ms, exchange.request.arrived_ms + bounded_ms + GRACE_MS)

    def _in_time(self, exchange: Exchange, age_ms_max: int) -> bool:
        """A call that may have waited unread while this process was stopped is as old as the stop. Its deadline is the
        age limit and nothing sooner: the coordinator learns the age from what is left."""
        now_ms = self._clock.now_ms()
        stalled_ms = self._watch.stalled_since_ms(now_ms)
        arrived_ms = exchange.request.arrived_ms
        came_ms = arrived_ms if stalled_ms is None else min(arrived_ms, stalled_ms)
        exchange.deadline_ms = came_ms + age_ms_max
        return exchange.deadline_ms > now_ms

    def _pass_on(self, exchange: Exchange, channel: Channel | None, codes: Codes) -> None:
        if channel is None:
            refuse_exchange(exchange, codes.not_executed)
            return
        share = Share(channel, [exchange.request.body])
        fan_out(exchange, self._clock, [share], partial(pass_back, exchange, codes))


def pass_back(exchange: Exchange, codes: Codes, replies: Sequence[Reply]) -> None:
    """Answers with the coordinator's own bytes, unread."""
    (reply,) = replies
    outcome = reply.status.outcome
    if outcome is Outcome.ANSWERED:
        exchange.answer([reply.body])
    else:
        refuse_exchange(exchange, codes.of(outcome))


def refuse_keys(how: ToSlots) -> Refuse:
    """An answer with the error for each group or transactional id of the request."""

    def refuse(body: memoryview, version: int, code: ErrorCode) -> Sequence[Buffer]:
        asked = getattr(how.schema.decode_request(body, version), how.asked)
        entries = [how.failed(each, code) for each in asked]
        return how.schema.encode_response(how.response(**{how.results: entries}), version)

    return refuse


class Batch:
    """A request about several keys, and the one answer that several coordinators give together."""

    def __init__(self, how: ToSlots, body: memoryview, version: int) -> None:
        self._how = how
        self._version = version
        self._request = how.schema.decode_request(body, version)
        self._asked = getattr(self._request, how.asked)
        self.keys = [key_in(each, how.key) for each in self._asked]
        self._first = dict(zip(reversed(self.keys), reversed(self._asked), strict=True))
        self._codes = dict.fromkeys(self.keys, how.codes.not_executed)

    def deny(self, keys: Collection[str], code: ErrorCode) -> None:
        """These have the error, and are in no share."""
        self._codes.update(dict.fromkeys(keys, code))

    def share(self, places: Sequence[int]) -> Sequence[Buffer]:
        """The request for these entries alone."""
        asked = [self._asked[place] for place in places]
        share = msgspec.structs.replace(self._request, **{self._how.asked: asked})
        return self._how.schema.encode_request(share, self._version)

    def join(self, places: Sequence[Sequence[int]], replies: Sequence[Reply]) -> tuple[Sequence[Buffer], int]:
        """The answer, with each key once, where the request names it first; and an error code in it, or 0.

        `places`: for each reply the entries that its coordinator was asked about.
        """
        how, codes, throttle_time_ms = self._how, self._codes, 0
        found: dict[str, Any] = {}
        for own, reply in zip(places, replies, strict=True):
            asked, outcome = [self.keys[place] for place in own], reply.status.outcome
            if outcome is not Outcome.ANSWERED:
                codes.update(dict.fromkeys(asked, how.codes.of(outcome)))
                continue
            codes.update(dict.fromkeys(asked, how.codes.unknown))
            entries, waited_ms = self._read(reply.body)
            throttle_time_ms = max(throttle_time_ms, waited_ms)
            found.update((key, entries[key]) for key in asked if key in entries)
        missing = [key for key in codes if key not in found]
        found.update((key, how.failed(self._first[key], codes[key])) for key in missing)
        answer = how.response(
            throttle_time_ms=throttle_time_ms, **{how.results: [found[key] for key in codes]}
        )
        error = int(codes[missing[-1]]) if missing else 0
        return how.schema.encode_response(answer, self._version), error

    def _read(self, body: memoryview) -> tuple[dict[str, Any], int]:
        """The entries of a coordinator's answer by key, and its throttle time."""
        try:
            response = self._how.schema.decode_response(body, self._version)
        except WireError as error:
            log.error("invalid answer of a coordinator", reason=str(error))
            return {}, 0
        entries = getattr(response, self._how.results)
        return {key_in(each, self._how.key): each for each in entries}, response.throttle_time_ms
