"""Keeps a producer's later batches from passing an earlier one that was refused.

Pure. A producer without history in a partition may start at any sequence. If the first of its
pipelined batches is refused (no memory, no room in the store, an epoch reset) and the next one taken,
the repeat of the first looks like an old duplicate, which clients count as success: a lost record.
The law: after a refusal, a producer that the partition does not know must offer that same batch
again before any other of its epoch is taken. It holds over writers, as the refusal often ends one, and for
KEPT_MS: being refused for this law's sake alone is no new refusal, else a producer whose client has given the first
batch up would be refused for ever.
"""

from __future__ import annotations

import struct
from typing import Protocol

from kafscale.storage.keys import TopicId
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import HEADER_SIZE

KEPT_MS = 120_000
KEPT_MAX = 1 << 16
_PRODUCER = struct.Struct(">qhi")  # id, epoch, base sequence
_PRODUCER_AT = 43  # in a batch header

REPEATED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors after which a client offers the same batch again."""

Key = tuple[TopicId, int]


class Known(Protocol):
    """The producers whose sequences a partition checks by itself."""

    def __contains__(self, producer_id: int, /) -> bool: ...


class RefusedFirsts:
    """What each unknown producer must offer again, by partition; the oldest entries go first."""

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
