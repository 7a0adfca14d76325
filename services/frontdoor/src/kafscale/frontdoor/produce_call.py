"""One Produce request on its way: its parts, what became of each, and the joined answer.

Law: the answer names each topic-partition of the request once, in the order of the request, each with what
its owner said or with a code of the front door. If a request has a partition twice, the last entry counts, as in
Kafka. Records are never touched: an answer or a share is built around the same bytes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.lanes import LaneEpoch, LaneKey, Part
from kafscale.runtime.stream.client import PendingReply
from kafscale.storage.keys import TopicId
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import produce
from kafscale.wire.schema.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)

UNPLACED: LaneKey = (TopicId(b""), -1)
TopicKey = str | bytes


def failed(index: int, code: ErrorCode) -> ProduceResponsePartition:
    """A result with an error. Its offsets are -1, because 0 would be a real offset."""
    return ProduceResponsePartition(
        index=index, error_code=int(code), base_offset=-1, log_append_time_ms=-1, log_start_offset=-1
    )


class ProducePart(Part):
    """One partition of a request. Without a result it is waiting: at a service or in its lane."""

    __slots__ = ("call", "entry", "result", "topic")

    def __init__(
        self, call: "ProduceCall", topic: ProduceRequestTopic, entry: ProduceRequestPartition
    ) -> None:
        super().__init__(UNPLACED, call.number, call.exchange.began_ms)
        self.call = call
        self.topic = topic
        self.entry = entry
        self.result: ProduceResponsePartition | None = None

    @property
    def placed(self) -> bool:
        return self.key is not UNPLACED


@dataclass(slots=True, eq=False)
class Share:
    """What went to one instance at once and is not answered yet."""

    call: "ProduceCall"
    parts: list[ProducePart]
    channel: Channel
    epoch: LaneEpoch
    whole: bool
    pending: PendingReply | None = None


@dataclass(slots=True, eq=False)
class ProduceCall:
    """`expired`: called when the deadline of the exchange has passed."""

    exchange: Exchange
    message: ProduceRequest
    number: int
    _expired: Callable[["ProduceCall"], None]
    version: int = field(init=False)
    parts: list[ProducePart] = field(init=False)
    waiting: int = field(init=False)
    shares: list[Share] = field(default_factory=list)
    throttle_ms: int = 0
    as_received: bool = True

    def __post_init__(self) -> None:
        self.version = self.exchange.version
        self.parts = self._cut(self.message)
        self.waiting = len(self.parts)

    def _cut(self, message: ProduceRequest) -> list[ProducePart]:
        topics = message.topic_data
        if len(topics) == 1 and len(topics[0].partition_data) == 1:
            return [ProducePart(self, topics[0], topics[0].partition_data[0])]
        parts: dict[tuple[TopicKey, int], ProducePart] = {}
        for topic in topics:
            name = self.topic_key(topic)
            for entry in topic.partition_data:
                earlier = parts.get((name, entry.index))
                if earlier is None:
                    parts[name, entry.index] = ProducePart(self, topic, entry)
                else:
                    earlier.entry = entry
                    self.as_received = False
        return list(parts.values())

    def topic_key(self, topic: ProduceRequestTopic | ProduceResponseTopic) -> TopicKey:
        return topic.topic_id if self.version >= 13 else topic.name

    def conclude(self, part: ProducePart, result: ProduceResponsePartition) -> None:
        if part.result is None:
            part.result = result
            self.waiting -= 1

    def fail(self, part: ProducePart, code: ErrorCode) -> None:
        self.conclude(part, failed(part.entry.index, code))

    def body(self, share: Share) -> list[Buffer]:
        """The request that carries just these parts; the client's own bytes when that is all of it."""
        if share.whole:
            return [self.exchange.request.body]
        message = self.message
        smaller = ProduceRequest(
            transactional_id=message.transactional_id,
            acks=message.acks,
            timeout_ms=message.timeout_ms,
            topic_data=self._topics(share.parts),
        )
        return produce.encode_request(smaller, self.version)

    def _topics(self, parts: Iterable[ProducePart]) -> list[ProduceRequestTopic]:
        topics: dict[TopicKey, ProduceRequestTopic] = {}
        for part in parts:
            key = self.topic_key(part.topic)
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = ProduceRequestTopic(
                    name=part.topic.name, topic_id=part.topic.topic_id, partition_data=[]
                )
            topic.partition_data.append(part.entry)
        return list(topics.values())

    @property
    def failed(self) -> bool:
        return any(part.result is not None and part.result.error_code for part in self.parts)

    def finish(self) -> None:
        """Every part has its result. With acks=0 the only way to report an error is to hang up."""
        exchange = self.exchange
        if not exchange.request.silent:
            exchange.error = next((r.error_code for p in self.parts if (r := p.result) and r.error_code), 0)
            exchange.answer(self.joined())
        elif self.failed:
            exchange.hang_up("a record with acks=0 was not accepted")
        else:
            exchange.silence()
        self.ended()

    def abandon(self) -> None:
        """The client has left."""
        for share in self.shares:
            if share.pending is not None:
                share.pending.cancel()
        self.ended()

    def expire(self) -> None:
        self._expired(self)

    def ended(self) -> None:
        """Drops the parts, which refer to this call. Without this only the garbage collector would free the
        connection."""
        self.parts = []
        self.shares = []

    def joined(self) -> list[Buffer]:
        topics: dict[TopicKey, ProduceResponseTopic] = {}
        for part in self.parts:
            assert part.result is not None, "an answer is joined when nothing is waiting"
            key = self.topic_key(part.topic)
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = ProduceResponseTopic(
                    name=part.topic.name, topic_id=part.topic.topic_id, partition_responses=[]
                )
            topic.partition_responses.append(part.result)
        response = ProduceResponse(responses=list(topics.values()), throttle_time_ms=self.throttle_ms)
        return produce.encode_response(response, self.version)
