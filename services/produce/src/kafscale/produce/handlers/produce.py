"""Produce (0): v0-13.   v3 record batches · v7 zstd · v8 record errors · v9 flexible · v13 topic ids

Admission is synchronous, so that requests of a stream enter their partitions in arrival order; the
answer is joined when the last partition has settled. acks=1 is acks=all, but its wait is not bounded by the client's
timeout; acks=0 takes the same way without an answer. Before v3, message sets are converted to batches first, in a
separate queue (`opener.py`).
Transactional ids: INVALID_REQUEST, unless transactions are on. Then batches of a transaction wait until the coordinator
of the id has confirmed the partition (`joins.py`). For the whole request: 53 without an id, 49 for two producers. Per
partition: 47 fenced, 48 a batch outside of its producer's open transaction, 49 another producer has the id, 51 (before
v12: 19) an end is on its way, 120 (before v11: 48) the transaction does not take the partition.
Per partition: 3 or 100 unknown topic, 5 the topics could not be read from etcd, 6 not the owner (may be routed again),
7 outcome unknown at the deadline, 19 no memory, 56 store or etcd full, and what the writer finds wrong with the
batches; from v8 with a sentence where the code alone does not say it, and with each record that a compacted topic
refuses.
Not implemented: current_leader and node_endpoints (the front door knows the leaders, not we).
"""

from __future__ import annotations

import asyncio

import structlog
from kafscale.produce.log.model import Instant, Reply
from kafscale.produce.opener import CONVERTED_COPIES, ConversionLine, Converted
from kafscale.produce.ownership import Ownership
from kafscale.produce.partition import Partition
from kafscale.produce.requests import REPEATED, Admission, AppendOrder, LaneOrder, UnknownTopics
from kafscale.produce.transactions import Transaction, transaction_of, wire_code
from kafscale.runtime.clock import Clock
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.runtime.stream.server import InboundRequest
from kafscale.runtime.tracing import Span
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.message_sets import is_message_set
from kafscale.wire.schema.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceResponse,
    ProduceResponseBatchIndexAndErrorMessage,
    ProduceResponsePartition,
    ProduceResponseTopic,
    decode_request,
    encode_response,
)

log = structlog.get_logger(__name__)

ALL_REPLICAS = -1
VERSION_BATCHES = 3
VERSION_ZSTD = 7
VERSION_TOPIC_IDS = 13
TIMEOUT_MAX_MS = 120_000
"""Upper bound of the request's timeout. The commit continues after it."""
ACKS_ONE_MS = 600_000
"""Kafka's timeout bounds only the wait for replicas (acks=all). Without it a record is answered when it is written. The
front door gives up before, and closes the connection."""
_NOTHING_CONVERTED = Converted()


