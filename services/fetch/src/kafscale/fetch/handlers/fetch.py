"""Fetch (1): v0-18.   v4 record batches · v7 sessions, KIP-227 · v9 leader epochs, KIP-320
· v12 flexible · v13 topic ids

Answers whole batches from the one that holds the fetch offset; high watermark, last stable offset and log start are
always the real ones; an empty record set is never null, and no answer skips an offset. Up to v3, batches are converted
to message sets (`down_conversion.py`), the first one whole; message sets cannot hold zstd. From v4 on, zstd is served
as any codec, as Kafka does where the topic's own `compression.type` is not zstd (KIP-110).
A follower, which has a replica id, needs CLUSTER_ACTION; a client needs READ on each topic.
Returns TOPIC_AUTHORIZATION_FAILED, OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, UNSUPPORTED_COMPRESSION_TYPE, FETCH_SESSION_ID_NOT_FOUND;
NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR when etcd or the store cannot be read. Ignored: rack, other replica
fields, forgotten topics (no sessions are kept), last fetched epoch. The leader epoch of an earlier owner is accepted,
that of a deleted topic with the same name is fenced (`lookup.py`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kafscale.access.rules import Side, needs_of
from kafscale.fetch.cache import Lease, SegmentCache
from kafscale.fetch.down_conversion import BATCHES_FROM, CONVERTED_BYTES_MAX, DownConverter
from kafscale.fetch.errors import MetadataUnavailable, RequestKind, code_for
from kafscale.fetch.heads import Heads, Wakeup
from kafscale.fetch.lookup import DENIES_ALL, DeniedOf, Lookup, PartitionRequest, deny
from kafscale.fetch.plan import bytes_at_most
from kafscale.fetch.reader import PartitionRead, Reader
from kafscale.fetch.wait import Act, FetchWait, Offer, Step
from kafscale.log.isolation import visible_end
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Metrics, TopicTraffic
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.runtime.tracing import traced
from kafscale.storage.keys import PartitionKey
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import fetch as api

NEEDS: Final = needs_of(ApiKey.FETCH, Side.SERVICE)
OF_CLIENTS, OF_FOLLOWERS = NEEDS
READ_COMMITTED: Final = 1
SESSIONS_FROM: Final = 7
TOPIC_IDS_FROM: Final = 13
REPLICA_STATE_FROM: Final = 15
UNKNOWN_OFFSET: Final = -1
NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1


def session_error(session_epoch: int) -> ErrorCode:
    """NONE: serve the request in full, and answer session id 0. Versions below 7 have epoch -1.

    Fetch sessions (KIP-227) are answered without keeping any. Session id 0 makes the client send full requests, so any
    instance can serve any request. No instance gives out ids. A full request with an id (epoch 0 or -1) closes that
    session, which needs no work. An incremental one gets an error, because a success would confirm the id.
    """
    if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        return ErrorCode.NONE
    return ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def is_follower(message: api.FetchRequest, version: int) -> bool:
    """A follower's replica id is the id of its broker."""
    replica = message.replica_state.replica_id if version >= REPLICA_STATE_FROM else message.replica_id
    return replica >= 0


class PinnedAnswer(list[Buffer]):
    """Buffers that are views of pinned segments. The pins live as long as the list: the stream drops it once it has
    sent the answer, and no other event says so."""

    def __init__(self, buffers: Iterable[Buffer], lease: Lease) -> None:
        super().__init__(buffers)
        self._lease = lease

    def __del__(self) -> None:
        # The views go first: a segment must not be released while this list still refers to it.
        self.clear()
        self._lease.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    response_bytes_max: int
    held_requests_max: int
    max_wait_ms: int
    overload_throttle_ms: int = 500


class FetchMetrics:
    """What the handler counts of its answers. The other metrics are values of the service's parts (`server.py`)."""

    def __init__(self, metrics: Metrics) -> None:
        self.partitions = metrics.counter("partitions_total")
        self.segments_joined = metrics.counter("joined_segments_total")
        self.overloaded = metrics.counter("overloads_total")
        self.topics = TopicTraffic(metrics)

    def answered(self, asks: Sequence[PartitionRead]) -> None:
        self.partitions.value += len(asks)
        for ask in asks:
            spot, cut = ask.spot, ask.cut
            if cut.size and spot.topic is not None and spot.offset is not None:
                tallies = self.topics.of(spot.topic.name)
                tallies.bytes.value += cut.size
                tallies.records.value += cut.next_offset - spot.offset
                self.segments_joined.value += len(cut.parts)


