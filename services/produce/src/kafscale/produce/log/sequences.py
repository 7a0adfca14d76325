"""Sequence numbers of an idempotent producer: a circle of 2^31, and what a batch on it is that is not the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafscale.wire.errors import ErrorCode

SEQUENCE_MASK = 0x7FFF_FFFF
_HALF = 1 << 30


def sequence_after(sequence: int, count: int) -> int:
    return (sequence + count) & SEQUENCE_MASK


class KnownBatch(NamedTuple):
    """A batch of a producer that has its offsets."""

    epoch: int
    first_seq: int
    last_seq: int
    base: int
    ts: int


class Repeat(NamedTuple):
    """What a producer offers again: one batch, or several neighbours. It is committed when its last batch is."""

    base: int  # of its first record
    last_base: int  # of its last batch
    ts: int


def find_repeat(
    batches: Sequence[KnownBatch], known_from: int, epoch: int, first_seq: int, last_seq: int
) -> Repeat | ErrorCode:
    """A sequence that is not the next one: a repeat (of one batch or several neighbours), older, or a gap.

    `batches` are a producer's, newest last; from the sequence `known_from` on none of its newest epoch was missed.
    DUPLICATE_SEQUENCE_NUMBER makes a client drop the batch as written, so it is said only of sequences
    that this table saw being written; what is older than its knowledge may never have arrived.
    """
    last: KnownBatch | None = None
    oldest = batches[-1]
    for batch in reversed(batches):
        if batch.epoch != epoch:
            break
        if batch.last_seq == last_seq:
            last = batch
        if batch.first_seq == first_seq and last is not None:
            return Repeat(batch.base, last.base, last.ts)
        oldest = batch
    if _at_or_before(known_from, first_seq) and _before(last_seq, oldest.first_seq):
        return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def _at_or_before(a: int, b: int) -> bool:
    """In the circle of sequences, by the shorter way."""
    return (b - a) & SEQUENCE_MASK < _HALF


def _before(a: int, b: int) -> bool:
    return a != b and _at_or_before(a, b)
