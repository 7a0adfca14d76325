"""What an owner keeps of its slices, and within what memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafscale.log.heads import Aborted, Head, Seg
from kafscale.produce.log.flight import OpenBuffer
from kafscale.produce.log.settling import ENTRY_ABORTS_MAX, FOLD_BYTES_MAX, Kept, KeptBudget, foldable

RECORDS = b"r" * 100


def slice_at(base: int, count: int = 1) -> OpenBuffer:
    """`count` batches of one record."""
    buffer = OpenBuffer(base)
    for _ in range(count):
        buffer.add(b"h", RECORDS, count=1, min_ts=0, max_ts=0)
    return buffer


def entry_of(buffer: OpenBuffer) -> Seg:
    """What the tail says of it."""
    return Seg(
        base=buffer.base,
        last_delta=buffer.end - buffer.base - 1,
        size=buffer.bytes,
        etag="e",
        crc32c=0,
        index_size=0,
        index_etag="",
        epoch=1,
        min_ts=0,
        max_ts=0,
        records=1,
        batches=1,
        created_ms=0,
        bundle=b"b" * 16,
    )


def keep(kept: Kept, *buffers: OpenBuffer) -> None:
    """Each is committed."""
    for buffer in buffers:
        kept.add(buffer)


def test_a_fold_takes_the_memory_of_what_it_repeats() -> None:
    budget = KeptBudget(1 << 20)
    kept = Kept(budget)
    for _ in range(10):
        keep(kept, slice_at(0), slice_at(1), slice_at(2))
        fold = slice_at(0, 4)
        keep(kept, fold)
        kept.keep_only([entry_of(fold)])
        assert (kept.bytes, budget.used_bytes) == (fold.bytes, fold.bytes)
    assert kept.get(entry_of(fold)) is not None
    kept.keep_only([])
    assert (kept.bytes, budget.used_bytes, len(kept)) == (0, 0, 0)


def test_what_the_tail_names_otherwise_is_not_found() -> None:
    kept = Kept(KeptBudget(1 << 20))
    keep(kept, slice_at(0))
    assert kept.get(entry_of(slice_at(0))) is not None
    assert kept.get(entry_of(slice_at(0, 2))) is None
    assert kept.get(entry_of(slice_at(1))) is None


def test_beyond_the_budget_the_partition_with_the_most_bytes_forgets_its_own() -> None:
    budget = KeptBudget(7 * slice_at(0).bytes)
    small, large = Kept(budget), Kept(budget)
    keep(small, slice_at(0), slice_at(1))
    keep(large, slice_at(0, 5))
    assert (len(small), len(large)) == (2, 1)
    keep(small, slice_at(2))
    assert (len(small), len(large), budget.used_bytes) == (3, 0, small.bytes)
    keep(large, slice_at(5))
    assert len(large) == 1, "it goes on with what comes"


# --- which slices a new one repeats ----------------------------------------------------------


def written(*sizes: int) -> tuple[Head, Kept]:
    """A tail of kept slices with so many bytes."""
    kept, tail, base = Kept(KeptBudget(1 << 30)), [], 0
    for size in sizes:
        buffer = OpenBuffer(base)
        buffer.add(b"", b"r" * size, count=1, min_ts=0, max_ts=0)
        keep(kept, buffer)
        tail.append(entry_of(buffer))
        base = buffer.end
    return Head(epoch=1, topic="t", tail=tuple(tail), next=base), kept


@pytest.mark.parametrize(
    ("sizes", "size", "repeated"),
    [
        pytest.param((100, 100, 100), 100, 3, id="small ones"),
        pytest.param((100, 100), 100, 0, id="fewer than three"),
        pytest.param((400, 200, 100, 100), 100, 4, id="each is compared with what the fold has by then"),
        pytest.param((100, 100, 100, 201), 100, 0, id="the last is more than twice as large"),
        pytest.param((1_001, 100, 100, 100), 100, 3, id="the first is more than twice as large as the fold"),
        pytest.param((100, 100, 100), FOLD_BYTES_MAX - 299, 0, id="too large together"),
        pytest.param((100, 100, 100), FOLD_BYTES_MAX - 300, 3, id="just small enough"),
    ],
)
def test_a_slice_repeats_small_slices_before_it(sizes: tuple[int, ...], size: int, repeated: int) -> None:
    head, kept = written(*sizes)
    assert [each.base for each in foldable(head, kept, size, 0)] == list(
        range(len(sizes) - repeated, len(sizes))
    )


def test_only_committed_slices_of_this_epoch_that_are_kept_and_not_planned_are_repeated() -> None:
    head, kept = written(100, 100, 100, 100)
    assert len(foldable(head, kept, 100, 0)) == 4
    assert len(foldable(head, kept, 100, 1)) == 3, "a settle plan rewrites the first"
    assert foldable(replace(head, epoch=2), kept, 100, 0) == []
    kept.keep_only(head.tail[:2])
    assert foldable(head, kept, 100, 0) == [], "the last ones are not kept"


def test_a_fold_lists_no_more_aborts_than_an_entry_may() -> None:
    head, kept = written(100, 100, 100, 100)
    each = tuple(Aborted(producer_id=n, first=0, last=0) for n in range(ENTRY_ABORTS_MAX // 4))
    full = replace(head, tail=tuple(replace(seg, aborted=each) for seg in head.tail))
    assert len(foldable(full, kept, 100, 0)) == 4
    assert len(foldable(full, kept, 100, 0, aborts=1)) == 3
