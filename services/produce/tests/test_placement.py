"""Who claims, who keeps, who gives away: decisions over a view of the fleet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafscale.produce.placement import Fleet, claimable, successor
from kafscale.storage.claims import NO_NODE, Grounds, rendezvous
from kafscale.storage.heads import OwnerRecord
from kafscale.storage.keys import TopicId

TOPIC = TopicId(bytes(range(16)))
PARTITIONS = st.integers(0, 500)
READY = st.frozensets(st.integers(0, 5), max_size=6)


def fleet(me: int, ready: frozenset[int], *, draining: bool = False) -> Fleet:
    live = frozenset({f"{node}/x" for node in ready} | {f"{me}/x"})
    return Fleet(me=f"{me}/x", draining=draining, ready=ready, live=live)


@given(PARTITIONS, READY.filter(bool))
def test_an_unowned_partition_is_claimed_by_exactly_one_of_those_who_agree(
    partition: int, ready: frozenset[int]
) -> None:
    unowned = OwnerRecord(epoch=3)
    claimers = [me for me in ready if claimable(fleet(me, ready), TOPIC, partition, unowned)]
    assert claimers == [rendezvous(TOPIC, partition, ready)]


@given(PARTITIONS, READY.filter(bool))
def test_a_partition_never_claimed_goes_to_the_preferred_node(partition: int, ready: frozenset[int]) -> None:
    for me in ready:
        expected = Grounds.FIRST if rendezvous(TOPIC, partition, ready) == me else None
        assert claimable(fleet(me, ready), TOPIC, partition, None) is expected


@given(PARTITIONS, READY, st.integers(0, 5), st.integers(0, 5), st.sampled_from(["", "0", "3", "5"]))
def test_a_draining_instance_claims_nothing(
    partition: int, ready: frozenset[int], me: int, owner: int, handoff_to: str
) -> None:
    for record in (
        None,
        OwnerRecord(epoch=1, owner=f"{owner}/x"),
        OwnerRecord(epoch=1, handoff_to=handoff_to),
    ):
        assert claimable(fleet(me, ready, draining=True), TOPIC, partition, record) is None


@given(PARTITIONS, READY.filter(lambda ready: len(ready) > 1))
def test_what_was_handed_to_me_and_what_my_node_had_is_mine_whoever_is_preferred(
    partition: int, ready: frozenset[int]
) -> None:
    for me in ready:
        view = fleet(me, ready)
        handed = OwnerRecord(epoch=1, handoff_to=str(me))
        old_boot = OwnerRecord(epoch=1, owner=f"{me}/before")
        assert claimable(view, TOPIC, partition, handed) is Grounds.HANDED_OVER
        assert claimable(view, TOPIC, partition, old_boot) is Grounds.MINE


@given(PARTITIONS, READY.filter(bool), st.integers(0, 5))
def test_a_partition_promised_to_a_node_that_begins_to_drain_is_claimed_by_one_that_is_ready(
    partition: int, ready: frozenset[int], promised: int
) -> None:
    """It lives until its drain ends, and will not claim: the partition must not wait for that."""
    others = ready - {promised} | {6}
    live = frozenset(f"{node}/x" for node in others | {promised})
    record = OwnerRecord(epoch=5, handoff_to=str(promised))
    views = {
        node: Fleet(me=f"{node}/x", draining=node == promised, ready=others, live=live)
        for node in others | {promised}
    }
    claimers = [node for node, view in views.items() if claimable(view, TOPIC, partition, record)]
    assert claimers == [rendezvous(TOPIC, partition, others)]


@given(PARTITIONS, READY, st.integers(0, 5), st.integers(0, 5))
def test_a_live_owner_keeps_its_partition(partition: int, ready: frozenset[int], me: int, owner: int) -> None:
    view = fleet(me, ready | {owner})
    if owner != me:
        assert claimable(view, TOPIC, partition, OwnerRecord(epoch=1, owner=f"{owner}/x")) is None


@given(PARTITIONS, READY, st.integers(0, 5), st.booleans())
def test_a_partition_goes_to_whom_the_others_would_choose(
    partition: int, ready: frozenset[int], me: int, draining: bool
) -> None:
    target = successor(fleet(me, ready, draining=draining), TOPIC, partition)
    others = ready - {me} if draining else ready
    assert target == (NO_NODE if not others or rendezvous(TOPIC, partition, others) == me else target)
    assert target != me
    if others and rendezvous(TOPIC, partition, others) != me:
        assert target == rendezvous(TOPIC, partition, others)
