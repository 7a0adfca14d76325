"""Sends Produce requests by lane, takes the replies, and holds and resends the parts that were certainly not appended.

Laws: only a reply that proves that nothing was appended (NOT_OWNER for that partition, refused, not sent) puts a part
back into its lane. A part that the service dropped as too old is answered LEADER_NOT_AVAILABLE and not sent again:
parts behind it may be appended by then. On an unknown outcome the connection is closed, as when a broker dies,
and nothing is sent again: requests that the client had pipelined behind it must not reach another owner first, or the
retry of the unknown one would come too late there (an owner that knows nothing of a producer accepts any sequence as
its first). A send that fails at once is handled before the next send, so a later request cannot pass it. A part that
is held too long is answered LEADER_NOT_AVAILABLE: certainly not appended.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Final, assert_never

from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.exchange import AckedRevision, Caller, Exchange
from kafscale.frontdoor.lanes import LaneEpoch, LaneKey, LaneLimits, Lanes, Resend
from kafscale.frontdoor.produce_call import ProduceCall, ProducePart, Share
from kafscale.frontdoor.routing import Routing
from kafscale.runtime.clock import Clock
from kafscale.runtime.stream.frame import Outcome, Reply, ReplyStatus
from kafscale.storage.topics import TopicsView
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import produce

NOT_OWNER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
NO_OWNER: Final = ErrorCode.LEADER_NOT_AVAILABLE


@dataclass(slots=True, eq=False)
class Producer:
    """The lanes of one connection, and its requests that wait for a topic lookup."""

    caller: Caller
    lanes: Lanes[ProducePart, Channel]
    numbers: int = 0
    unplaced: list[ProduceCall] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class LaneSender:
    def __init__(
        self,
        *,
        routing: Routing,
        topics: TopicsView,
        clock: Clock,
        limits: LaneLimits,
        acked: AckedRevision,
    ) -> None:
        self._routing = routing
        self._topics = topics
        self._clock = clock
        self._limits = limits
        self._acked = acked
        self._producers: dict[int, Producer] = {}
        self._holding: dict[Producer, None] = {}  # in order of arrival
        # The connections that hold parts of each lane, oldest first.
        self._holders: dict[LaneKey, dict[int, None]] = {}
        self.resent_parts = 0
        routing.subscribe(self._route_changed)

    def producer(self, caller: Caller) -> Producer:
        found = self._producers.get(caller.connection_id)
        if found is None:
            number = caller.connection_id
            lanes: Lanes[ProducePart, Channel] = Lanes(self._limits, partial(self._hold_changed, number))
            found = self._producers[number] = Producer(caller, lanes)
        return found

    def _hold_changed(self, number: int, key: LaneKey, holding: bool) -> None:
        """Only connections that hold parts of a lane look at a change of its owner."""
        if holding:
            self._holders.setdefault(key, {})[number] = None
            return
        holders = self._holders[key]
        del holders[number]
        if not holders:
            del self._holders[key]

    @property
    def held_parts(self) -> int:
        return sum(producer.lanes.held_count for producer in self._holding)

    def left(self, caller: Caller) -> None:
        """The client has left, so its lanes end."""
        producer = self._producers.pop(caller.connection_id, None)
        if producer is None:
            return
        self._holding.pop(producer, None)
        for key in producer.lanes.holding:
            self._hold_changed(caller.connection_id, key, holding=False)
        if producer.timer is not None:
            producer.timer.cancel()
            producer.timer = None
        producer.lanes = Lanes(self._limits)  # its parts lead back to the producer

    # ---- out

    def call(self, producer: Producer, exchange: Exchange, message: produce.ProduceRequest) -> ProduceCall:
        producer.numbers += 1
        return ProduceCall(exchange, message, producer.numbers, partial(self._expire, producer))

    def start(self, producer: Producer, call: ProduceCall, now_ms: int) -> None:
        """Sends the parts that have a lane; the others already have their result."""
        if len(call.parts) == 1:
            part = call.parts[0]
            if part.result is None:
                self._start_single(producer, part, now_ms)
        else:
            self._start_groups(producer, call, now_ms)
        self._settle(producer, call)

    def _start_single(self, producer: Producer, part: ProducePart, now_ms: int) -> None:
        """Starts the usual request: it has one partition, so one share and nothing to group."""
        lanes, call = producer.lanes, part.call
        if lanes.full:
            call.fail(part, NO_OWNER)
            return
        channel = self._routing.producer(part.key)
        epoch = lanes.submit(part, channel, now_ms)
        if epoch is not None and channel is not None:
            self._send(producer, Share(call, call.parts, channel, epoch, call.as_received), now_ms)

    def _start_groups(self, producer: Producer, call: ProduceCall, now_ms: int) -> None:
        lanes = producer.lanes
        groups: dict[tuple[Channel, LaneEpoch], list[ProducePart]] = {}
        for part in call.parts:
            if part.result is not None:
                continue
            if lanes.full:
                call.fail(part, NO_OWNER)
                continue
            channel = self._routing.producer(part.key)
            epoch = lanes.submit(part, channel, now_ms)
            if epoch is not None and channel is not None:
                groups.setdefault((channel, epoch), []).append(part)
        for (channel, epoch), parts in groups.items():
            whole = call.as_received and len(parts) == len(call.parts)
            self._send(producer, Share(call, parts, channel, epoch, whole), now_ms)

    def _send(self, producer: Producer, share: Share, now_ms: int) -> None:
        call, exchange = share.call, share.call.exchange
        meta = exchange.meta(now_ms=now_ms, lane_epoch=share.epoch)
        share.pending = share.channel.send(exchange.api, exchange.span, meta, call.body(share))
        call.shares.append(share)
        if share.channel.congested:
            exchange.pause_for(share.channel)
        future = share.pending.future
        if future.done():
            self._take(producer, share, future)
        else:
            future.add_done_callback(partial(self._replied, producer, share))

    # ---- and back

    def _replied(self, producer: Producer, share: Share, future: "asyncio.Future[Reply]") -> None:
        if future.cancelled() or producer.caller.gone:
            return
        self._take(producer, share, future)
        self._settle(producer, share.call)

    def _take(self, producer: Producer, share: Share, future: "asyncio.Future[Reply]") -> None:
        share.call.shares.remove(share)
        reply = future.result()
        status = reply.status
        self._acked.commits.saw(reply.revision)
        match status.outcome:
            case Outcome.ANSWERED:
                if status is not ReplyStatus.FINAL or not self._pass_on(producer, share, reply):
                    self._merge(producer, share, reply)
            case Outcome.NOT_EXECUTED if status is ReplyStatus.EXPIRED:
                self._conclude_all(producer, share, NO_OWNER)
            case Outcome.NOT_EXECUTED:
                self._hold_all(producer, share)
            case Outcome.UNKNOWN if status is ReplyStatus.NO_REPLY and share.call.exchange.request.silent:
                self._conclude_all(producer, share, ErrorCode.NONE)
            case Outcome.UNKNOWN | Outcome.TOO_LARGE:
                why = f": {reply.reason}" if reply.reason else ""
                self._unknown(producer, share, f"the outcome of a Produce is unknown, {status.name}{why}")
            case _ as never:
                assert_never(never)

    def _pass_on(self, producer: Producer, share: Share, reply: Reply) -> bool:
        """Passes the answer on unread, in the usual case: one owner answered the whole request."""
        call = share.call
        if not share.whole or call.exchange.request.silent:
            return False
        for part in share.parts:
            producer.lanes.settled(part)
        call.exchange.answer([reply.body])
        call.ended()
        return True

    def _merge(self, producer: Producer, share: Share, reply: Reply) -> None:
        call, lanes = share.call, producer.lanes
        try:
            response = produce.decode_response(reply.body, call.version)
        except WireError as error:
            self._unknown(producer, share, f"a produce service answered nonsense: {error}")
            return
        call.throttle_ms = max(call.throttle_ms, response.throttle_time_ms)
        results = {
            (call.topic_key(topic), result.index): result
            for topic in response.responses
            for result in topic.partition_responses
        }
        now_ms = self._clock.now_ms()
        for part in share.parts:
            result = results.get((call.topic_key(part.topic), part.entry.index))
            if result is None:
                call.exchange.hang_up("a produce service did not answer a partition")
            elif result.error_code == NOT_OWNER and reply.status is ReplyStatus.NOT_OWNER:
                lanes.refused(part, now_ms)
                continue
            else:
                call.conclude(part, result)
            lanes.settled(part)

    def _conclude_all(self, producer: Producer, share: Share, code: ErrorCode) -> None:
        for part in share.parts:
            producer.lanes.settled(part)
            share.call.fail(part, code)

    def _unknown(self, producer: Producer, share: Share, why: str) -> None:
        for part in share.parts:
            producer.lanes.settled(part)
        share.call.exchange.hang_up(why)

    def _hold_all(self, producer: Producer, share: Share) -> None:
        now_ms = self._clock.now_ms()
        for part in share.parts:
            producer.lanes.refused(part, now_ms)

    def _settle(self, producer: Producer, call: ProduceCall) -> None:
        """Call it after any change of a call: answers the call if all parts have results, and looks at the held
        parts."""
        if call.waiting == 0 and call.exchange.unanswered:
            call.finish()
        if producer.lanes.held_count or (self._holding and producer in self._holding):
            self._pump(producer)

    # ---- the held ones

    def _route_changed(self, key: LaneKey | None) -> None:
        now_ms = self._clock.now_ms()
        if key is None:
            for producer in tuple(self._holding):
                producer.lanes.changed(now_ms)
                self._pump(producer)
            return
        for number in tuple(self._holders.get(key, ())):
            producer = self._producers[number]
            producer.lanes.changed(now_ms, key)
            self._pump(producer, key)

    def _tick(self, producer: Producer) -> None:
        producer.timer = None
        self._pump(producer)

    def _pump(self, producer: Producer, key: LaneKey | None = None) -> None:
        """`key`: only this lane; parts that wait for a time have their timer already."""
        if producer.caller.gone:
            return
        now_ms, lanes = self._clock.now_ms(), producer.lanes
        done: list[ProduceCall] = []
        for part in lanes.expired(now_ms) if key is None else ():
            part.call.fail(part, NO_OWNER)
            done.append(part.call)
        gone: list[LaneKey] = []
        refusing: set[Channel] = set()
        for resend in lanes.due(partial(self._resolve, gone, refusing), now_ms, key):
            if not self._send_again(producer, resend, now_ms):
                refusing.add(resend.target)
            done += [part.call for part in resend.parts]
        for lost in gone:
            for part in lanes.held_in(lost):
                lanes.withdraw(part)
                part.call.fail(part, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                done.append(part.call)
        for call in done:
            if call.waiting == 0 and call.exchange.unanswered:
                call.finish()
        if key is None or not lanes.held_count:
            self._arm(producer)

    def _resolve(self, gone: list[LaneKey], refusing: set[Channel], key: LaneKey) -> Channel | None:
        """A service whose queue was just full is asked once for all lanes: thousands of them may be held."""
        if self._topics.by_id(key[0]) is None:
            gone.append(key)
            return None
        channel = self._routing.producer(key)
        return None if channel in refusing else channel

    def _send_again(self, producer: Producer, resend: Resend[ProducePart, Channel], now_ms: int) -> bool:
        """One by one. False: one could not even be sent, so it and those behind it are in the lane again."""
        for part in resend.parts:
            if producer.lanes.held_in(part.key):
                producer.lanes.refused(part, now_ms)
                continue
            self.resent_parts += 1
            whole = part.call.as_received and len(part.call.parts) == 1
            self._send(producer, Share(part.call, [part], resend.target, resend.epoch, whole), now_ms)
        return not producer.lanes.held_in(resend.parts[0].key)

    def _arm(self, producer: Producer) -> None:
        if producer.timer is not None:
            producer.timer.cancel()
            producer.timer = None
        next_ms = producer.lanes.next_ms()
        if next_ms is None:
            self._holding.pop(producer, None)
            return
        self._holding[producer] = None
        delay_s = max(1, next_ms - self._clock.now_ms()) / 1000
        producer.timer = asyncio.get_running_loop().call_later(delay_s, self._tick, producer)

    # ---- the end of a call

    def _expire(self, producer: Producer, call: ProduceCall) -> None:
        """The deadline has passed. Parts at a service have an unknown outcome; held parts were not appended."""
        shares, call.shares = call.shares, []
        for share in shares:
            self._unknown(producer, share, "a Produce was not answered in time")
            if share.pending is not None:
                share.pending.cancel()
        for part in call.parts:
            if part.result is None:
                if producer.lanes.holds(part):
                    producer.lanes.withdraw(part)
                call.fail(part, NO_OWNER)
        self._settle(producer, call)
