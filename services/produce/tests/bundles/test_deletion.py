"""When an instance deletes a bundle that it wrote."""

from __future__ import annotations

from dataclasses import replace

from kafscale.produce.bundles.deletion import OwnBundles, PartitionKey
from kafscale.storage.bundle import SliceEntry
from kafscale.storage.heads import Head, Seg
from kafscale.storage.keys import BundleId, TopicId

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


def test_a_bundle_goes_when_all_its_slices_are_dead_and_the_grace_is_over() -> None:
    own = of_two()
    own.answered(A, 0)
    own.changed(key(0), head(20, A), 5)
    own.changed(key(1), head(10, A), 5)
    own.changed(key(0), head(20), 10)
    assert own.due(1 << 40) == []
    own.changed(key(1), head(10), 20)
    assert own.due(19 + GRACE_MS) == []
    assert own.due(20 + GRACE_MS) == [A]
    assert own.due(30 + GRACE_MS) == [A], "it is named until the store has confirmed it"
    own.deleted(A)
    assert own.due(40 + GRACE_MS) == []
    assert len(own) == 0


def test_what_may_still_be_committed_keeps_it() -> None:
    own = of_two()
    own.answered(A, 0)
    own.changed(key(0), head(19), 0)
    own.changed(key(1), head(9), 0)
    assert own.due(1 << 40) == []
    own.changed(key(0), head(10, epoch=4), 5)
    own.changed(key(1), None, 5)
    assert own.due(5 + GRACE_MS) == [A]


def test_it_does_not_go_while_its_put_has_no_answer() -> None:
    own = of_two()
    own.changed(key(0), head(10, epoch=4), 0)
    own.changed(key(1), head(5, epoch=4), 0)
    assert own.due(1 << 40) == []
    own.answered(A, 50)
    assert own.due(50 + GRACE_MS) == [A]


def test_the_sweep_gets_what_was_given_up() -> None:
    own = of_two()
    own.lost(A)
    assert len(own) == 0
    assert own.elsewhere([]) == set()
    own.changed(key(0), head(10, epoch=4), 0)
    assert own.due(1 << 40) == []


def test_heads_are_asked_for_where_partitions_have_moved_away() -> None:
    own = of_two()
    own.sealed(B, [entry(1, 10, 12)])
    assert own.elsewhere([key(0)]) == {key(1)}
    own.answered(A, 0)
    own.answered(B, 0)
    own.changed(key(1), head(13, B), 0)
    assert own.elsewhere([key(0)]) == {key(1)}, "it names one of them"
    own.changed(key(1), head(13), 0)
    assert own.elsewhere([key(0)]) == set()
    assert own.due(GRACE_MS) == [B]
