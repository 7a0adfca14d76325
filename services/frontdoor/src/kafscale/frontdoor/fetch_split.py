"""One Fetch request over several fetch instances, and the one answer that comes of it.

Laws: the first part with something to say (records or an error) ends the wait: the others are asked again without a
wait, and the answer includes what they then have. Each of them hears how long the client has waited (services/fetch,
`wait.py`). Without this it would read from etcd before it answers that there are no records. For the same reason they
must be as new as the request, not as new as the last commit. The answer names every partition asked for, in the order
of the request. Each part is asked for its share of max_bytes, so that together they are no more than that. The answer
obeys max_bytes, except that the first record set of the first partition that has one always goes through, or a
consumer would never advance. A part whose instance is lost goes to another one, once: any of them can serve it. If
that fails too, its partitions are NOT_LEADER_OR_FOLLOWER.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import structlog
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.forwarding import Forwarder
from kafscale.runtime.stream.client import PendingReply
from kafscale.runtime.stream.frame import Outcome, Reply, ReplyStatus
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import fetch as schema
from kafscale.wire.schema.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)

log = structlog.get_logger("kafscale.frontdoor.fetch")

Wanted = tuple[FetchRequestTopic, FetchRequestPartition]
TOPIC_IDS_FROM: Final = 13
SESSIONLESS_EPOCH: Final = -1
LOST: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER


@dataclass(slots=True, eq=False)
class FetchPart:
    """What one instance is asked."""

    channel: Channel
    wanted: Sequence[Wanted]
    pending: PendingReply | None = None
    response: FetchResponse | None = None
    wait_ended: bool = False
    moved: bool = False
    done: bool = False


def unserved(partition: int, code: ErrorCode) -> FetchResponsePartition:
    """An entry with an error. Its records are empty, never null: null records have broken clients."""
    return FetchResponsePartition(
        partition_index=partition, error_code=int(code), high_watermark=-1, records=b""
    )


def size_of(result: FetchResponsePartition) -> int:
    records = result.records
    if records is None:
        return 0
    if isinstance(records, bytes | bytearray | memoryview):
        return len(records)
    return sum(map(len, records))


def has_records_or_error(response: FetchResponse) -> bool:
    if response.error_code:
        return True
    return any(
        entry.error_code or size_of(entry) or entry.diverging_epoch.epoch >= 0
        for topic in response.responses
        for entry in topic.partitions
    )


class SplitFetch:
    __slots__ = (
        "_exchange",
        "_forwarder",
        "_log_starts",
        "_message",
        "_parts",
        "_revision",
        "_since_ms",
        "_version",
    )

    def __init__(
        self,
        forwarder: Forwarder,
        exchange: Exchange,
        message: FetchRequest,
        wanted: dict[Channel, list[Wanted]],
    ) -> None:
        self._forwarder = forwarder
        self._exchange = exchange
        self._message = message
        self._version = exchange.version
        self._since_ms = forwarder.clock.now_ms()
        self._revision = forwarder.acked.commits.value
        self._log_starts = forwarder.acked.log_starts.value
        self._parts = [FetchPart(channel, entries) for channel, entries in wanted.items()]

    def start(self) -> None:
        share = max(0, self._message.min_bytes)
        min_bytes = -(-share // len(self._parts))
        for part in self._parts:
            self._ask(part, self._message.max_wait_ms, min_bytes)

    def _ask(self, part: FetchPart, max_wait_ms: int, min_bytes: int) -> None:
        exchange, forwarder = self._exchange, self._forwarder
        body = schema.encode_request(self._share(part, max_wait_ms, min_bytes), self._version)
        meta = exchange.meta(
            now_ms=forwarder.clock.now_ms(),
            revision=self._revision,
            log_start_revision=self._log_starts,
        )
        pending = part.pending = part.channel.send(exchange.api, exchange.span, meta, body)
        pending.future.add_done_callback(partial(self._replied, part, pending))

    def _share(self, part: FetchPart, max_wait_ms: int, min_bytes: int) -> FetchRequest:
        message = self._message
        topics: list[FetchRequestTopic] = []
        last: FetchRequestTopic | None = None
        for topic, entry in part.wanted:
            if topic is not last:
                last = topic
                topics.append(FetchRequestTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=[]))
            topics[-1].partitions.append(entry)
        return msgspec.structs.replace(
            message,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=-(-message.max_bytes // len(self._parts)),
            session_id=0,
            session_epoch=SESSIONLESS_EPOCH,
            topics=topics,
            forgotten_topics_data=[],
        )

    def _replied(self, part: FetchPart, pending: PendingReply, future: "asyncio.Future[Reply]") -> None:
        if part.pending is not pending or not self._exchange.unanswered:
            return
        part.pending = None
        status = ReplyStatus.LOST if future.cancelled() else future.result().status
        if status.outcome is Outcome.ANSWERED:
            part.response = self._read(future.result())
        elif (status.outcome is Outcome.NOT_EXECUTED or status is ReplyStatus.LOST) and self._move(part):
            return
        part.done = True
        if all(other.done for other in self._parts):
            self._answer()
        elif part.response is None or has_records_or_error(part.response):
            self._end_waits()

    def _read(self, reply: Reply) -> FetchResponse | None:
        try:
            return schema.decode_response(reply.body, self._version)
        except WireError as error:
            log.error("invalid answer of a fetch service", reason=str(error))
            return None

    def _move(self, part: FetchPart) -> bool:
        other = None if part.moved else self._forwarder.routing.pool(Backend.FETCH).another([part.channel])
        if other is None:
            return False
        part.moved = True
        part.channel = other
        self._ask(part, -self._waited_ms() if part.wait_ended else self._message.max_wait_ms, 1)
        return True

    def _end_waits(self) -> None:
        """A part has records or an error, so the other parts stop waiting."""
        for part in self._parts:
            if part.done or part.wait_ended:
                continue
            part.wait_ended = True
            pending, part.pending = part.pending, None
            if pending is not None:
                pending.cancel()
            self._ask(part, -self._waited_ms(), 0)

    def _waited_ms(self) -> int:
        return self._forwarder.clock.now_ms() - self._since_ms

    def _answer(self) -> None:
        response = FetchResponse()
        found: dict[tuple[str | bytes, int], FetchResponsePartition] = {}
        for part in self._parts:
            if part.response is None:
                continue
            response.throttle_time_ms = max(response.throttle_time_ms, part.response.throttle_time_ms)
            response.error_code = response.error_code or part.response.error_code
            response.node_endpoints = [*response.node_endpoints, *part.response.node_endpoints]
            for topic in part.response.responses:
                for entry in topic.partitions:
                    found[self._key(topic), entry.partition_index] = entry
        response.responses = self._in_order(found)
        self._exchange.error = response.error_code
        self._exchange.answer(schema.encode_response(response, self._version))

    def _in_order(
        self, found: dict[tuple[str | bytes, int], FetchResponsePartition]
    ) -> list[FetchResponseTopic]:
        topics: list[FetchResponseTopic] = []
        left = max(0, self._message.max_bytes)
        empty = True
        for topic in self._message.topics:
            entries: list[FetchResponsePartition] = []
            for asked in topic.partitions:
                entry = found.get((self._key(topic), asked.partition))
                if entry is None:
                    entry = unserved(asked.partition, LOST)
                size = size_of(entry)
                if entry.records is None or (size > left and not empty):
                    entry.records, size = b"", 0
                empty = empty and not size
                left -= size
                entries.append(entry)
            topics.append(FetchResponseTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=entries))
        return topics

    def _key(self, topic: FetchRequestTopic | FetchResponseTopic) -> str | bytes:
        return topic.topic_id if self._version >= TOPIC_IDS_FROM else topic.topic

    def abandon(self) -> None:
        for part in self._parts:
            pending, part.pending = part.pending, None
            if pending is not None:
                pending.cancel()

    def expire(self) -> None:
        self.abandon()
        self._answer()