class OpenRequest:
    """A request whose partitions have not all settled. Is the `Caller` of each of them."""

    __slots__ = (
        "_answered",
        "_handler",
        "_parts",
        "_remaining",
        "_reserved",
        "_response",
        "_revision",
        "_status",
        "_replied",
        "by_id",
        "converted",
        "deadline_ms",
        "lanes",
        "request",
        "transaction",
        "version",
        "zstd_allowed",
    )

    def __init__(
        self, handler: ProduceHandler, request: InboundRequest, message: ProduceRequest, now_ms: int
    ) -> None:
        self.request = request
        self._handler = handler
        self._response = ProduceResponse()
        self._parts: list[ProduceResponsePartition] = []
        self._reserved = 0
        self._revision = 0
        self._status = ReplyStatus.FINAL
        self._answered = message.acks != 0
        self._replied = False
        self.converted = _NOTHING_CONVERTED
        self.deadline_ms = now_ms + handler.patience_ms(message)
        self.version = request.meta.api_version
        self.transaction: Transaction | None = None
        self.zstd_allowed = request.meta.api_version >= VERSION_ZSTD
        self.by_id = request.meta.api_version >= VERSION_TOPIC_IDS
        for topic in message.topic_data:
            parts = [
                ProduceResponsePartition(index=part.index, base_offset=-1) for part in topic.partition_data
            ]
            self._parts += parts
            self._response.responses.append(
                ProduceResponseTopic(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)
            )
        self._remaining = len(self._parts)
        self.lanes: list[tuple[str | bytes, int] | None] = [None] * self._remaining

    @property
    def abandoned(self) -> bool:
        return self._answered and self.request.cancelled

    @property
    def span(self) -> Span | None:
        return self.request.span

    def reserved(self, size: int) -> None:
        self._reserved = size

    def placed(self) -> None:
        """Every partition was found. With acks=0 only an error that its writer finds in this turn can be answered."""
        if self.request.span is not None:
            self.request.span.event("admitted")
        if not self._answered:
            asyncio.get_running_loop().call_soon(self._reply_unasked)

    def _reply_unasked(self) -> None:
        self._replied = True
        if any(part.error_code for part in self._parts):
            self._reply()
        else:
            self.request.reply(status=ReplyStatus.NO_REPLY)

    def refuse_all(self, error: ErrorCode) -> None:
        for slot in range(len(self._parts)):
            self.settle(slot, Reply(token=0, error=error))
        if not self._parts:
            self._finish()

    def settle(self, slot: int, reply: Reply) -> None:
        """One partition is done; the last one sends the answer."""
        part = self._parts[slot]
        part.base_offset = reply.base_offset
        part.log_append_time_ms = reply.log_append_time_ms
        part.log_start_offset = reply.log_start_offset
        part.error_message = reply.message
        if reply.revision > self._revision:
            self._revision = reply.revision
        if reply.error is not ErrorCode.NONE:
            part.error_code = error = wire_code(reply.error, self.version)
            part.record_errors = [
                ProduceResponseBatchIndexAndErrorMessage(
                    batch_index=fault.record, batch_index_error_message=fault.message
                )
                for fault in reply.faults
            ]
            self._failed(slot, error)
        self._remaining -= 1
        if not self._remaining:
            self._finish()

    def _failed(self, slot: int, error: ErrorCode) -> None:
        self.request.failed(error)
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._status = ReplyStatus.NOT_OWNER
            lane = self.lanes[slot]
            # A front door without an answer would never raise the lane's epoch.
            if lane is not None and (self._answered or not self._replied):
                self._handler.refused(self.request, lane)

    def _finish(self) -> None:
        self._handler.finished(self._reserved)
        if self._answered:
            self._reply()

    def _reply(self) -> None:
        body = encode_response(self._response, self.request.meta.api_version)
        self.request.reply(body, status=self._status, revision=self._revision)


