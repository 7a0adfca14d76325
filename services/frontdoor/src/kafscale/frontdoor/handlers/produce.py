"""Produce (0): v0-13.   v3 record batches · v7 zstd · v8 record errors · v9 flexible · v13 topic ids
Returns UNKNOWN_TOPIC_OR_PARTITION (from v13 UNKNOWN_TOPIC_ID), INVALID_TOPIC_EXCEPTION for a topic of Kafka's own
state (`INTERNAL_TOPICS`), whether it exists or not, INVALID_REQUIRED_ACKS, and for failures between a client and an
owner: LEADER_NOT_AVAILABLE (certainly not appended), or a closed connection (unknown). The produce service answers
everything else, message sets of v0-2 too.
TRANSACTIONAL_ID_AUTHORIZATION_FAILED for every partition; TOPIC_AUTHORIZATION_FAILED for those of a topic that the
client may not write, before the topic is looked up, while the others go on. Kafka asks for the transactional id only if
a batch is transactional; here records are not read, and a producer sends the id with no other batches. With acks=0 the
others are appended, and then the connection is closed.
"""

from functools import partial
from typing import Final

from kafscale.access.rules import Side, needs_of
from kafscale.frontdoor.api import Api, Area, Backend, Own
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.parts import Parts
from kafscale.frontdoor.produce_call import ProduceCall, failed
from kafscale.frontdoor.produce_lanes import Producer
from kafscale.runtime.stream.options import Stream
from kafscale.storage.topics import INTERNAL_TOPICS, READ_PAUSE_S, Topic, TopicState
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.headers import RequestHeader
from kafscale.wire.schema import produce
from kafscale.wire.schema.produce import ProduceRequest, ProduceRequestTopic, ProduceResponse
from kafscale.wire.varints import uvarint

NEEDS: Final = needs_of(ApiKey.PRODUCE, Side.FRONT_DOOR)
WRITE_TRANSACTION, WRITE_TOPIC = NEEDS
ACKS: Final = (-1, 0, 1)
TOPIC_IDS_FROM: Final = 13
TRANSACTIONAL_ID_FROM: Final = 3
ALL_REPLICAS: Final = -1
TIMEOUT_MS_MAX: Final = 300_000
GRACE_MS: Final = 1_000
"""The produce service counts the timeout from when it has the request, and answers REQUEST_TIMED_OUT then. After the
grace the front door closes the connection."""
PRODUCE_KEY: Final = int(ApiKey.PRODUCE)


def is_silent(header: RequestHeader, body: memoryview) -> bool:
    """Whether this is a Produce request with acks=0: the client waits for no answer."""
    if header.api_key != PRODUCE_KEY:
        return False
    try:
        start = _acks_start(header.api_version, body)
    except (WireError, IndexError):
        return False
    return bytes(body[start : start + 2]) == b"\x00\x00"


def _acks_start(version: int, body: memoryview) -> int:
    """acks follows the transactional id, which may be null."""
    if version < TRANSACTIONAL_ID_FROM:
        return 0
    if version >= produce.FLEXIBLE_FROM:
        length, start = (body[0], 1) if body[0] < 128 else uvarint(body, 0)
        return start + max(0, length - 1)
    return 2 + max(0, int.from_bytes(body[:2], "big", signed=True))


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    """The same error for every partition; message sets of old versions are not looked at."""
    return refuse_message(produce.decode_request(body, version), version, code)


def refuse_message(message: ProduceRequest, version: int, code: ErrorCode) -> list[Buffer]:
    topics = [
        produce.ProduceResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[failed(entry.index, code) for entry in topic.partition_data],
        )
        for topic in message.topic_data
    ]
    return produce.encode_response(ProduceResponse(responses=topics), version)


def _refuse_all(exchange: Exchange, message: ProduceRequest, code: ErrorCode) -> None:
    if exchange.request.silent:
        exchange.hang_up(f"Produce with acks=0: {code.name}")
        return
    exchange.error = int(code)
    exchange.answer(refuse_message(message, exchange.version, code))


