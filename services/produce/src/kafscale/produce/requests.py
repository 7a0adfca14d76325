"""The requests of producers: the gates before a partition, and what an append holds until its answer.

`Admission` looks at memory and etcd, `UnknownTopics` at the view of topics. `LaneOrder` keeps the requests of one
connection in order across a redirect. `AppendOrder` keeps the batches of one producer in order after a refusal. Each
gate's answer is definite: nothing of a refused request is appended. All gates but `UnknownTopics` are pure. So is
`penalties`, which saves claims that would fail.

`Requests` are the appends of one partition that have no answer yet. An append is answered once. `AppendOrder` learns of
a refusal here, before the client does.

A bundle, a segment, its index and the transaction serve many requests. Law: each of them is one span, a child of the
first traced request inside, with links to the other traced ones. Without traced requests nothing is done.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from kafscale.produce.log.contents import Contents
from kafscale.produce.log.flight import Flight
from kafscale.produce.log.model import (
    CommitHead,
    Instant,
    Part,
    PutObject,
    Rejection,
    Reply,
    Token,
)
from kafscale.produce.log.writer import PartitionWriter
from kafscale.produce.transactions import Transaction
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.committer import TRANSACTION, Committer
from kafscale.runtime.tracing import Span
from kafscale.storage.history.history import History
from kafscale.storage.keys import PartitionKey
from kafscale.storage.topics import TopicsView
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import HEADER_SIZE

DEGRADED_SHARE = 0.25
UNRESOLVED_TOLERATED_MS = 1_000
LANES_MAX = 1 << 16
LANE_KEPT_MS = 60_000
"""Longer than a front door may hold a request on its way."""
KEPT_MS = 120_000
NEW_OWNER_MS = 10_000
"""So long after a claim a gap may come from what another owner, or a front door without one, refused before."""
KEPT_MAX = 1 << 16
_PRODUCER = struct.Struct(">qhi")  # id, epoch, base sequence
_PRODUCER_AT = 43  # in a batch header

REPEATED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Errors after which a client sends the same batch again."""

Lane = tuple[int, str | bytes, int]
_PUTS = {Part.SEGMENT: "PUT segment", Part.INDEX: "PUT index"}
_UNTRACED = nullcontext()
K = TypeVar("K")
V = TypeVar("V", bound=tuple[int, ...])


class Admission:
    """Reserves memory for a request; the handler releases it with the answer.

    While etcd gives no answer to a commit, nothing can be acknowledged, so only a quarter of the memory
    is open to new requests; what is in flight keeps the rest. While etcd is out of space a commit may be
    applied or not, so nothing new is started. Nor is it if etcd went back in its history. All answers are definite and
    retriable.
    """

    def __init__(self, budget: MemoryBudget, committer: Committer, history: History) -> None:
        self._budget = budget
        self._committer = committer
        self._history = history

    def admit(self, size: int) -> ErrorCode:
        committer = self._committer
        if self._history.stopped is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        share = 1.0
        if committer.has_unknown:
            if committer.out_of_space():
                return ErrorCode.KAFKA_STORAGE_ERROR
            if committer.unresolved_ms() > UNRESOLVED_TOLERATED_MS:
                share = DEGRADED_SHARE
        if not self._budget.reserve(size, share=share):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def release(self, size: int) -> None:
        self._budget.release(size)


class UnknownTopics:
    """Queues of continuations per name or id, for topics that the view lacks.

    A topic is used the moment it was created, often before the watch shows it. The law: the first request for a topic
    that the view lacks has all topics read from etcd. Later requests for the same topic queue behind it, and all
    continue in the order of their arrival. Each continuation gets whether the read succeeded: if not, nothing says that
    the topic is unknown.
    """

    def __init__(self, topics: TopicsView) -> None:
        self._topics = topics
        self._queues: dict[str | bytes, list[Callable[[bool], None]]] = {}

    def waits(self, ref: str | bytes) -> bool:
        return bool(self._queues) and ref in self._queues

    def wait(self, ref: str | bytes, go_on: Callable[[bool], None]) -> None:
        queue = self._queues.setdefault(ref, [])
        queue.append(go_on)
        if len(queue) == 1:
            self._topics.confirm(partial(self._run, ref))

    def _run(self, ref: str | bytes, known: bool) -> None:
        for go_on in self._queues.pop(ref):
            go_on(known)


