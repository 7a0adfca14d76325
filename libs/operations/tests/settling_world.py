"""Partitions of an instance that share its memory for batches, by the produce service's own rules on a simulated clock.

Records arrive at random times, and a bundle follows the other at a fixed pace. Each slice is committed at once.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import cast

from kafscale.log.heads import Head, Seg
from kafscale.operations.cost.load import Tuning
from kafscale.produce.log.flight import OpenBuffer
from kafscale.produce.log.model import Limits
from kafscale.produce.log.settling import Kept, KeptBudget, foldable, is_full, ripening_ms

LIMITS = Limits()
MARK_BITS = 16


@dataclass(frozen=True, slots=True)
class Batches:
    """A buffer, as far as folding and the memory look at it."""

    base: int
    end: int
    bytes: int

    def copied(self) -> Batches:
        return self


class Partition:
    def __init__(self, budget: KeptBudget) -> None:
        self.head = Head(epoch=1, topic="t")
        self.kept = Kept(budget)
        self.ripe_ms: int | None = None

    def write(self, records: int, record_bytes: int, now_ms: int, mark: int) -> None:
        """`mark` decides about the age at which a run that begins here is settled."""
        base, end, size = self.head.next, self.head.next + records, records * record_bytes
        taken = foldable(self.head, self.kept, size, 0)
        base = taken[0].base if taken else base
        size += sum(batches.bytes for batches in taken)
        seg = slice_of(base, end, size, now_ms, mark)
        tail = (*self.head.tail[: len(self.head.tail) - len(taken)], seg)
        self.head = replace(self.head, tail=tail, next=end)
        self.kept.add(cast("OpenBuffer", Batches(base, end, size)))
        self.kept.keep_only(tail)

    def settle(self) -> tuple[int, int]:
        """How many slices become a segment, and how many of them must be read."""
        tail = self.head.tail
        read = sum(self.kept.get(seg) is None for seg in tail)
        self.head = replace(self.head, tail=())
        self.kept.keep_only(())
        return len(tail), read


def slice_of(base: int, end: int, size: int, created_ms: int, mark: int) -> Seg:
    return Seg(
        base=base,
        last_delta=end - base - 1,
        size=size,
        etag="",
        crc32c=mark,
        index_size=0,
        index_etag="",
        epoch=1,
        min_ts=0,
        max_ts=0,
        records=end - base,
        batches=1,
        created_ms=created_ms,
        bundle=b"b",
    )


def settled(
    partitions: int,
    records_per_s: float,
    bundles_per_s: int,
    tuning: Tuning,
    *,
    periods: int,
    record_bytes: int = 1_000,
) -> Counter[str]:
    """Sums over all partitions: `runs`, `slices` of these, `read` of them, and `ms`, the time. The first period does
    not count: the partitions begin together, and end their first runs at random times."""
    chance = random.Random(1)
    budget = KeptBudget(tuning.settle_keep_bytes)
    every = [Partition(budget) for _ in range(partitions)]
    found: Counter[str] = Counter()

    def count(each: Partition, now_ms: int) -> None:
        slices, read = each.settle()
        if now_ms >= begin_ms:
            found.update(runs=1, slices=slices, read=read)

    due: list[tuple[int, int]] = []
    begin_ms, end_ms, step_ms = tuning.settle_ms, tuning.settle_ms * periods, 1000 // bundles_per_s
    for now_ms in range(0, end_ms, step_ms):
        while due and due[0][0] <= now_ms:
            ripe_at_ms, number = heapq.heappop(due)
            if every[number].head.tail and every[number].ripe_ms == ripe_at_ms:
                count(every[number], now_ms)
        arrived = Counter(chance.randrange(partitions) for _ in range(round(records_per_s * step_ms / 1000)))
        for number, records in arrived.items():
            each = every[number]
            is_first, begins = each.ripe_ms is None, not each.head.tail
            each.write(records, record_bytes, now_ms, chance.getrandbits(MARK_BITS))
            tail = each.head.tail
            if begins:
                ripe = chance.randrange(tuning.settle_ms) if is_first else tuning.settle_ms
                each.ripe_ms = tail[0].created_ms + ripening_ms(tail[0], ripe)
                heapq.heappush(due, (each.ripe_ms, number))
            if len(tail) >= LIMITS.checkpoint_at or is_full(tail, tuning.segment_bytes):
                count(each, now_ms)
    found["ms"] = end_ms - begin_ms
    return found
