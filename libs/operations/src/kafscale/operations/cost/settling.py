"""Partitions from one settled segment to the next: how their slices fold, and what settling reads. Pure.

The rules are those of the produce service (`log/folding.py`, `log/settling.py`). They run on sizes alone and by a
simulated clock, for some partitions that share their memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, sqrt
from random import Random
from typing import Final

from kafscale.log.heads import Head, Seg
from kafscale.produce.log.flight import OpenBuffer
from kafscale.produce.log.model import Limits
from kafscale.produce.log.settling import Kept, KeptBudget, foldable, is_full, ripening_ms

TAIL_ENTRIES_MAX: Final = Limits().checkpoint_at
"""A tail of so many entries is settled if it begins with a slice."""
PARTITIONS_MIN: Final = 40
PARTITIONS_MAX: Final = 400
"""The memory of few partitions holds few slices, so that one fold fills much of it: with 40 partitions in place of a
thousand, settling reads up to a half more. Beyond 400 it changes by 3 %."""
SLICES_MAX: Final = 60_000
"""That are simulated if this leaves PARTITIONS_MIN: two seconds."""
PERIODS_MIN: Final = 3
"""The first one is not counted: the partitions begin together."""
RUNS_MIN: Final = 100
"""That are counted."""
NORMAL_FROM: Final = 30.0
"""A Poisson distribution with this mean is as good as a normal one."""
_MARK_BITS: Final = 16
"""Of a checksum, which spreads the ages at which runs are settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The slices that become one segment."""

    bytes: float
    seconds: float
    """Age of its first slice when it is settled."""
    entries: float
    entries_read: float
    """Of these, the slices that are no longer in memory: settling reads each with one GET."""
    written_bytes: float
    """Bytes of these slices in bundles. Folding writes a record more than once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """Of one partition: records of one size that arrive at random times, and a slice of those that are there."""

    record_bytes: int
    bytes: float
    """The mean."""
    per_s: float

    def sizes(self, random: Random) -> Iterator[int]:
        """Random ones. The records of a slice are of a Poisson distribution without 0."""
        mean = _poisson_mean(self.bytes / self.record_bytes)
        while True:
            yield self.record_bytes * (_poisson_above_0(random, mean) if mean else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """When a run is settled, and how many bytes of all partitions are kept in memory."""

    segment_bytes: float
    settle_s: float
    kept_bytes: float


class _Batches(OpenBuffer):
    """Of a slice, without their bytes: folding and the memory look at sizes only."""

    __slots__ = ()

    def __init__(self, base: int, end: int, size: int) -> None:
        super().__init__(base)
        self.end = end
        self.bytes = size

    def copied(self) -> OpenBuffer:
        return self


class Partition:
    """Each slice that it writes is committed at once."""

    def __init__(self, budget: KeptBudget, limit: Limit, early_s: float = 0.0) -> None:
        """`early_s`: its first run is settled so much earlier. Else all partitions would settle together."""
        self._limit = limit
        self._kept = Kept(budget)
        self.head = Head(epoch=1, topic="")
        self._began_s = self.due_s = 0.0
        self._early_s = early_s
        self._written = self._written_twice = 0

    def write(self, size: int, now_s: float, mark: int) -> None:
        """A slice of `size` bytes. `mark`: of its checksum."""
        head = self.head
        taken = foldable(head, self._kept, size, 0)
        whole = size + sum(batches.bytes for batches in taken)
        batches = _Batches(taken[0].base if taken else head.next, head.next + 1, whole)
        slice_ = _slice_of(batches, mark)
        if not head.tail:
            self._began_s = now_s
            ripe_s = ripening_ms(slice_, int(self._limit.settle_s * 1000)) / 1000
            self.due_s, self._early_s = now_s + max(ripe_s - self._early_s, 0.0), 0.0
        tail = (*head.tail[: len(head.tail) - len(taken)], slice_)
        self.head = replace(head, tail=tail, next=batches.end)
        self._kept.add(batches)
        self._kept.keep_only(tail)
        self._written += size
        self._written_twice += whole

    @property
    def is_full(self) -> bool:
        tail = self.head.tail
        return is_full(tail, int(self._limit.segment_bytes)) or len(tail) >= TAIL_ENTRIES_MAX

    def settled(self, now_s: float) -> Run:
        """What was written since the last time. Nothing of it is left."""
        tail = self.head.tail
        run = Run(
            bytes=self._written,
            seconds=now_s - self._began_s,
            entries=len(tail),
            entries_read=sum(self._kept.get(seg) is None for seg in tail),
            written_bytes=self._written_twice,
        )
        self.head = replace(self.head, tail=())
        self._kept.keep_only(())
        self._written = self._written_twice = 0
        return run


def _slice_of(batches: OpenBuffer, mark: int) -> Seg:
    return Seg(
        base=batches.base,
        last_delta=batches.end - batches.base - 1,
        size=batches.bytes,
        etag="",
        crc32c=mark,
        index_size=0,
        index_etag="",
        epoch=1,
        min_ts=0,
        max_ts=0,
        records=batches.end - batches.base,
        batches=1,
        created_ms=0,
        bundle=b"b",
    )


def mean_run(slices: Slices, limit: Limit, partitions: float) -> Run:
    """Of the partitions of an owner, which share the memory of `limit`, after they have worked for a while."""
    random = Random(0)  # noqa: S311 - equal loads have equal figures
    in_a_run = max(1.0, min(slices.per_s * limit.settle_s, limit.segment_bytes / slices.bytes))
    many = min(PARTITIONS_MAX, max(PARTITIONS_MIN, SLICES_MAX / (in_a_run * PERIODS_MIN)))
    count = ceil(min(partitions, many))
    owner = _Owner(limit, KeptBudget(int(limit.kept_bytes * count / partitions)), count, random)
    steps, periods = ceil(in_a_run * count), max(PERIODS_MIN, ceil(RUNS_MIN / count) + 1)
    sizes = slices.sizes(random)
    for step in range(steps * periods):
        if step == steps:
            owner.runs.clear()
        owner.write(next(sizes), step / (slices.per_s * count))
    return mean(owner.runs)


class _Owner:
    def __init__(self, limit: Limit, budget: KeptBudget, count: int, random: Random) -> None:
        self._random = random
        self._partitions = [Partition(budget, limit, limit.settle_s * random.random()) for _ in range(count)]
        self._due: list[tuple[float, int]] = []
        """A heap of (time at which a run is old enough, partition). Runs that were full are in it until then."""
        self.runs: list[Run] = []

    def write(self, size: int, now_s: float) -> None:
        """A slice of one of the partitions."""
        self._settle_ripe(now_s)
        number = self._random.randrange(len(self._partitions))
        partition = self._partitions[number]
        begins = not partition.head.tail
        partition.write(size, now_s, self._random.getrandbits(_MARK_BITS))
        if begins:
            heapq.heappush(self._due, (partition.due_s, number))
        if partition.is_full:
            self.runs.append(partition.settled(now_s))

    def _settle_ripe(self, now_s: float) -> None:
        """In time, not with the next slice: a partition with few records would keep its batches for longer."""
        while self._due and self._due[0][0] <= now_s:
            due_s, number = heapq.heappop(self._due)
            partition = self._partitions[number]
            if partition.head.tail and partition.due_s == due_s:
                self.runs.append(partition.settled(due_s))


def mean(runs: Sequence[Run]) -> Run:
    count = len(runs)
    return Run(
        bytes=sum(run.bytes for run in runs) / count,
        seconds=sum(run.seconds for run in runs) / count,
        entries=sum(run.entries for run in runs) / count,
        entries_read=sum(run.entries_read for run in runs) / count,
        written_bytes=sum(run.written_bytes for run in runs) / count,
    )


def _poisson_mean(above_0: float) -> float:
    """Of the Poisson distribution that has this mean without 0; 0 for a mean of 1."""
    if above_0 <= 1:
        return 0.0
    low, high = 0.0, above_0
    while high - low > above_0 / 1e6:
        middle = (low + high) / 2
        low, high = (middle, high) if middle / (1 - exp(-middle)) < above_0 else (low, middle)
    return high


def _poisson_above_0(random: Random, mean: float) -> int:
    if mean > NORMAL_FROM:
        return max(1, round(random.gauss(mean, sqrt(mean))))
    count = 0
    while not count:
        left = exp(-mean)
        product = random.random()
        while product > left:
            count += 1
            product *= random.random()
    return count
