"""Whatever a crash leaves, and however old etcd is: the plan has every acknowledged record, and fences old owners."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from kafscale.log.heads import EpochStart, Head, Meta, Seg, encode_head
from kafscale.log.manifests import encode_manifest
from kafscale.log.segment import verify_segment, walk_batches
from kafscale.operations.rollforward.chain import Chain, Piece, Span, chain_of
from kafscale.operations.rollforward.plan import (
    EPOCHS_SKIPPED,
    Found,
    Known,
    PartitionPlan,
    Place,
    committed_end,
    plan_partition,
)
from kafscale.operations.rollforward.segments import OFFSETS_MAX

from .lost_etcd import KEYS, TOPIC_ID, LostEtcd, known, seg_of

MOVES = (
    ("write",) * 4
    + ("fold", "settle", "settle", "checkpoint", "claim", "back_up")
    + (
        "expire",
        "compact",
        "delete_bundles",
    )
)


def planned(of: Known, found: Found, *, epoch_floor: int = 0) -> PartitionPlan:
    fresh = (f"{n:032x}" for n in count(1 << 40))
    return plan_partition(Place(KEYS, "orders", TOPIC_ID, 0, fresh, 1), of, found, epoch_floor)


def walked(moves: list[str], random: Random) -> LostEtcd:
    world = LostEtcd(random)
    for move in moves:
        getattr(world, move)()
    return world


walks = st.builds(
    walked,
    st.lists(st.sampled_from(MOVES), min_size=1, max_size=40),
    st.integers(min_value=0, max_value=1 << 32).map(Random),
)


def snapshots(world: LostEtcd) -> list[Known]:
    return [known(each) for each in (None, *world.snapshots, (world.head, world.meta))]


def epochs_of(chain: Chain) -> dict[int, int]:
    return {offset: seg.epoch for seg in chain.segs for offset in range(seg.base, seg.end)}


def follow_by_chance(found: Found, end: int) -> bool:
    """Two owners died with objects on their way above the high watermark `end`, and an object of the later one begins
    where one of the earlier ends. The chain cannot know that neither was committed."""
    flying = [piece.seg for piece in found.pieces if piece.seg.base >= end]
    return any(a.end == b.base and a.epoch < b.epoch for a in flying for b in flying)


@given(walks)
@settings(max_examples=400)
def test_every_acknowledged_record_is_in_the_log_with_its_bytes(world: LostEtcd) -> None:
    for etcd in snapshots(world):
        stored = world.found()
        plan = planned(etcd, stored)
        found = epochs_of(plan.chain)
        start, end = world.meta.log_start, world.head.next
        assert {offset: world.truth[offset] for offset in range(start, end)} == {
            offset: epoch for offset, epoch in found.items() if start <= offset < end
        }
        missing = [gap for gap in plan.chain.gaps if gap.end > start]
        assert not missing or follow_by_chance(stored, end), "only deleted records are missing"
        assert plan.log_start >= etcd.meta.log_start
        assert plan.chain.end >= (0 if etcd.head is None else etcd.head.next)
        if start < end:
            assert plan.log_start <= start
            assert plan.chain.end >= end


@given(walks)
@settings(max_examples=200)
def test_what_is_written_is_a_head_without_gaps_that_fences_all_owners(world: LostEtcd) -> None:
    for etcd in snapshots(world):
        found = world.found()
        plan = planned(etcd, found)
        head, meta = plan.head, plan.meta
        assert head is not None, "the owner of the snapshot has to be fenced"
        assert head.epoch > world.epoch
        assert (head.owner, head.handoff_to) == ("", "")
        assert meta.gc_seq > etcd.meta.gc_seq or etcd.meta_revision == 0
        manifests = {**found.manifests, **{key: each.segments for key, each in plan.manifests.items()}}
        listed = [seg for chunk in meta.chunks for seg in manifests[chunk.key]] + [*head.tail]
        visible = [seg for seg in listed if seg.end > plan.log_start]
        assert all(a.end == b.base for a, b in zip(listed, listed[1:], strict=False))
        assert (listed[-1].end if listed else plan.log_start) == head.next == head.lso
        stored = {piece.seg for piece in found.pieces} | {filler.seg for filler in plan.fillers}
        assert set(visible) <= stored
        for filler in plan.fillers:
            verify_segment(b"".join(filler.segment.body))
        assert meta.manifest_end == (head.tail[0].base if head.tail else head.next)
        assert head.snap_offset <= head.next
        assert not head.snap_key or head.snap_key in found.snapshots
        for manifest in plan.manifests.values():
            encode_manifest(manifest)  # refuses slices
        encode_head(head)


@given(walks)
@settings(max_examples=200)
def test_a_second_run_changes_nothing(world: LostEtcd) -> None:
    for etcd in snapshots(world):
        found = world.found()
        plan = planned(etcd, found)
        assert plan.head is not None
        after = replace(
            found,
            pieces=(*found.pieces, *(Piece(filler.seg, True) for filler in plan.fillers)),
            manifests={**found.manifests, **{key: each.segments for key, each in plan.manifests.items()}},
        )
        again = planned(Known(head=plan.head, head_revision=2, meta=plan.meta, meta_revision=2), after)
        assert again.head is None
        assert (again.log_start, again.chain.end) == (plan.log_start, plan.chain.end)


def test_a_second_run_leaves_alone_what_is_below_the_log_start() -> None:
    """The head says that epoch 2 began at 0, so `given_up` cannot be of the log, which begins at 5. The head that is
    then written says that epoch 2 began at 5."""
    given_up, later = seg_of(0, 5, 1, "a"), seg_of(5, 9, 2, "b")
    found = Found(pieces=(Piece(given_up, False), Piece(later, False)))
    plan = planned(Known(head=Head(epoch=2, topic="orders"), head_revision=1), found)
    assert (plan.chain.segs, plan.log_start) == ((later,), 5)
    assert (
        planned(Known(head=plan.head, head_revision=2, meta=plan.meta, meta_revision=2), found).head is None
    )


# -- single laws ---------------------------------------------------------------------------------------


def chain(*segs: Seg, committed: tuple[Seg, ...] = (), end: int = 0, start: int = 0) -> Chain:
    pieces = [Piece(seg, seg in committed) for seg in segs]
    return chain_of(pieces, epochs=(), committed_end=end, log_start=start)


def test_a_later_epoch_ends_the_earlier_ones() -> None:
    """Epoch 1 stored offsets up to 30 and committed 20 of them. Epoch 2 began at 20, and committed nothing."""
    first, given_up, later = seg_of(0, 20, 1, "a"), seg_of(20, 30, 1, "b"), seg_of(20, 25, 2, "c")
    assert chain(first, given_up, later).segs == (first, later)


def test_a_head_of_a_later_epoch_ends_the_earlier_ones_as_well() -> None:
    first, given_up = seg_of(0, 20, 1, "a"), seg_of(20, 30, 1, "b")
    head = Head(epoch=2, topic="orders", next=20)
    plan = planned(
        Known(head=head, head_revision=1), Found(pieces=(Piece(first, False), Piece(given_up, False)))
    )
    assert plan.chain.end == 20


def test_what_a_later_epoch_committed_is_not_replaced_by_an_earlier_one_if_it_is_lost() -> None:
    first, given_up = seg_of(0, 20, 1, "a"), seg_of(20, 25, 1, "b")
    lost, rest = seg_of(20, 25, 2, "c"), seg_of(25, 29, 2, "d")
    key = KEYS.manifest_key(TOPIC_ID, 0, 20, "a" * 32)
    pieces = tuple(Piece(seg, seg is rest) for seg in (first, given_up, rest))
    plan = planned(Known(), Found(pieces=pieces, manifests={key: (lost, rest)}))
    assert (plan.chain.segs, plan.chain.gaps) == ((first, rest), (Span(20, 25),))


@given(walks, st.integers(min_value=0, max_value=1 << 32).map(Random))
@settings(max_examples=200)
def test_of_a_damaged_bucket_nothing_is_left_out_in_silence(world: LostEtcd, random: Random) -> None:
    for etcd in snapshots(world):
        whole = world.found()
        pieces = tuple(piece for piece in whole.pieces if random.random() < 0.8)
        plan = planned(etcd, replace(whole, pieces=pieces))
        told = [*(Span(seg.base, seg.end) for seg in plan.chain.segs), *plan.chain.left_out]
        for piece in pieces:
            offsets = range(piece.seg.base, piece.seg.end)
            if (
                set(world.truth[piece.seg.base : piece.seg.end]) != {piece.seg.epoch}
                or offsets[-1] >= world.head.next
            ):
                continue  # not all of it was committed
            for offset in offsets:
                assert offset < etcd.meta.log_start or any(span.first <= offset < span.end for span in told)


def test_what_is_behind_a_gap_is_left_out_and_reported() -> None:
    """The owner died while the object between them was on its way. However much is behind it was not committed."""
    first, last = seg_of(0, 20, 1, "a"), seg_of(25, 99, 1, "c")
    found = chain(first, last)
    assert (found.segs, found.end, found.left_out, found.gaps) == ((first,), 20, (Span(25, 99),), ())


def test_a_later_epoch_behind_a_gap_proves_what_it_follows() -> None:
    first, old, new = seg_of(0, 5, 1, "a"), seg_of(9, 40, 2, "b"), seg_of(40, 50, 3, "c")
    found = chain(first, old, new)
    assert (found.segs, found.gaps, found.left_out) == ((first, old, new), (Span(5, 9),), ())


def test_a_gap_in_what_was_committed_is_covered_and_reported() -> None:
    first, last = seg_of(0, 20, 1, "a"), seg_of(25, 30, 2, "c")
    plan = planned(Known(), Found(pieces=(Piece(first, False), Piece(last, True))))
    assert plan.head is not None
    (filler,) = plan.fillers
    assert [seg.base for seg in plan.head.tail] == [0, 20, 25]
    assert (filler.seg.end, filler.seg.epoch, filler.seg.records) == (25, 1, 0)
    assert filler.seg.key.startswith(KEYS.compacted_prefix(TOPIC_ID))
    (span,) = walk_batches(b"".join(filler.segment.body))
    assert (span.offset, span.last_offset, span.records, span.leader_epoch) == (20, 24, 0, 1)


def test_a_gap_of_more_offsets_than_a_segment_has_is_covered_by_several() -> None:
    last = 3 * OFFSETS_MAX
    found = Found(pieces=(Piece(seg_of(0, 20, 1, "a"), False), Piece(seg_of(last, last + 5, 2, "c"), True)))
    plan = planned(Known(), found)
    assert plan.head is not None
    ends = [seg.end for seg in plan.head.tail]
    assert [seg.base for seg in plan.head.tail] == [0, *ends[:-1]]
    assert len(plan.fillers) == 3
    encode_head(plan.head)


def test_deleted_records_are_no_gap() -> None:
    left, rest = seg_of(0, 20, 1, "a"), seg_of(50, 60, 1, "c")
    found = chain(left, rest, end=60, start=50)
    assert (found.segs, found.start, found.gaps, found.left_out) == ((rest,), 50, (), ())
    found = chain(left, end=60, start=60)
    assert (found.segs, found.start, found.end, found.gaps, found.left_out) == ((), 60, 60, (), ())


def test_offsets_of_an_expired_log_are_not_used_again() -> None:
    """A producer snapshot shows that the log reached 500; a segment that retention did not get to is left."""
    key = KEYS.snapshot_key(TOPIC_ID, 0, 500, "0" * 32)
    left = seg_of(0, 20, 1, "a")
    plan = planned(Known(), Found(pieces=(Piece(left, False),), snapshots={key: 500}))
    assert plan.head is not None
    assert (plan.head.next, plan.log_start, plan.chain.gaps) == (500, 0, (Span(20, 500),))
    plan = planned(Known(), Found(snapshots={key: 500}))
    assert plan.head is not None
    assert (plan.head.next, plan.log_start, plan.head.tail) == (500, 500, ())


def test_the_chain_with_the_fewest_bytes_is_the_compacted_one() -> None:
    """Originals that compaction replaced may still be stored. With a later round they could bring back a key."""
    first, second = seg_of(0, 10, 1, "a"), seg_of(10, 20, 1, "b")
    key = KEYS.compacted_key(TOPIC_ID, 0, 0, "c")
    once = seg_of(0, 20, 1, "c", size=900, key=key)
    twice = seg_of(0, 20, 1, "d", size=800, key=key)
    assert chain(first, once, second, twice).segs == (twice,)


def test_a_segment_is_taken_instead_of_the_slice_that_it_was_settled_from() -> None:
    """A tail has room for few slices."""
    piece = seg_of(0, 10, 1, "a", bundle=bytes(16), position=32)
    settled = seg_of(0, 10, 1, "b")
    assert chain(piece, settled).segs == chain(settled, piece).segs == (settled,)


def test_a_manifest_is_used_again_where_it_fits() -> None:
    segs = tuple(seg_of(n, n + 1, 1, f"s{n}") for n in range(40))
    fits = KEYS.manifest_key(TOPIC_ID, 0, 10, "a" * 32)
    other = KEYS.manifest_key(TOPIC_ID, 0, 20, "b" * 32)
    stored = {fits: segs[10:20], other: (*segs[20:24], seg_of(24, 25, 1, "gone"))}
    plan = planned(Known(), Found(pieces=tuple(Piece(seg, False) for seg in segs), manifests=stored))
    assert plan.head is not None
    assert [chunk.key for chunk in plan.meta.chunks if chunk.key in stored] == [fits]
    assert [(chunk.first, chunk.last) for chunk in plan.meta.chunks] == [(0, 9), (10, 19), (20, 31)]
    assert plan.head.tail == segs[32:]


def test_the_newest_snapshot_of_producers_below_the_end_is_named() -> None:
    segs = tuple(seg_of(n, n + 1, 1, f"s{n}") for n in range(20))
    offsets = {KEYS.snapshot_key(TOPIC_ID, 0, at, "a" * 32): at for at in (5, 15)}
    plan = planned(Known(), Found(pieces=tuple(Piece(seg, False) for seg in segs), snapshots=offsets))
    assert plan.head is not None
    assert plan.head.snap_offset == 15
    plan = planned(Known(), Found(pieces=tuple(Piece(seg, False) for seg in segs)))
    assert plan.head is not None
    assert (plan.head.snap_key, plan.head.snap_offset) == ("", 12)


def test_epochs_of_deleted_records_and_of_the_floor_are_above_none_that_is_given_out() -> None:
    head = Head(epoch=7, topic="orders", next=10, epochs=(EpochStart(epoch=3, start=0),))
    meta = Meta(log_start=10, manifest_end=10)
    plan = planned(Known(head=head, head_revision=1, meta=meta), Found(), epoch_floor=9)
    assert plan.head is not None
    assert plan.head.epoch == 9 + EPOCHS_SKIPPED
    assert plan.head.epochs == head.epochs
    assert (plan.head.next, plan.log_start) == (10, 10)


def test_nothing_is_known_of_an_empty_bucket() -> None:
    assert committed_end(Known(), Found()) == 0
    assert chain_of((), epochs=(), committed_end=0, log_start=0) == Chain(segs=(), start=0, end=0)