class LaneOrder:
    """The lanes that were redirected in the last minute, oldest first.

    The law: once a request of (connection, partition) was refused with NOT_OWNER, every request
    of that lane with the same or an older lane epoch is refused too, even when this instance owns the
    partition by then. The front door holds the lane, waits for all of it, and sends it again in order
    with a higher lane epoch; without this, a later request could pass the refused one.
    A partition has the topic's name or id here, as the request has it. When a topic is made again, this instance may
    still find the old one for the first of two requests, and the new one for the second.
    """

    def __init__(self) -> None:
        self._lanes: dict[Lane, tuple[int, int]] = {}  # → lane epoch, when

    def __len__(self) -> int:
        return len(self._lanes)

    def redirected(self, lane: Lane, lane_epoch: int, now_ms: int) -> None:
        known = self._lanes.pop(lane, None)
        if known is not None:
            lane_epoch = max(lane_epoch, known[0])
        self._lanes[lane] = (lane_epoch, now_ms)
        _trim(self._lanes, LANES_MAX, LANE_KEPT_MS, now_ms)

    def refuses(self, lane: Lane, lane_epoch: int) -> bool:
        known = self._lanes.get(lane)
        if known is None:
            return False
        if lane_epoch <= known[0]:
            return True
        del self._lanes[lane]
        return False


class Known(Protocol):
    """The producers whose sequences a partition checks by itself."""

    def __contains__(self, producer_id: int, /) -> bool: ...


class AppendOrder:
    """The batch that each producer must send again first, by partition; the oldest entries go first.

    A client sends several batches of a partition before the first is answered. If the first is refused (no memory, no
    room in the store, an epoch reset), the next one comes all the same. Two laws:
    - A producer that the partition does not know must send that same batch again before any other of its epoch is
      taken. It may start at any sequence, so the repeat of the first would look like an old duplicate, which clients
      count as success: a lost record.
    - To a producer that it knows, the next batch is a gap. The answer is a retriable error in place of
      OUT_OF_ORDER_SEQUENCE_NUMBER, until the first batch was taken. At that error librdkafka raises its epoch
      and sends batches again that are stored, of all partitions: records that are there twice (its issue 4953).

    Both hold over writers, as the refusal often ends one, and for KEPT_MS. A new owner does not know what was refused
    before it, so it answers each gap of a producer that its log knows in this way for NEW_OWNER_MS. A batch that is
    refused for these laws alone is no new refusal: otherwise a producer whose client has given the first batch up would
    be refused for ever.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[PartitionKey, int], tuple[int, int, int]] = {}  # → epoch, sequence, when

    def __len__(self) -> int:
        return len(self._first)

    def refused(self, key: PartitionKey, records: memoryview | None, now_ms: int) -> None:
        """A batch was answered with one of `REPEATED`: keep the lowest sequence of its epoch."""
        found = _producer_of(records)
        if found is None:
            return
        producer_id, epoch, sequence = found
        before = self._first.pop((key, producer_id), None)
        if before is not None and before[0] == epoch and _is_after(sequence, before[1]):
            sequence = before[1]
        self._first[key, producer_id] = (epoch, sequence, now_ms)
        _trim(self._first, KEPT_MAX, KEPT_MS, now_ms)

    def taken(self, key: PartitionKey, records: memoryview | None) -> None:
        """A batch is committed, so no earlier one is missing."""
        if not self._first:
            return
        found = _producer_of(records)
        if found is None:
            return
        producer_id, epoch, sequence = found
        before = self._first.get((key, producer_id))
        if before is not None and (before[0] != epoch or not _is_after(before[1], sequence)):
            del self._first[key, producer_id]

    def is_behind(self, key: PartitionKey, records: memoryview | None, known: Known, now_ms: int) -> bool:
        """Must this batch wait for one that was refused before it? Not if it is of a `known` producer."""
        if not self._first:
            return False
        found = _producer_of(records)
        if found is None:
            return False
        producer_id, epoch, sequence = found
        before = self._first.get((key, producer_id))
        if before is None or before[0] != epoch or producer_id in known or now_ms - before[2] >= KEPT_MS:
            return False
        return _is_after(sequence, before[1])


def _producer_of(records: memoryview | None) -> tuple[int, int, int] | None:
    """Producer id, its epoch and the first sequence, by the header of the first batch. None: it is not idempotent."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
    return (producer_id, epoch, sequence) if producer_id >= 0 else None


def _trim(entries: dict[K, V], count_max: int, kept_ms: int, now_ms: int) -> None:
    """Drops the oldest entries: those beyond `count_max`, and those older than `kept_ms`. Each ends with its time."""
    while entries:
        oldest = next(iter(entries))
        if len(entries) <= count_max and now_ms - entries[oldest][-1] < kept_ms:
            return
        del entries[oldest]


def _is_after(sequence: int, other: int) -> bool:
    """Sequences wrap after 2^31 - 1."""
    return 0 < (sequence - other) & 0x7FFF_FFFF < 1 << 30


def lasting(name: str, requests: Sequence[Span], key: str) -> AbstractContextManager[None]:
    """A span of the traced requests, around a request to the store for the object `key`."""
    span = _shared(name, requests, {"kafscale.object": key})
    return _UNTRACED if span is None else _until_end(span)


def _shared(name: str, requests: Sequence[Span], attributes: dict[str, str | int]) -> Span | None:
    return requests[0].child(name, attributes, links=requests[1:]) if requests else None


