"""Calls about consumer groups: to the coordinator that has the group's slot, once.

Law: a group call is sent at most once, and two calls of one connection never pass each other. An OffsetCommit
that the front door sent again could overwrite a newer one of the same consumer, and one that it held could
arrive behind it. So nothing is held and nothing repeated: without a coordinator the client is told
COORDINATOR_NOT_AVAILABLE, after a loss NOT_COORDINATOR (which says nothing about whether it was done), and on
both it asks for the coordinator and comes again. What a coordinator answers passes unread. Calls of one
connection take one lane of the stream to an instance, so they arrive in the order of the socket; when a slot
moves between two of them, the old owner's fence keeps the first from taking effect after the second.
A call that names several groups is cut by coordinator, and its answer joined in the order of the request, each
group once; groups whose coordinator did not answer have the error in their own entry.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, Protocol, TypeVar, assert_never

import structlog
from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.fan_out import Share, fan_out
from kafscale.frontdoor.refusals import Refuse, refuse_all
from kafscale.frontdoor.routing import Routing
from kafscale.runtime.clock import Clock
from kafscale.runtime.loop_watchdog import LoopWatch
from kafscale.runtime.stream.frame import Outcome, Reply
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.varints import uvarint

log = structlog.get_logger("kafscale.frontdoor.groups")

GRACE_MS: Final = 10_000
"""Longer than the 5 s that clients add to the rebalance timeout: they give up before we do."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """The error code of each outcome. Clients retry on the first two, and not on INVALID_REQUEST."""

    not_executed: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE
    unknown: ErrorCode = ErrorCode.NOT_COORDINATOR

    def of(self, outcome: Outcome) -> ErrorCode:
        match outcome:
            case Outcome.ANSWERED:
                return ErrorCode.NONE
            case Outcome.NOT_EXECUTED:
                return self.not_executed
            case Outcome.UNKNOWN:
                return self.unknown
            case Outcome.TOO_LARGE:
                return ErrorCode.INVALID_REQUEST
            case _ as never:
                assert_never(never)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPolicy:
    """An API about one group, whose id is the first field. `wait_ms`: how long it is answered late by design.
    `age_ms_max`: past that age it must not take effect any more."""

    refuse: Refuse
    flexible_from: int
    codes: Codes = Codes()
    wait_ms: Callable[[memoryview, int], int] | None = None
    age_ms_max: int | None = None


class Batch(Protocol[Found]):
    """A request about several groups, read; entries are known by their place in it."""

    @property
    def groups(self) -> Sequence[str]: ...

    def share(self, places: Sequence[int]) -> Sequence[Buffer]:
        """The request for these entries alone."""
        ...

    def read(self, body: memoryview) -> Sequence[tuple[str, Found]]:
        """The entries of an answer with their groups. Raises WireError."""
        ...

    def unserved(self, place: int, code: ErrorCode) -> Found: ...

    def join(self, found: Sequence[Found]) -> Sequence[Buffer]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy(Generic[Found]):
    """An API about several groups."""

    open: Callable[[memoryview, int], Batch[Found]]
    refuse: Refuse
    codes: Codes = Codes()


class GroupCaller:
    """What all group calls share."""

    def __init__(self, *, routing: Routing, clock: Clock, watch: LoopWatch | None, wait_ms_max: int) -> None:
        self._routing = routing
        self._clock = clock
        self._watch = watch
        self._wait_ms_max = wait_ms_max

    def call(self, exchange: Exchange, policy: GroupPolicy) -> None:
        body, version = exchange.request.body, exchange.version
        try:
            group = group_of(body, flexible=version >= policy.flexible_from)
            if policy.wait_ms is not None:
                self._wait(exchange, policy.wait_ms(body, version))
        except WireError as error:
            exchange.hang_up(str(error))
            return
        if policy.age_ms_max is not None and not self._in_time(exchange, policy.age_ms_max):
            refuse_all(exchange, policy.refuse, policy.codes.not_executed)
            return
        self._pass_on(exchange, self._routing.coordinator(group), policy.refuse, policy.codes)

    def call_batch(self, exchange: Exchange, policy: BatchPolicy[Found]) -> None:
        try:
            batch = policy.open(exchange.request.body, exchange.version)
        except WireError as error:
            exchange.hang_up(str(error))
            return
        places: dict[Channel | None, list[int]] = {}
        for place, group in enumerate(batch.groups):
            places.setdefault(self._routing.coordinator(group), []).append(place)
        if len(places) == 1:
            self._pass_on(exchange, next(iter(places)), policy.refuse, policy.codes)
            return
        places.pop(None, None)
        shares = [Share(channel, batch.share(own)) for channel, own in places.items() if channel is not None]
        joining = Joining(exchange, batch, list(places.values()), policy.codes)
        if shares:
            fan_out(exchange, self._clock, shares, joining.answer)
        else:
            joining.answer(())

    def _wait(self, exchange: Exchange, wait_ms: int) -> None:
        """A rebalance may keep the call for that long; it never has less time than any other call."""
        bounded_ms = min(max(wait_ms, 0), self._wait_ms_max)
        exchange.deadline_ms = max(exchange.deadline_ms, exchange.request.arrived_ms + bounded_ms + GRACE_MS)

    def _in_time(self, exchange: Exchange, age_ms_max: int) -> bool:
        """What may have stood unread while this process was stopped is as old as the stop."""
        now_ms = self._clock.now_ms()
        stalled_ms = None if self._watch is None else self._watch.stalled_since_ms(now_ms)
        arrived_ms = exchange.request.arrived_ms
        came_ms = arrived_ms if stalled_ms is None else min(arrived_ms, stalled_ms)
        exchange.deadline_ms = min(exchange.deadline_ms, came_ms + age_ms_max)
        return exchange.deadline_ms > now_ms

    def _pass_on(self, exchange: Exchange, channel: Channel | None, refuse: Refuse, codes: Codes) -> None:
        if channel is None:
            refuse_all(exchange, refuse, codes.not_executed)
            return
        share = Share(channel, [exchange.request.body])
        fan_out(exchange, self._clock, [share], partial(pass_back, exchange, refuse, codes))


def group_of(body: memoryview, *, flexible: bool) -> str:
    """The first field of every call about one group; the rest of the body is the coordinator's to read."""
    try:
        if flexible:
            length, start = uvarint(body, 0)
            end = start + length - 1
        else:
            start = 2
            end = start + int.from_bytes(body[:start], "big", signed=True)
        if not start <= end <= len(body):
            raise WireError("group id", "null or cut short")
        return str(body[start:end], "utf-8")
    except (IndexError, UnicodeDecodeError) as error:
        raise WireError("group id", f"cut short or not text ({error})") from error


