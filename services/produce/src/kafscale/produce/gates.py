"""The gates of a Produce: what a request must pass before it enters its partition, in the order of this file.

`Admission` looks at memory and etcd, `UnknownTopics` at the view of topics. `LaneOrder` keeps the requests of one
connection in order across a redirect. `ClaimPenalties` saves claims that would fail. `AppendOrder` keeps the batches of
one producer in order after a refusal. Each gate's answer is definite: nothing of a refused request is appended. All
but `UnknownTopics` are pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafscale.produce.log.model import StepDownReason
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.committer import Committer
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import TopicsView
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import HEADER_SIZE

DEGRADED_SHARE = 0.25
UNRESOLVED_TOLERATED_MS = 1_000
LANES_MAX = 1 << 16
LANE_KEPT_MS = 60_000
"""Longer than a front door may hold a request on its way."""
PENALTY_MS = 500
DAMAGE_MS = 10_000
"""Until damage is looked at again: a person must repair it first."""
KEPT_MS = 120_000
KEPT_MAX = 1 << 16
_PRODUCER = struct.Struct(">qhi")  # id, epoch, base sequence
_PRODUCER_AT = 43  # in a batch header

PENALIZED = frozenset(
    {
        StepDownReason.FOREIGN_OBJECT,
        StepDownReason.STORE_FULL,
        StepDownReason.STORE_REFUSED,
        StepDownReason.STORE_UNAVAILABLE,
        StepDownReason.COMMIT_REJECTED,
        StepDownReason.DAMAGED,
    }
)
REPEATED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors after which a client sends the same batch again."""

Key = tuple[TopicId, int]
Lane = tuple[int, TopicId, int]


class Admission:
    """Reserves memory for a request; the handler releases it with the answer.

    While etcd gives no answer to a commit, nothing can be acknowledged, so only a quarter of the memory
    is open to new requests; what is in flight keeps the rest. While etcd is out of space a commit may be
    applied or not, so nothing new is started. Both answers are definite and retriable.
    """

    def __init__(self, budget: MemoryBudget, committer: Committer) -> None:
        self._budget = budget
        self._committer = committer

    def admit(self, size: int) -> ErrorCode:
        committer = self._committer
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
        self._trim(now_ms)

    def refuses(self, lane: Lane, lane_epoch: int) -> bool:
        known = self._lanes.get(lane)
        if known is None:
            return False
        if lane_epoch <= known[0]:
            return True
        del self._lanes[lane]
        return False

    def _trim(self, now_ms: int) -> None:
        while self._lanes:
            oldest = next(iter(self._lanes))
            if len(self._lanes) <= LANES_MAX and now_ms - self._lanes[oldest][1] < LANE_KEPT_MS:
                return
            del self._lanes[oldest]


class ClaimPenalties:
    """Partitions that must not be claimed yet. Bounded by the partitions that this instance had.

    A store that is full or refuses requests fails every new writer as it failed the last one, and each
    claim costs an epoch. The law: after such a step-down the partition answers the same retriable error
    for a while without a claim, so that retrying clients cost nothing.
    """

    def __init__(self) -> None:
        self._until: dict[Key, tuple[int, ErrorCode]] = {}

    def add(self, key: Key, reason: StepDownReason, now_ms: int) -> None:
        penalty_ms = DAMAGE_MS if reason is StepDownReason.DAMAGED else PENALTY_MS
        self._until[key] = (now_ms + penalty_ms, reason.error)

    def error(self, key: Key, now_ms: int) -> ErrorCode | None:
        """What to answer instead of claiming; None: claim."""
        found = self._until.get(key)
        if found is None:
            return None
        until_ms, error = found
        if now_ms < until_ms:
            return error
        del self._until[key]
        return None


class Known(Protocol):
    """The producers whose sequences a partition checks by itself."""

    def __contains__(self, producer_id: int, /) -> bool: ...


class AppendOrder:
    """The batch that each unknown producer must send again first, by partition; the oldest entries go first.

    A producer without history in a partition may start at any sequence. If the first of its
    pipelined batches is refused (no memory, no room in the store, an epoch reset) and the next one taken,
    the repeat of the first looks like an old duplicate, which clients count as success: a lost record.
    The law: after a refusal, a producer that the partition does not know must send that same batch
    again before any other of its epoch is taken. It holds over writers, as the refusal often ends one, and for
    KEPT_MS. A batch that is refused for this law alone is no new refusal: otherwise a producer whose client has
    given the first batch up would be refused for ever.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[Key, int], tuple[int, int, int]] = {}  # → epoch, sequence, when

    def __len__(self) -> int:
        return len(self._first)

    def refused(self, key: Key, records: memoryview | None, now_ms: int) -> None:
        """A batch was answered with one of `REPEATED`: keep the lowest sequence of its epoch."""
        if records is None or len(records) < HEADER_SIZE:
            return
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        if producer_id < 0:
            return
        before = self._first.pop((key, producer_id), None)
        if before is not None and before[0] == epoch and _is_after(sequence, before[1]):
            sequence = before[1]
        self._first[key, producer_id] = (epoch, sequence, now_ms)
        self._trim(now_ms)

    def is_behind(self, key: Key, records: memoryview | None, known: Known, now_ms: int) -> bool:
        """Must this batch wait for one that was refused before it?"""
        if not self._first or records is None or len(records) < HEADER_SIZE:
            return False
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        before = self._first.get((key, producer_id))
        if before is None or before[0] != epoch or producer_id in known or now_ms - before[2] >= KEPT_MS:
            return False
        return _is_after(sequence, before[1])

    def _trim(self, now_ms: int) -> None:
        while self._first:
            oldest = next(iter(self._first))
            if len(self._first) <= KEPT_MAX and now_ms - self._first[oldest][2] < KEPT_MS:
                return
            del self._first[oldest]


def _is_after(sequence: int, other: int) -> bool:
    """Sequences wrap after 2^31 - 1."""
    return 0 < (sequence - other) & 0x7FFF_FFFF < 1 << 30