@contextmanager
def _until_end(span: Span) -> Iterator[None]:
    try:
        yield
    finally:
        span.end()


class Caller(Protocol):
    """A request that waits for the answers of its partitions; `slot` names one of them."""

    deadline_ms: int
    zstd_allowed: bool

    def settle(self, slot: int, reply: Reply) -> None: ...

    @property
    def abandoned(self) -> bool: ...  # no client reads the answer any more

    @property
    def span(self) -> Span | None: ...

    @property
    def transaction(self) -> Transaction | None: ...  # that its batches are of


class Request(NamedTuple):
    """An append that is not answered yet."""

    token: int
    caller: Caller
    slot: int
    records: memoryview | None
    converted: bool = False  # from a message set

    def given_up(self, now_ms: int) -> bool:
        """A request whose client has stopped waiting must not be appended late."""
        return self.caller.abandoned or self.caller.deadline_ms < now_ms


def behind(request: Request) -> Reply:
    """The client sends it again, after the earlier one."""
    return Reply(
        request.token,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        message="An earlier batch of this producer was refused and must come first.",
    )


NO_MEMORY = Contents(
    Rejection(ErrorCode.NOT_ENOUGH_REPLICAS, "There is no memory for the batch as its topic stores it.")
)


class RequestSpans:
    """The traced requests of one partition that wait for their answers."""

    def __init__(self) -> None:
        self._waiting: dict[Token, Span] = {}

    def waits(self, token: Token, span: Span) -> None:
        self._waiting[token] = span

    def answered(self, token: Token) -> None:
        self._waiting.pop(token, None)

    def put(self, writer: PartitionWriter, action: PutObject) -> AbstractContextManager[None]:
        """Around the request to the store."""
        if not self._waiting:
            return _UNTRACED
        inside = [flight for flight in writer.flights() if flight.base == action.base]
        return lasting(_PUTS[action.part], self.of(inside), action.key)

    def commit(self, writer: PartitionWriter, action: CommitHead) -> Span | None:
        """From the submission; the committer ends it."""
        if not self._waiting:
            return None
        inside = [flight for flight in writer.flights() if flight.end <= action.head.next]
        return _shared(TRANSACTION, self.of(inside), {"kafscale.segments": len(inside)})

    def of(self, flights: Iterable[Flight]) -> list[Span]:
        """Those of the requests whose records are in the flights."""
        if not self._waiting:
            return []
        tokens = (waiter.token for flight in flights for waiter in flight.waiters.items)
        return [span for token in tokens if (span := self._waiting.get(token)) is not None]


class Requests:
    """The appends of one partition that have no answer yet."""

    def __init__(
        self, key: PartitionKey, append_order: AppendOrder, budget: MemoryBudget, spans: RequestSpans
    ) -> None:
        self._key = key
        self._append_order = append_order
        self._budget = budget
        self._spans = spans
        self._open: dict[int, Request] = {}
        self._grown: dict[int, int] = {}  # → bytes held in addition to those that came
        self._token = 0
        self._doubted_until_ms = 0

    def took_over(self, now: Instant) -> None:
        """From now on they are taken, of producers that another owner knew."""
        self._doubted_until_ms = now.mono_ms + NEW_OWNER_MS

    def take(self, caller: Caller, slot: int, records: memoryview | None, converted: bool) -> Request:
        self._token = token = self._token + 1
        self._open[token] = request = Request(token, caller, slot, records, converted)
        if caller.span is not None:
            self._spans.waits(token, caller.span)
        return request

    def hold(self, request: Request, contents: Contents) -> Contents:
        """Batches that were compressed again are held until the answer, with those that came: if there is memory."""
        size = contents.grown_bytes
        if not size:
            return contents
        if not self._budget.reserve(size):
            return NO_MEMORY
        self._grown[request.token] = size
        return contents

    def is_behind(self, request: Request, known: Known, now: Instant) -> bool:
        return self._append_order.is_behind(self._key, request.records, known, now.mono_ms)

    def answer(self, reply: Reply, now: Instant) -> None:
        request = self._open[reply.token]
        if reply.error is ErrorCode.NONE:
            self._append_order.taken(self._key, request.records)
        elif reply.error in REPEATED:
            self._append_order.refused(self._key, request.records, now.mono_ms)
        elif reply.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._explains_gap(request, now):
            reply = behind(request)
        self.settle(request, reply)

    def _explains_gap(self, request: Request, now: Instant) -> bool:
        """Whether a batch that was refused before may be what is missing: its client sends it again."""
        order, now_ms = self._append_order, now.mono_ms
        return now_ms < self._doubted_until_ms or order.is_behind(self._key, request.records, (), now_ms)

    def settle(self, request: Request, reply: Reply) -> None:
        """The same for a refusal that others need not know of."""
        del self._open[request.token]
        self._budget.release(self._grown.pop(request.token, 0))
        self._spans.answered(request.token)
        request.caller.settle(request.slot, reply)
