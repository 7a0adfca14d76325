"""One partition from one settled segment to the next: how its slices fold, and what settling reads. Pure.

It repeats the rules of the produce service (`log/folding.py`, `log/settling.py`) on sizes alone, for some partitions
that share their memory, by the service's own budget. Tests compare the rule of folding, and the result, with the
service's own.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, exp, sqrt
from random import Random
from typing import Final

from kafscale.produce.log.folding import FOLD_BYTES_MAX, FOLD_MIN, KeptBudget
from kafscale.produce.log.model import Limits
from kafscale.produce.log.settling import RIPE_SPREAD

FOLD_WIDTH: Final = 2
TAIL_ENTRIES_MAX: Final = Limits().checkpoint_at
"""A tail of so many entries is settled if it begins with a slice."""
PARTITIONS_MIN: Final = 40
PARTITIONS_MAX: Final = 400
"""The memory of few partitions holds few slices, so that one fold fills much of it: with 40 partitions in place of a
thousand, settling reads up to a half more. Beyond 400 it changes by 3 %."""
SLICES_MAX: Final = 60_000
"""That are simulated if this leaves PARTITIONS_MIN: half a second."""
PERIODS_MIN: Final = 3
"""The first one is not counted: the partitions begin together."""
RUNS_MIN: Final = 100
"""That are counted."""
NORMAL_FROM: Final = 30.0
"""A Poisson distribution with this mean is as good as a normal one."""


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


@dataclass(slots=True)
class Entry:
    """A slice in the tail. `kept`: the owner still has its batches in memory."""

    bytes: int
    kept: bool = True


def folded(tail: Sequence[Entry], size: int) -> int:
    """How many entries at the end of the tail a new slice of `size` bytes repeats."""
    count = 0
    for entry in reversed(tail):
        if not entry.kept or entry.bytes > FOLD_WIDTH * size or size + entry.bytes > FOLD_BYTES_MAX:
            break
        count += 1
        size += entry.bytes
    return count if count >= FOLD_MIN else 0


class Partition:
    """`ripe_s`: the age at which its run is settled. `bytes`: of its batches in memory."""

    def __init__(self, budget: KeptBudget, ripe_s: float, segment_bytes: float) -> None:
        self._budget = budget
        self.ripe_s = ripe_s
        self._segment_bytes = segment_bytes
        self.tail: list[Entry] = []
        self._replaced: list[Entry] = []  # by a fold that is not counted to its end
        self.bytes = 0
        self._run_bytes = self._written_bytes = 0
        self._began_s = 0.0

    def write(self, size: int, now_s: float) -> None:
        """What the slice repeats counts twice for a moment, but for its first entry, as in the service."""
        if not self.tail:
            self._began_s = now_s
        at = len(self.tail) - folded(self.tail, size)
        taken = self.tail[at:]
        slice_ = Entry(size + sum(entry.bytes for entry in taken))
        self._run_bytes += size
        self._written_bytes += slice_.bytes
        self.tail[at:] = [slice_]
        self._forget(taken[:1])
        self._replaced = taken[1:]
        self._count(slice_.bytes)
        self._budget.make_room()
        self._forget(self._replaced)
        self._replaced = []

    def clear(self) -> None:
        """The budget is used up, and this partition has the most."""
        self._forget([*self.tail, *self._replaced])

    @property
    def due_s(self) -> float:
        """The time at which its run is old enough."""
        return self._began_s + self.ripe_s

    @property
    def is_full(self) -> bool:
        largest = max(entry.bytes for entry in self.tail)
        return self._run_bytes + largest > self._segment_bytes or len(self.tail) >= TAIL_ENTRIES_MAX

    def settled(self, now_s: float) -> Run:
        """What was written since the last time. Nothing of it is left."""
        run = Run(
            bytes=self._run_bytes,
            seconds=now_s - self._began_s,
            entries=len(self.tail),
            entries_read=sum(not entry.kept for entry in self.tail),
            written_bytes=self._written_bytes,
        )
        self.clear()
        self.tail.clear()
        self._run_bytes = self._written_bytes = 0
        return run

    def _forget(self, entries: Sequence[Entry]) -> None:
        self._count(-sum(entry.bytes for entry in entries if entry.kept))
        for entry in entries:
            entry.kept = False

    def _count(self, size: int) -> None:
        self.bytes += size
        self._budget.resized(self, self.bytes - size)


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
        self._limit = limit
        self._random = random
        self._partitions = [
            Partition(budget, limit.settle_s * random.random(), limit.segment_bytes) for _ in range(count)
        ]
        self._due: list[tuple[float, int]] = []
        """A heap of (time at which a run is old enough, partition). Runs that were full are in it until then."""
        self.runs: list[Run] = []

    def write(self, size: int, now_s: float) -> None:
        """A slice of one of the partitions."""
        self._settle_ripe(now_s)
        number = self._random.randrange(len(self._partitions))
        partition = self._partitions[number]
        begins = not partition.tail
        partition.write(size, now_s)
        if begins:
            heapq.heappush(self._due, (partition.due_s, number))
        if partition.is_full:
            self._settle(partition, now_s)

    def _settle_ripe(self, now_s: float) -> None:
        """In time, not with the next slice: a partition with few records would keep its batches for longer."""
        while self._due and self._due[0][0] <= now_s:
            due_s, number = heapq.heappop(self._due)
            partition = self._partitions[number]
            if partition.tail and partition.due_s == due_s:
                self._settle(partition, due_s)

    def _settle(self, partition: Partition, now_s: float) -> None:
        self.runs.append(partition.settled(now_s))
        partition.ripe_s = self._limit.settle_s * (1 + RIPE_SPREAD * (self._random.random() - 0.5))


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