class FetchHandler:
    def __init__(
        self,
        *,
        lookup: Lookup,
        heads: Heads,
        reader: Reader,
        cache: SegmentCache,
        clock: Clock,
        limits: FetchLimits,
        metrics: FetchMetrics,
        down_converter: DownConverter,
        authorization: Authorization,
    ) -> None:
        self._lookup = lookup
        self._heads = heads
        self._reader = reader
        self._cache = cache
        self._clock = clock
        self._limits = limits
        self._metrics = metrics
        self._down_converter = down_converter
        self._authorization = authorization
        self._held: set[Wakeup] = set()
        self._draining = False

    @property
    def held_requests(self) -> int:
        return len(self._held)

    def drain(self) -> None:
        """From now on nothing is held; what is held answers."""
        self._draining = True
        for wakeup in self._held:
            wakeup.set()

    async def __call__(self, request: InboundRequest) -> Sequence[Buffer]:
        version = request.meta.api_version
        message = api.decode_request(request.body, version)
        if version >= SESSIONS_FROM:
            error = session_error(message.session_epoch)
            if error is not ErrorCode.NONE:
                return answered(request, api.FetchResponse(error_code=error), api.encode_response)
        if version < BATCHES_FROM:
            message.max_bytes = min(message.max_bytes, CONVERTED_BYTES_MAX)
        asks = _asks(message, version)
        if request.span is not None:
            request.span.set("kafka.partitions", len(asks))
        lease = self._cache.lease()
        try:
            throttle_ms = await self._until_ready(asks, message, request, lease)
            if version < BATCHES_FROM:
                await self._down_converter.convert(asks, version, message.max_bytes)
            response = _response(message, asks, throttle_ms)
            answer = PinnedAnswer(api.encode_response(response, version), lease)
        except BaseException:
            lease.release()
            raise
        self._metrics.answered(asks)
        for ask in asks:
            if not ask.spot.readable:
                request.failed(ask.spot.error)
        return answer

    async def _until_ready(
        self, asks: list[PartitionRead], message: api.FetchRequest, request: InboundRequest, lease: Lease
    ) -> int:
        """Hold the request as long as it wants to be held, then read; the throttle time to answer."""
        max_bytes = min(message.max_bytes, self._limits.response_bytes_max)
        wait = FetchWait(
            min_bytes=min(message.min_bytes, max_bytes) if asks else 0,
            max_wait_ms=min(message.max_wait_ms, self._limits.max_wait_ms),
            now_ms=self._clock.now_ms(),
        )
        spots = [ask.spot for ask in asks]
        generation = self._authorization.generation
        await self._open(spots, message, request)
        keys = [spot.key for spot in spots if spot.key is not None]
        self._heads.fetched(keys)
        poll = _Poll(keys, min_revision=request.meta.revision, generation=generation)
        with self._heads.wakeup(keys) as wakeup:
            while True:
                wakeup.clear()
                step = await self._next_step(wait, poll, asks, message, lease)
                match step.act:
                    case Act.ANSWER:
                        self._ask_again(spots, poll, message, request)
                        return 0
                    case Act.REFRESH:
                        await self._refresh(spots, poll)
                    case Act.HOLD:
                        if len(self._held) >= self._limits.held_requests_max:
                            self._metrics.overloaded.inc()
                            return self._limits.overload_throttle_ms
                        await self._hold(wakeup, step.until_ms - self._clock.now_ms())

    async def _open(
        self, spots: list[PartitionRequest], message: api.FetchRequest, request: InboundRequest
    ) -> None:
        """Looks up what the reader may read. The rest has its error."""
        denied_of = self._denied_of(message, request)
        if denied_of is DENIES_ALL:
            deny(spots)
            return
        await self._lookup.open(
            spots, RequestKind.FETCH, denied_of=denied_of, log_start_revision=request.meta.log_start_revision
        )

    def _denied_of(self, message: api.FetchRequest, request: InboundRequest) -> DeniedOf | None:
        """None: it may read everything."""
        if self._authorization.authorizer is None:
            return None
        asker = self._authorization.of(request.meta)
        if not is_follower(message, request.meta.api_version):
            return partial(asker.denied, OF_CLIENTS)
        return None if asker.allows(OF_FOLLOWERS) else DENIES_ALL

    def _ask_again(
        self, spots: list[PartitionRequest], poll: "_Poll", message: api.FetchRequest, request: InboundRequest
    ) -> None:
        """Rights that were removed while the request waited are not there any more. In Kafka they last until then."""
        if self._authorization.generation == poll.generation:
            return
        denied_of = self._denied_of(message, request)
        if denied_of is not None:
            deny([spot for spot in spots if spot.readable], denied_of)

    async def _next_step(
        self,
        wait: FetchWait,
        poll: "_Poll",
        asks: list[PartitionRead],
        message: api.FetchRequest,
        lease: Lease,
    ) -> Step:
        """Judge by the metadata first; data is read only when it looks like enough."""
        if not poll.first:
            await self._lookup.review([ask.spot for ask in asks if ask.spot.readable], RequestKind.FETCH)
        poll.first = False
        if self._draining:
            wait.cut_short(self._clock.now_ms())
        committed_only = message.isolation_level == READ_COMMITTED
        for ask in asks:
            state = ask.spot.state
            if ask.spot.readable and state is not None:
                ask.upper = visible_end(state, committed_only=committed_only)
                ask.committed_only = committed_only
        promised = [_at_most(ask) for ask in asks]
        full = all(size >= max(1, ask.max_bytes) for size, ask in zip(promised, asks, strict=True))
        offer = self._offer(asks, poll, ready_bytes=sum(promised), full=full)
        step = wait.step(offer, self._clock.now_ms())
        if step.act is not Act.ANSWER:
            return step
        lease.release()
        max_bytes = min(message.max_bytes, self._limits.response_bytes_max)
        result = await self._reader.read(asks, max_bytes, lease)
        offer = self._offer(asks, poll, ready_bytes=result.size, full=result.full)
        step = wait.step(offer, self._clock.now_ms())
        if step.act is not Act.ANSWER:
            lease.release()
        return step

    def _offer(self, asks: list[PartitionRead], poll: "_Poll", *, ready_bytes: int, full: bool) -> Offer:
        heads, now_ms = self._heads, self._clock.now_ms()
        return Offer(
            ready_bytes=ready_bytes,
            full=full,
            failed=any(not ask.spot.readable for ask in asks),
            behind=poll.min_revision > 0
            and any(heads.revision(key) < poll.min_revision for key in poll.keys),
            read_ms=min(map(heads.read_ms, poll.keys), default=now_ms),
            confirmed_ms=min(map(heads.confirmed_ms, poll.keys), default=now_ms),
        )

    async def _refresh(self, spots: list[PartitionRequest], poll: "_Poll") -> None:
        """Whatever revision was demanded, this read began after it."""
        try:
            await self._heads.refresh(poll.keys)
        except MetadataUnavailable as failure:
            for spot in spots:
                if spot.readable:
                    spot.error = code_for(failure, RequestKind.FETCH)
        poll.min_revision = 0

    async def _hold(self, wakeup: Wakeup, timeout_ms: int) -> None:
        self._held.add(wakeup)
        try:
            with traced("hold"):
                await wakeup.wait(timeout_ms)
        finally:
            self._held.discard(wakeup)


