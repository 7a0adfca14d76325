"""One partition from one settled segment to the next: how its slices fold, and what settling reads. Pure.

It repeats the rules of the produce service (`log/folding.py`, `log/settling.py`) on sizes alone. A test compares the
rule of folding with the service's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafscale.produce.log.folding import FOLD_BYTES_MAX, FOLD_MIN
from kafscale.produce.log.model import Limits

FOLD_WIDTH: Final = 2
TAIL_ENTRIES_MAX: Final = Limits().checkpoint_at
"""A tail of so many entries is settled if it begins with a slice."""


@dataclass(slots=True)
class Entry:
    """A slice in the tail. `kept`: the owner still has its batches in memory."""

    bytes: float
    kept: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The slices that become one segment."""

    bytes: float
    seconds: float
    """Age of its first slice when it is settled."""
    entries: int
    entries_read: int
    """Of these, the slices that are no longer in memory: settling reads each with one GET."""
    written_bytes: float
    """Bytes of these slices in bundles. Folding writes a record more than once."""


def folded(tail: list[Entry], size: float) -> int:
    """How many entries at the end of the tail a new slice of `size` bytes repeats."""
    count = 0
    for entry in reversed(tail):
        if not entry.kept or entry.bytes > FOLD_WIDTH * size or size + entry.bytes > FOLD_BYTES_MAX:
            break
        count += 1
        size += entry.bytes
    return count if count >= FOLD_MIN else 0


def first_run(
    slice_bytes: float, slices_per_s: float, *, kept_bytes_max: float, segment_bytes: float, settle_s: float
) -> Run:
    """The partition writes equal slices at equal intervals, and begins with an empty tail."""
    tail: list[Entry] = []
    written = total = 0.0
    count = 0
    while not _is_due(tail, total, count / slices_per_s, segment_bytes, settle_s):
        count += 1
        total += slice_bytes
        at = len(tail) - folded(tail, slice_bytes)
        size = slice_bytes + sum(entry.bytes for entry in tail[at:])
        tail[at:] = [Entry(size)]
        written += size
        if sum(entry.bytes for entry in tail if entry.kept) > kept_bytes_max:
            for entry in tail:
                entry.kept = False
    return Run(
        bytes=total,
        seconds=min(count / slices_per_s, settle_s),
        entries=len(tail),
        entries_read=sum(not entry.kept for entry in tail),
        written_bytes=written,
    )


def _is_due(tail: list[Entry], total: float, age_s: float, segment_bytes: float, settle_s: float) -> bool:
    if not tail:
        return False
    is_full = total + max(entry.bytes for entry in tail) > segment_bytes
    return is_full or len(tail) >= TAIL_ENTRIES_MAX or age_s >= settle_s
