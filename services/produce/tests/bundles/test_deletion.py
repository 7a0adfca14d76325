"""When an instance deletes a bundle that it wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafscale.log.bundle import SliceEntry
from kafscale.log.heads import EpochStart, Head, Seg
from kafscale.produce.bundles.deletion import DeadBundles, OwnBundles
from kafscale.storage.keys import BundleId, PartitionKey, TopicId

GRACE_MS = 1_000
TOPIC = TopicId(bytes(16))
A, B = BundleId(b"a" * 16), BundleId(b"b" * 16)


def entry(partition: int, base: int, last: int, epoch: int = 3) -> SliceEntry:
    return SliceEntry(TOPIC, partition, epoch, base, last, 32, 100, 1, last - base + 1, 1, 0, 0)


def key(partition: int) -> PartitionKey:
    return (TOPIC, partition)


def head(up_to: int, *bundles: BundleId, epoch: int = 3) -> Head:
    """Names a slice of each bundle."""
    slices = tuple(
        Seg(
            base=0, last_delta=0, size=100, etag="e", crc32c=1, index_size=0, index_etag="", epoch=epoch,
            min_ts=0, max_ts=0, records=1, batches=1, created_ms=0, bundle=each, position=32,
        )
        for each in bundles
    )  # fmt: skip
    return replace(Head(epoch=epoch, topic="t"), next=up_to, tail=slices)


def of_two() -> OwnBundles:
    own = OwnBundles(GRACE_MS)
    own.sealed(A, [entry(0, 10, 19), entry(1, 5, 9)])
    return own


def due(own: OwnBundles, now_ms: int) -> list[BundleId]:
    return own.dead.take(now_ms, 1_000)


def test_a_bundle_goes_when_all_its_slices_are_dead_and_the_grace_is_over() -> None:
    own = of_two()
    own.answered(A, 0)
    own.changed(key(0), head(20, A), 5)
    own.changed(key(1), head(10, A), 5)
    own.changed(key(0), head(20), 10)
    assert due(own, 1 << 40) == []
    own.changed(key(1), head(10), 20)
    assert due(own, 19 + GRACE_MS) == []
    assert len(own) == 1
    assert due(own, 20 + GRACE_MS) == [A]
    assert len(own) == 0
    own.dead.put_back([A], 20 + GRACE_MS)
    assert (len(own), due(own, 20 + GRACE_MS)) == (1, [A]), "a deletion that failed is due again at once"


def test_what_may_still_be_committed_keeps_it() -> None:
    own = of_two()
    own.answered(A, 0)
    own.changed(key(0), head(19), 0)
    own.changed(key(1), head(9), 0)
    assert due(own, 1 << 40) == []
    own.changed(key(0), head(10, epoch=4), 5)
    own.deleted_topic(key(1), 5)
    assert due(own, 5 + GRACE_MS) == [A]


def test_it_does_not_go_while_its_put_has_no_answer() -> None:
    own = of_two()
    own.changed(key(0), head(10, epoch=4), 0)
    own.changed(key(1), head(5, epoch=4), 0)
    assert due(own, 1 << 40) == []
    own.answered(A, 50)
    assert due(own, 50 + GRACE_MS) == [A]


def test_the_sweep_gets_what_was_given_up() -> None:
    own = of_two()
    own.lost(A)
    assert len(own) == 0
    assert own.elsewhere([]) == {}
    own.changed(key(0), head(10, epoch=4), 0)
    assert due(own, 1 << 40) == []


def test_heads_are_asked_for_where_partitions_have_moved_away() -> None:
    own = of_two()
    own.sealed(B, [entry(1, 10, 12)])
    assert own.elsewhere([key(0)]).keys() == {key(1)}
    own.answered(A, 0)
    own.answered(B, 0)
    own.changed(key(1), head(13, B), 0)
    assert own.elsewhere([key(0)]).keys() == {key(1)}, "it names one of them"
    own.changed(key(1), head(13), 0)
    assert own.elsewhere([key(0)]) == {}
    assert due(own, GRACE_MS) == [B]


@pytest.mark.parametrize(
    "contradicting",
    [
        head(10),
        head(19),
        head(10, epoch=2),
        head(19, epoch=4),
        replace(head(30, epoch=4), epochs=(EpochStart(epoch=4, start=10),)),
        replace(head(30, epoch=5), epochs=(EpochStart(epoch=4, start=19), EpochStart(epoch=5, start=25))),
    ],
    ids=["lower", "short", "older epoch", "claimed anew", "a later epoch began below", "and one more"],
)
def test_a_head_without_what_was_acknowledged_is_proof_and_the_slice_stays(contradicting: Head) -> None:
    own = of_two()
    own.answered(A, 0)
    own.acknowledged(key(0), A)
    own.changed(key(1), head(10), 0)
    proof = own.changed(key(0), contradicting, 5)
    assert proof is not None
    assert "has acknowledged offset 19 in epoch 3" in proof
    assert due(own, 1 << 40) == []
    assert own.changed(key(0), head(10, A), 6) is None, "a head that names it is none"


@pytest.mark.parametrize(
    "later",
    [
        head(20),
        head(40, epoch=9),
        replace(head(30, epoch=4), epochs=(EpochStart(epoch=4, start=20),)),
        replace(head(30, epoch=4), epochs=(EpochStart(epoch=2, start=0), EpochStart(epoch=3, start=10))),
    ],
)
def test_what_was_acknowledged_dies_when_it_is_settled_or_folded(later: Head) -> None:
    own = of_two()
    own.answered(A, 0)
    own.acknowledged(key(0), A)
    own.changed(key(1), head(10), 0)
    assert own.changed(key(0), later, 5) is None
    assert due(own, 5 + GRACE_MS) == [A]


def test_a_slice_that_was_never_acknowledged_is_no_proof() -> None:
    own = of_two()
    own.answered(A, 0)
    assert own.changed(key(0), head(10, epoch=4), 5) is None
    assert own.changed(key(1), head(5, epoch=4), 5) is None
    assert due(own, 5 + GRACE_MS) == [A]


def test_a_head_that_was_asked_for_before_the_commit_is_no_proof() -> None:
    own = of_two()
    own.answered(A, 0)
    asked = own.elsewhere([])[key(0)]
    own.acknowledged(key(0), A)
    assert own.changed(key(0), head(10), 5, asked) is None
    assert due(own, 1 << 40) == []
    assert own.changed(key(0), head(10), 5, own.elsewhere([])[key(0)]) is not None


def test_dead_bundles_are_looked_at_from_the_oldest_and_cost_little() -> None:
    dead = DeadBundles(GRACE_MS, dead_max=5_000)
    ids = [BundleId(number.to_bytes(16, "big")) for number in range(6_000)]
    for number, bundle_id in enumerate(ids):
        dead.add(bundle_id, number)
    assert len(dead) == 5_000, "the sweep gets what is more"
    assert dead.take(998 + GRACE_MS, 100) == [], "those of a second go together, after the last of them"
    assert dead.take(999 + GRACE_MS, 400) == ids[:400]
    assert dead.take(999 + GRACE_MS, 4_000) == ids[400:1_000], "those of the first second"
    dead.put_back(ids[400:500], 999 + GRACE_MS)
    assert dead.take(999 + GRACE_MS, 4_000) == ids[400:500]
    assert dead.take(1 << 40, 10_000) == ids[1_000:5_000]
    assert len(dead) == 0
