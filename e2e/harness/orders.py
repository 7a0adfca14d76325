"""What the tutorial's producer wrote, known without asking anybody: an oracle for each of the tutorial's counts.

Law: nothing here comes from KafScale but how its logs are cut into segments, and nothing from the producer's program.
A partition is an array: the element at an offset is the record's number in the producer's count. Keys
choose partitions as librdkafka's partitioner does, by their CRC-32. Retention and compaction are Kafka's rules again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.int64]

SPAN_MS = 10 * 86_400_000
PARTITIONS = 6
CUSTOMER_PARTITIONS = 2
CUSTOMERS = 1_000
OPEN = 1_000
PER_CUSTOMER_RECORD = 100
TIERS = ("basic", "silver", "gold")
DELETED = "deleted"  # what the page calls them


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment covers the offsets from `base` to `last`."""

    base: int
    last: int


def orders_of(count: int) -> list[Numbers]:
    """Of each partition of `orders`, the numbers of its records at their offsets."""
    which = order_of(np.arange(count))
    return _parted(which, [f"o{each:07d}" for each in range(int(which.max()) + 1)], PARTITIONS)


def customers_of(count: int) -> list[Numbers]:
    """The same for `customers`, when `orders` has this many records."""
    which = customer_of(np.arange(-(-count // PER_CUSTOMER_RECORD)))
    return _parted(which, [f"c{each:04d}" for each in range(CUSTOMERS)], CUSTOMER_PARTITIONS)


def _parted(which: Numbers, keys: Sequence[str], partitions: int) -> list[Numbers]:
    of_key = np.array([crc32(key.encode()) % partitions for key in keys])
    return [np.flatnonzero(of_key[which] == partition) for partition in range(partitions)]


def order_of(numbers: Numbers) -> Numbers:
    """Which order a record is about: a thousand of them take their four steps together."""
    return numbers // (4 * OPEN) * OPEN + numbers % OPEN


def customer_of(numbers: Numbers) -> Numbers:
    return numbers * 7 % CUSTOMERS


def is_deletion(numbers: Numbers) -> NDArray[np.bool_]:
    deleted: NDArray[np.bool_] = numbers % 97 == 0
    return deleted


def statuses_of(numbers: Numbers) -> NDArray[np.str_]:
    step = numbers // OPEN % 4
    names = np.array(["new", "paid", "shipped", "delivered"])[step]
    return np.where((step == 3) & (order_of(numbers) % 10 == 0), "returned", names)


def by_status(numbers: Numbers) -> dict[str, int]:
    names, counts = np.unique(statuses_of(numbers), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def amounts_by_status(numbers: Numbers) -> dict[str, float]:
    cents = order_of(numbers) * 37 % 20_000 + 500
    names = statuses_of(numbers)
    return {name: int(cents[names == name].sum()) / 100 for name in by_status(numbers)}


def delivered_by_tier(count: int) -> dict[str, tuple[int, int]]:
    """Tier -> the number of customers in it at the end that have delivered orders, and the number of these orders."""
    numbers = np.arange(count)
    delivered = order_of(numbers[statuses_of(numbers) == "delivered"]) * 7 % CUSTOMERS
    states = np.arange(-(-count // PER_CUSTOMER_RECORD))
    newest = dict(zip(customer_of(states).tolist(), states.tolist(), strict=True))
    found: dict[str, tuple[int, int]] = {}
    for customer, orders in zip(*np.unique(delivered, return_counts=True), strict=True):
        number = newest[int(customer)]
        gone = number % 97 == 0
        tier = DELETED if gone else TIERS[(int(customer) + number // CUSTOMERS) % len(TIERS)]
        customers, sum_before = found.get(tier, (0, 0))
        found[tier] = (customers + 1, sum_before + int(orders))
    return found


def times_ms(numbers: Numbers, count: int, now_ms: int) -> Numbers:
    """When a record was made, if the producer began at `now_ms`."""
    return now_ms - (count - numbers) * SPAN_MS // count


def start_after(segments: Iterable[Segment], times: Numbers, retention_ms: int, now_ms: int) -> int:
    """Where a log starts when its oldest segments have gone, as far as their newest records are too old.

    `times` ascend, one for each offset.
    """
    start = 0
    for segment in segments:
        if now_ms - int(times[segment.last]) <= retention_ms:
            break
        start = segment.last + 1
    return start


def compacted(keys: Numbers, start: int, end: int) -> Numbers:
    """The offsets that are left of a log whose records at [start, end) were compacted. `keys` is of all offsets."""
    _, from_behind = np.unique(keys[start:end][::-1], return_index=True)
    return np.concatenate([np.sort(end - 1 - from_behind), np.arange(end, len(keys))])
