"""What must hold of a consumer group after every step, and between two of them."""

from collections import Counter
from collections.abc import Iterator

from kafscale.coordinator.consumer import subscriptions
from kafscale.coordinator.consumer.machine import next_deadline, state_of
from kafscale.coordinator.consumer.model import (
    STATIC_LEAVE_EPOCH,
    Assignor,
    Group,
    GroupState,
    Member,
    MemberState,
    Partitions,
)

DEAD, EMPTY, ASSIGNING, RECONCILING, STABLE = (
    GroupState.DEAD,
    GroupState.EMPTY,
    GroupState.ASSIGNING,
    GroupState.RECONCILING,
    GroupState.STABLE,
)
LEGAL = {
    DEAD: {DEAD, STABLE},
    EMPTY: {EMPTY, STABLE, DEAD},
    ASSIGNING: {ASSIGNING, RECONCILING, STABLE, EMPTY},
    RECONCILING: {RECONCILING, STABLE, ASSIGNING, EMPTY},
    STABLE: {STABLE, RECONCILING, ASSIGNING, EMPTY},
}


def pairs(partitions: Partitions) -> Iterator[tuple[bytes, int]]:
    for topic, numbers in partitions.items():
        assert numbers, "a topic without partitions"
        for number in numbers:
            yield topic, number


def twice(owners: list[Partitions]) -> list[tuple[bytes, int]]:
    counts = Counter(pair for partitions in owners for pair in pairs(partitions))
    return [pair for pair, count in counts.items() if count > 1]


def check(group: Group, now_ms: int) -> None:
    """The invariants."""
    persisted = group.persisted
    state = state_of(persisted)
    assert (state in (EMPTY, DEAD)) == (not persisted.members), "L5"
    assert persisted.target_epoch <= persisted.epoch
    assert set(group.deadlines) == set(persisted.members), "a session for each member"
    due = next_deadline(group)
    assert due is None or due > now_ms, "L9"
    for mine in group.deadlines.values():
        assert due is not None, "L9"
        assert due <= min(mine.session_ms, mine.rebalance_ms or mine.session_ms), (
            "L9: nobody's time passes unseen"
        )
    instances = [member.instance_id for member in persisted.members.values() if member.instance_id]
    assert len(instances) == len(set(instances)), "one member for each instance id"
    for member_id, member in persisted.members.items():
        assert member.member_id == member_id
        _check_member(group, member)
    held = [some for member in persisted.members.values() for some in (member.assigned, member.revoking)]
    assert not twice(held), "two members have a partition"
    assert not twice(list(persisted.target.values())), "two targets have a partition"
    if persisted.members and persisted.target_epoch == persisted.epoch:
        _check_target(group)
    if state is STABLE:
        for member_id, member in persisted.members.items():
            assert member.assigned == persisted.target.get(member_id, {})


def _check_member(group: Group, member: Member) -> None:
    assert member.epoch <= group.persisted.target_epoch
    assert member.epoch > 0 or member.epoch == STATIC_LEAVE_EPOCH
    unrevoked = member.state is MemberState.UNREVOKED_PARTITIONS
    assert unrevoked == bool(member.revoking)
    assert unrevoked == (group.deadlines[member.member_id].rebalance_ms is not None), "L8"


def _check_target(group: Group) -> None:
    """Complete, and nobody gets what it did not ask for."""
    persisted = group.persisted
    by_id = {topic.topic_id: topic.partitions for topic in group.topics.values()}
    wanted = {
        topic for member in persisted.members.values() for topic in subscriptions.topic_ids_of(member, group)
    }
    complete = {(topic, number) for topic in wanted for number in range(by_id[topic])}
    assert {pair for target in persisted.target.values() for pair in pairs(target)} == complete
    for member_id, target in persisted.target.items():
        assert set(target) <= subscriptions.topic_ids_of(persisted.members[member_id], group)


def check_balance(group: Group) -> None:
    """Among members of equal subscription, if the assignor was `uniform`."""
    loads: dict[frozenset[bytes], list[int]] = {}
    for member in group.persisted.members.values():
        if member.assignor is Assignor.RANGE:
            return
        subscribed = subscriptions.topic_ids_of(member, group)
        loads.setdefault(subscribed, []).append(len(list(pairs(member.assigned))))
    for equal in loads.values():
        assert max(equal) - min(equal) <= 1, "balance"


def check_move(before: Group, after: Group) -> None:
    """Between the two sides of one step."""
    old, new = before.persisted, after.persisted
    assert state_of(new) in LEGAL[state_of(old)], "L3"
    if state_of(new) is DEAD:
        assert state_of(old) in (DEAD, EMPTY)
        return
    assert new.epoch >= old.epoch, "L4"
    assert new.target_epoch >= old.target_epoch, "L4"
    if set(new.members) != set(old.members) and not _only_replaced(before, after):
        assert new.epoch > old.epoch, "membership makes an epoch"
    for member_id in set(old.members) & set(new.members):
        was, now = old.members[member_id], new.members[member_id]
        assert now.epoch >= was.epoch or now.epoch == STATIC_LEAVE_EPOCH, "a member's epoch never falls"
        if now.epoch > was.epoch >= 0:
            assert now.previous_epoch == was.epoch
            assert not now.revoking, "a new epoch before the revocation"


def _only_replaced(before: Group, after: Group) -> bool:
    gone = [
        m.instance_id for name, m in before.persisted.members.items() if name not in after.persisted.members
    ]
    come = [
        m.instance_id for name, m in after.persisted.members.items() if name not in before.persisted.members
    ]
    return sorted(map(str, gone)) == sorted(map(str, come))