def pass_back(exchange: Exchange, refuse: Refuse, codes: Codes, replies: Sequence[Reply]) -> None:
    """The coordinator's answer as it came."""
    (reply,) = replies
    outcome = reply.status.outcome
    if outcome is Outcome.ANSWERED:
        exchange.answer([reply.body])
    else:
        refuse_all(exchange, refuse, codes.of(outcome))


class Joining(Generic[Found]):
    """The answers of several coordinators, and the one answer that comes of them."""

    def __init__(
        self, exchange: Exchange, batch: Batch[Found], places: Sequence[Sequence[int]], codes: Codes
    ) -> None:
        """`places`: of each coordinator that is asked, the entries it is asked about."""
        self._exchange = exchange
        self._batch = batch
        self._places = places
        self._codes = codes

    def answer(self, replies: Sequence[Reply]) -> None:
        """Each group once, where the request names it first."""
        groups = self._batch.groups
        codes = dict.fromkeys(groups, self._codes.not_executed)
        found: dict[str, Found] = {}
        for places, reply in zip(self._places, replies, strict=True):
            asked, outcome = [groups[place] for place in places], reply.status.outcome
            if outcome is not Outcome.ANSWERED:
                codes.update(dict.fromkeys(asked, self._codes.of(outcome)))
                continue
            codes.update(dict.fromkeys(asked, self._codes.unknown))
            entries = self._read(reply.body)
            found.update((group, entries[group]) for group in asked if group in entries)
        firsts = {group: place for place, group in reversed(list(enumerate(groups)))}
        for group, code in codes.items():
            if group not in found:
                self._exchange.error = int(code)
                found[group] = self._batch.unserved(firsts[group], code)
        self._exchange.answer(self._batch.join([found[group] for group in codes]))

    def _read(self, body: memoryview) -> dict[str, Found]:
        try:
            return dict(self._batch.read(body))
        except WireError as error:
            log.error("a coordinator answered nonsense", reason=str(error))
            return {}