class _Poll:
    """What one request carries from look to look."""

    __slots__ = ("first", "generation", "keys", "min_revision")

    def __init__(self, keys: list[PartitionKey], *, min_revision: int, generation: int) -> None:
        self.keys = keys
        self.generation = generation  # of the ACLs by which it was let in
        self.min_revision = min_revision
        self.first = True


def _asks(message: api.FetchRequest, version: int) -> list[PartitionRead]:
    by_id = version >= TOPIC_IDS_FROM
    return [
        PartitionRead(
            PartitionRequest(
                topic.topic_id if by_id else topic.topic,
                part.partition,
                leader_epoch=part.current_leader_epoch,
                offset=part.fetch_offset,
            ),
            part.partition_max_bytes,
        )
        for topic in message.topics
        for part in topic.partitions
    ]


def _at_most(ask: PartitionRead) -> int:
    """An upper bound from the metadata: what a manifest lists is taken to fill the limit."""
    if not ask.spot.readable or ask.offset >= ask.upper:
        return 0
    limit = max(1, ask.max_bytes)
    if ask.offset < ask.state.tail_start:
        return limit
    return min(limit, bytes_at_most(ask.state.tail, ask.offset, limit))


def _response(message: api.FetchRequest, asks: list[PartitionRead], throttle_ms: int) -> api.FetchResponse:
    committed_only = message.isolation_level == READ_COMMITTED
    left = iter(asks)
    return api.FetchResponse(
        throttle_time_ms=throttle_ms,
        session_id=NO_SESSION,
        responses=[
            api.FetchResponseTopic(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[_partition(next(left), committed_only=committed_only) for _ in topic.partitions],
            )
            for topic in message.topics
        ],
    )


def _partition(ask: PartitionRead, *, committed_only: bool) -> api.FetchResponsePartition:
    """With an error too it says where the log begins and ends, if that is known; Kafka then says -1."""
    spot = ask.spot
    error = spot.error
    state = spot.state
    return api.FetchResponsePartition(
        partition_index=spot.partition,
        error_code=error,
        high_watermark=UNKNOWN_OFFSET if state is None else state.next,
        last_stable_offset=UNKNOWN_OFFSET if state is None else state.lso,
        log_start_offset=UNKNOWN_OFFSET if state is None else state.log_start,
        aborted_transactions=_aborted(ask) if spot.key is None or committed_only else None,
        records=ask.cut.parts if error is ErrorCode.NONE else b"",
    )


def _aborted(ask: PartitionRead) -> list[api.FetchResponseAbortedTransaction]:
    """Clients hide their records. Null, as in Kafka, unless the partition is unknown or committed records were read."""
    if ask.spot.error is not ErrorCode.NONE:
        return []
    return [
        api.FetchResponseAbortedTransaction(producer_id=each.producer_id, first_offset=each.first)
        for each in ask.aborted
    ]