class ProduceHandler:
    """See the module's law. Called by the stream server, once per request, in arrival order."""

    def __init__(
        self,
        *,
        ownership: Ownership,
        admission: Admission,
        lane_order: LaneOrder,
        append_order: AppendOrder,
        unknown_topics: UnknownTopics,
        conversions: ConversionLine,
        clock: Clock,
        timeout_min_ms: int,
        transactions: bool = False,
    ) -> None:
        self._ownership = ownership
        self._topics = ownership.world.topics
        self._admission = admission
        self._lane_order = lane_order
        self._append_order = append_order
        self._unknown_topics = unknown_topics
        self._conversions = conversions
        self._clock = clock
        self._timeout_min_ms = timeout_min_ms
        self._transactions = transactions

    def patience_ms(self, message: ProduceRequest) -> int:
        """How long the request waits for its records to be written."""
        if message.acks != ALL_REPLICAS:
            return ACKS_ONE_MS
        return min(max(message.timeout_ms, self._timeout_min_ms), TIMEOUT_MAX_MS)

    def __call__(self, request: InboundRequest) -> None:
        try:
            message = decode_request(request.body, request.meta.api_version)
        except WireError as malformed:
            log.warning("malformed Produce", error=str(malformed), peer=request.meta.peer)
            request.reply(status=ReplyStatus.FAILED)
            return
        now = self._ownership.tools.now()
        open_request = OpenRequest(self, request, message, now.mono_ms)
        if request.span is not None:
            request.span.set("kafka.partitions", len(open_request.lanes))
        size = len(request.body)
        old = request.meta.api_version < VERSION_BATCHES
        if old:
            size *= CONVERTED_COPIES
        error = self._wrong_with(open_request, message) or self._admission.admit(size)
        if error is not ErrorCode.NONE:
            self._refuse(open_request, message, error)
        else:
            open_request.reserved(size)
            if old:
                self._convert(open_request, message)
                return
            self._enter(open_request, message, now)
        open_request.placed()

    def _wrong_with(self, open_request: OpenRequest, message: ProduceRequest) -> ErrorCode:
        """With the whole request. Notes the transaction of its batches."""
        if message.acks not in (-1, 0, 1):
            return ErrorCode.INVALID_REQUIRED_ACKS
        if not self._transactions:
            return ErrorCode.NONE if message.transactional_id is None else ErrorCode.INVALID_REQUEST
        record_sets = (_view(part) for topic in message.topic_data for part in topic.partition_data)
        found = transaction_of(message.transactional_id, open_request.version, record_sets)
        if isinstance(found, ErrorCode):
            return found
        open_request.transaction = found
        return ErrorCode.NONE

    def _convert(self, open_request: OpenRequest, message: ProduceRequest) -> None:
        """Enter when the message sets are batches."""

        def wanted() -> bool:
            return not open_request.abandoned and self._clock.now_ms() < open_request.deadline_ms

        def enter(converted: Converted | None) -> None:
            if converted is None:
                self._refuse(open_request, message, ErrorCode.REQUEST_TIMED_OUT)
            else:
                open_request.converted = converted
                self._enter(open_request, message, self._ownership.tools.now())
            open_request.placed()

        self._conversions.add(message, wanted, enter)

    def _enter(self, open_request: OpenRequest, message: ProduceRequest, now: Instant) -> None:
        refused = open_request.converted.refused
        slot = 0
        for topic in message.topic_data:
            ref: str | bytes = topic.topic_id if open_request.by_id else topic.name
            for part in topic.partition_data:
                if slot in refused:
                    open_request.settle(slot, refused[slot])
                else:
                    self._enter_partition(open_request, slot, ref, part, now)
                slot += 1
        if not slot:
            open_request.refuse_all(ErrorCode.NONE)

    def _enter_partition(
        self,
        open_request: OpenRequest,
        slot: int,
        ref: str | bytes,
        part: ProduceRequestPartition,
        now: Instant,
    ) -> None:
        topic = self._topics.find(ref)
        if topic is None or not 0 <= part.index < topic.partitions or self._unknown_topics.waits(ref):
            self._unknown_topics.wait(
                ref,
                lambda known: self._enter_seen(
                    open_request, slot, ref, self._topics.find(ref), part, self._ownership.tools.now(), known
                ),
            )
            return
        self._enter_seen(open_request, slot, ref, topic, part, now)

    def _enter_seen(
        self,
        open_request: OpenRequest,
        slot: int,
        ref: str | bytes,
        topic: Topic | None,
        part: ProduceRequestPartition,
        now: Instant,
        known: bool = True,
    ) -> None:
        """Admits to the partition, or refuses. `known`: what the view of topics lacks does not exist."""
        if topic is None or not 0 <= part.index < topic.partitions:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not known:
                error = ErrorCode.LEADER_NOT_AVAILABLE
            elif open_request.by_id and topic is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            open_request.settle(slot, Reply(token=0, error=error))
            return
        lane = open_request.lanes[slot] = (ref, part.index)
        meta = open_request.request.meta
        partition: Partition | ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self._lane_order.refuses((meta.connection_id, *lane), meta.lane_epoch):
            owned = self._ownership.partitions.get((topic.topic_id, part.index))
            partition = owned or self._ownership.find_or_claim(topic, part.index)
        if isinstance(partition, ErrorCode):
            self._behind(topic, part, partition)
            open_request.settle(slot, Reply(token=0, error=partition))
            return
        converted = slot in open_request.converted.done
        partition.append(open_request, slot, _view(part), now, converted=converted)

    def _refuse(self, open_request: OpenRequest, message: ProduceRequest, error: ErrorCode) -> None:
        """As a whole: what its producers send after it must not be taken first."""
        for named in message.topic_data:
            topic = self._topics.find(named.topic_id if open_request.by_id else named.name)
            for part in named.partition_data if topic is not None else ():
                self._behind(topic, part, error)
        open_request.refuse_all(error)

    def _behind(self, topic: Topic | None, part: ProduceRequestPartition, error: ErrorCode) -> None:
        records = _view(part)
        if topic is not None and error in REPEATED and not (records and is_message_set(records)):
            key = (topic.topic_id, part.index)
            self._append_order.refused(key, records, self._clock.now_ms())

    # --- called by open requests -------------------------------------------------------------

    def refused(self, request: InboundRequest, lane: tuple[str | bytes, int]) -> None:
        meta = request.meta
        self._lane_order.redirected((meta.connection_id, *lane), meta.lane_epoch, self._clock.now_ms())

    def finished(self, reserved: int) -> None:
        self._admission.release(reserved)


def _view(part: ProduceRequestPartition) -> memoryview | None:
    records = part.records
    assert records is None or isinstance(records, memoryview), "decoded records are one view"
    return records