class ProduceHandler:
    def __init__(self, parts: Parts) -> None:
        self._clock = parts.clock
        self._sender = parts.sender
        self._topics = parts.topics
        self._authorizer = parts.authorizer
        self._timeout_min_ms = parts.produce_timeout_min_ms

    def __call__(self, exchange: Exchange) -> None:
        message = produce.decode_request(exchange.request.body, exchange.version)
        refused = self._refusal(exchange, message)
        if refused is not None:
            _refuse_all(exchange, message, refused)
            return
        exchange.deadline_ms = exchange.began_ms + self._patience_ms(message)
        producer = self._sender.producer(exchange.caller)
        call = exchange.call = self._sender.call(producer, exchange, message)
        self._deny(call)
        if exchange.span is not None:
            exchange.span.set("kafka.topics", len(message.topic_data))
            exchange.span.set("kafka.partitions", len(call.parts))
        if producer.unplaced or not self._place(call):
            producer.unplaced.append(call)
            if len(producer.unplaced) == 1:
                self._topics.confirm(partial(self._looked_up, producer), recent_s=READ_PAUSE_S)
            return
        self._sender.start(producer, call, exchange.began_ms)

    def _patience_ms(self, message: ProduceRequest) -> int:
        """Kafka's timeout bounds only the wait for replicas."""
        if message.acks != ALL_REPLICAS:
            return TIMEOUT_MS_MAX
        return min(max(message.timeout_ms, self._timeout_min_ms) + GRACE_MS, TIMEOUT_MS_MAX)

    def _refusal(self, exchange: Exchange, message: ProduceRequest) -> ErrorCode | None:
        """The error of the whole request."""
        transaction = message.transactional_id
        if transaction is not None and not self._authorizer.rights_of(exchange).allows(
            WRITE_TRANSACTION, transaction
        ):
            return WRITE_TRANSACTION.code
        return None if message.acks in ACKS else ErrorCode.INVALID_REQUIRED_ACKS

    def _deny(self, call: ProduceCall) -> None:
        """Answers for the topics that the client may not write. Topics by id that the view lacks have no name yet."""
        if not self._authorizer.enforces:
            return
        names = {
            call.topic_key(part.topic): self._name(part.topic, call.version)
            for part in call.parts
            if part.result is None
        }
        asker = self._authorizer.rights_of(call.exchange)
        denied = asker.denied(WRITE_TOPIC, (name for name in names.values() if name is not None))
        for part in call.parts if denied else ():
            if part.result is None and names[call.topic_key(part.topic)] in denied:
                call.fail(part, WRITE_TOPIC.code)

    def _name(self, topic: ProduceRequestTopic, version: int) -> str | None:
        if version < TOPIC_IDS_FROM:
            return topic.name
        known = self._topics.by_id(topic.topic_id)
        return None if known is None else known.name

    def _looked_up(self, producer: Producer, believe: bool) -> None:
        """Requests behind one with an unknown topic waited too, or they would overtake it."""
        calls, producer.unplaced = producer.unplaced, []
        for call in calls:
            if producer.caller.gone or not call.exchange.unanswered:
                continue
            self._deny(call)
            if not self._place(call):
                self._fail_unplaced(call, believe)
            self._sender.start(producer, call, self._clock.now_ms())

    def _place(self, call: ProduceCall) -> bool:
        """Gives every part its lane; False when the view lacks the topic or the partition of one."""
        known = True
        for part in call.parts:
            if part.result is not None:
                continue
            topic, index = self._topic(part.topic, call.version), part.entry.index
            if (part.topic.name if topic is None else topic.name) in INTERNAL_TOPICS:
                call.fail(part, ErrorCode.INVALID_TOPIC_EXCEPTION)
            elif topic is None or index >= topic.partitions:
                known = False
            elif index < 0 or topic.state is not TopicState.ACTIVE:
                call.fail(part, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                part.key = (topic.topic_id, index)
        return known

    def _fail_unplaced(self, call: ProduceCall, believe: bool) -> None:
        for part in call.parts:
            if part.result is not None or part.placed:
                continue
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not believe:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            elif call.version < TOPIC_IDS_FROM and self._topics.is_damaged(part.topic.name):
                code = ErrorCode.KAFKA_STORAGE_ERROR
            elif call.version >= TOPIC_IDS_FROM and self._topic(part.topic, call.version) is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            call.fail(part, code)

    def _topic(self, topic: ProduceRequestTopic, version: int) -> Topic | None:
        if version >= TOPIC_IDS_FROM:
            return self._topics.by_id(topic.topic_id)
        return self._topics.by_name(topic.name)


API: Final = Api(
    key=ApiKey.PRODUCE,
    versions=(0, 13),
    backend=Backend.PRODUCE,
    dispatch=Own(ProduceHandler),
    refuse=refuse,
    stream=Stream.BULK,
    asks=NEEDS,
    writes=Area.RECORDS,
)
