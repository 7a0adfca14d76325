"""Who claims, who keeps, who gives away: decisions over a view of the fleet."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.storage.coordination import (
    NO_NODE,
    Fleet,
    Grounds,
    OwnerRecord,
    give_all_away,
    grounds,
    next_look,
    node_of,
    rendezvous,
)
from kafscale.storage.keys import TopicId

TOPIC = TopicId(bytes(range(16)))
PARTITIONS = st.integers(0, 500)
READY = st.frozensets(st.integers(0, 5), max_size=6)


def fleet(me: int, ready: frozenset[int], *, leaving: bool = False) -> Fleet:
    live = frozenset({f"{node}/x" for node in ready} | {f"{me}/x"})
    return Fleet(me=f"{me}/x", leaving=leaving, ready=ready, live=live)


@given(PARTITIONS, READY.filter(bool))
def test_an_unowned_partition_is_claimed_by_exactly_one_of_those_who_agree(
    partition: int, ready: frozenset[int]
) -> None:
    unowned = OwnerRecord(epoch=3)
    claimers = [me for me in ready if fleet(me, ready).claimable(TOPIC, partition, unowned)]
    assert claimers == [rendezvous(TOPIC, partition, ready)]


@given(PARTITIONS, READY.filter(bool))
def test_a_partition_never_claimed_goes_to_the_preferred_node(partition: int, ready: frozenset[int]) -> None:
    for me in ready:
        expected = Grounds.FIRST if rendezvous(TOPIC, partition, ready) == me else None
        assert fleet(me, ready).claimable(TOPIC, partition, None) is expected


@given(PARTITIONS, READY, st.integers(0, 5), st.integers(0, 5), st.sampled_from(["", "0", "3", "5"]))
def test_an_instance_that_leaves_claims_nothing(
    partition: int, ready: frozenset[int], me: int, owner: int, handoff_to: str
) -> None:
    for record in (
        None,
        OwnerRecord(epoch=1, owner=f"{owner}/x"),
        OwnerRecord(epoch=1, handoff_to=handoff_to),
    ):
        assert fleet(me, ready, leaving=True).claimable(TOPIC, partition, record) is None


@given(PARTITIONS, READY.filter(lambda ready: len(ready) > 1))
def test_what_was_handed_to_me_and_what_my_node_had_is_mine_whoever_is_preferred(
    partition: int, ready: frozenset[int]
) -> None:
    for me in ready:
        view = fleet(me, ready)
        handed = OwnerRecord(epoch=1, handoff_to=str(me))
        old_boot = OwnerRecord(epoch=1, owner=f"{me}/before")
        assert view.claimable(TOPIC, partition, handed) is Grounds.HANDED_OVER
        assert view.claimable(TOPIC, partition, old_boot) is Grounds.MINE


@given(PARTITIONS, READY.filter(bool), st.integers(0, 5))
def test_a_partition_promised_to_a_node_that_begins_to_drain_is_claimed_by_one_that_is_ready(
    partition: int, ready: frozenset[int], promised: int
) -> None:
    """It lives until its drain ends, and will not claim: the partition must not wait for that."""
    others = ready - {promised} | {6}
    live = frozenset(f"{node}/x" for node in others | {promised})
    record = OwnerRecord(epoch=5, handoff_to=str(promised))
    views = {
        node: Fleet(me=f"{node}/x", leaving=node == promised, ready=others, live=live)
        for node in others | {promised}
    }
    claimers = [node for node, view in views.items() if view.claimable(TOPIC, partition, record)]
    assert claimers == [rendezvous(TOPIC, partition, others)]


@given(PARTITIONS, READY, st.integers(0, 5), st.integers(0, 5))
def test_a_live_owner_keeps_its_partition(partition: int, ready: frozenset[int], me: int, owner: int) -> None:
    view = fleet(me, ready | {owner})
    if owner != me:
        assert view.claimable(TOPIC, partition, OwnerRecord(epoch=1, owner=f"{owner}/x")) is None


@given(PARTITIONS, READY, st.integers(0, 5), st.booleans())
def test_a_partition_goes_to_whom_the_others_would_choose(
    partition: int, ready: frozenset[int], me: int, leaving: bool
) -> None:
    target = fleet(me, ready, leaving=leaving).successor(TOPIC, partition)
    others = ready - {me} if leaving else ready
    assert target == (NO_NODE if not others or rendezvous(TOPIC, partition, others) == me else target)
    assert target != me
    if others and rendezvous(TOPIC, partition, others) != me:
        assert target == rendezvous(TOPIC, partition, others)


async def test_a_burst_of_changes_costs_one_look() -> None:
    changed = asyncio.Event()
    looking = asyncio.create_task(next_look(changed, every_s=60, settle_s=0.05))
    changed.set()
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.01, changed.set)
    await looking
    assert not changed.is_set()


async def test_without_a_change_there_is_a_look_all_the_same() -> None:
    async with asyncio.timeout(5):
        await next_look(asyncio.Event(), every_s=0.01, settle_s=60)


async def test_a_drain_gives_and_waits_until_nothing_is_left() -> None:
    owned, given = [1, 2, 3], 0

    def give() -> None:
        nonlocal given
        given += 1

    async def wait() -> None:
        owned.pop()

    await give_all_away(owned.__len__, give, wait, 60)
    assert (owned, given) == ([], 3)


async def test_a_drain_that_takes_too_long_ends_and_says_what_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await give_all_away(lambda: 7, lambda: None, asyncio.Event().wait, 0.01)
    assert caplog.messages == ["hand-over incomplete: 7 left"]


NODES = st.sets(st.integers(0, 50), min_size=1, max_size=8)
TOPIC_IDS = st.binary(min_size=16, max_size=16).map(TopicId)


@given(TOPIC_IDS, st.integers(0, 10_000), NODES)
def test_the_plan_depends_on_the_set_of_nodes_alone(
    topic_id: TopicId, partition: int, nodes: set[int]
) -> None:
    best = rendezvous(topic_id, partition, sorted(nodes))
    assert best == rendezvous(topic_id, partition, sorted(nodes, reverse=True))


@given(TOPIC_IDS, st.integers(0, 10_000), NODES, st.integers(0, 50))
def test_only_partitions_of_a_node_that_left_move(
    topic_id: TopicId, partition: int, nodes: set[int], leaver: int
) -> None:
    before = rendezvous(topic_id, partition, nodes)
    after = rendezvous(topic_id, partition, nodes - {leaver})
    assert before == leaver or after == before


def test_partitions_spread_evenly() -> None:
    topic_id = TopicId(bytes(range(16)))
    shares = Counter(rendezvous(topic_id, partition, range(4)) for partition in range(4_000))
    assert all(850 < share < 1_150 for share in shares.values()), shares


def test_the_plan_never_changes_between_versions() -> None:
    """Instances of two versions must agree while a cluster is upgraded."""
    topic_id = TopicId(bytes(range(16)))
    assert [rendezvous(topic_id, partition, range(5)) for partition in range(12)] == PLAN


PLAN = [4, 1, 4, 3, 2, 4, 3, 2, 2, 4, 1, 2]


def test_nobody_is_preferred_among_nobody() -> None:
    assert rendezvous(TopicId(bytes(16)), 0, ()) == NO_NODE


@pytest.mark.parametrize(
    ("owner", "handoff_to", "expected"),
    [
        ("", "", Grounds.UNOWNED),
        ("", "1", Grounds.HANDED_OVER),
        ("", "2", None),  # promised to one that is ready
        ("", "3", Grounds.UNOWNED),  # promised to one that lives and drains
        ("", "9", Grounds.UNOWNED),  # promised to one that is gone
        ("1/me", "", Grounds.MINE),
        ("1/old", "", Grounds.MINE),
        ("2/b", "", None),
        ("9/c", "", Grounds.OWNER_GONE),
        ("2/old", "", Grounds.OWNER_GONE),  # an earlier boot of a node that lives
    ],
)
def test_a_live_owner_is_never_robbed(owner: str, handoff_to: str, expected: Grounds | None) -> None:
    assert grounds(owner, handoff_to, me="1/me", live={"1/me", "2/b", "3/c"}, ready={1, 2}) is expected


def test_the_node_id_is_what_stands_before_the_boot_id() -> None:
    assert node_of("12/3f") == 12
