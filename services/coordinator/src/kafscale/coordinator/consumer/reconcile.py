"""Moves one member one step from its assignment to its target (Kafka's CurrentAssignmentBuilder, KIP-848).

The laws. A member must revoke partitions before it gets its new epoch and new partitions. A partition is assigned to
a member only if no other member has it, assigned or still to be revoked. A partition is revoked when a heartbeat
lists the owned partitions without it. A heartbeat without that list (`owned` None) proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from kafscale.coordinator.consumer.model import NOTHING, Member, MemberState, Partitions
from kafscale.storage.keys import TopicId

IsHeldByOthers = Callable[[TopicId, frozenset[int]], frozenset[int]]
"""Which of these partitions of a topic other members have."""


def is_reconciled(member: Member, target_epoch: int) -> bool:
    return member.state is MemberState.STABLE and member.epoch == target_epoch


def reconcile(
    member: Member,
    target_epoch: int,
    target: Partitions,
    held_by_others: IsHeldByOthers,
    owned: Partitions | None,
) -> Member:
    """The member after a heartbeat that lists `owned` as its partitions; the same object if nothing changed."""
    match member.state:
        case MemberState.STABLE if member.epoch == target_epoch:
            return member
        case MemberState.UNREVOKED_PARTITIONS if _owns_any(owned, member.revoking):
            return member
        case MemberState.STABLE | MemberState.UNREVOKED_PARTITIONS | MemberState.UNRELEASED_PARTITIONS:
            after = _towards(member, target_epoch, target, held_by_others, owned)
            return member if after == member else after
        case _:
            assert_never(member.state)


def _towards(
    member: Member,
    target_epoch: int,
    target: Partitions,
    held_by_others: IsHeldByOthers,
    owned: Partitions | None,
) -> Member:
    kept = intersection(member.assigned, target)
    to_revoke = difference(member.assigned, kept)
    if to_revoke and _owns_any(owned, to_revoke):
        # It stays at its epoch, with which it may still commit offsets.
        return replace(member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=to_revoke)
    wanted = difference(target, kept)
    unreleased = {topic: held for topic, some in wanted.items() if (held := held_by_others(topic, some))}
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        epoch=target_epoch,
        # Kafka also changes it when the epoch stays, and then does not know which reply may have been lost.
        previous_epoch=member.previous_epoch if member.epoch == target_epoch else member.epoch,
        assigned=union(kept, difference(wanted, unreleased)),
        revoking=NOTHING,
    )


def _owns_any(owned: Partitions | None, partitions: Partitions) -> bool:
    return owned is None or bool(intersection(owned, partitions))


# --- sets of partitions ------------------------------------------------------------------------


def intersection(some: Partitions, others: Partitions) -> Partitions:
    pairs = ((topic, numbers & others.get(topic, frozenset())) for topic, numbers in some.items())
    return {topic: both for topic, both in pairs if both}


def difference(some: Partitions, others: Partitions) -> Partitions:
    pairs = ((topic, numbers - others.get(topic, frozenset())) for topic, numbers in some.items())
    return {topic: rest for topic, rest in pairs if rest}


def union(some: Partitions, others: Partitions) -> Partitions:
    return {
        topic: some.get(topic, frozenset()) | others.get(topic, frozenset())
        for topic in sorted({*some, *others})
    }


def is_subset(some: Partitions, of: Partitions) -> bool:
    return all(numbers <= of.get(topic, frozenset()) for topic, numbers in some.items())
