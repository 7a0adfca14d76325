"""Membership: finds the member of a heartbeat, and creates, replaces and removes members.

The laws. An instance id has one member at a time. The next member with that id takes over the assignment and the
target, after the first has left with epoch -2. A heartbeat with another epoch than the member's is fenced, unless a
reply may have been lost: the previous epoch is accepted if the member owns only assigned partitions. A rejoin (epoch
0) is accepted too, because that member has given up all its partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from kafscale.coordinator.consumer.model import (
    JOIN_EPOCH,
    NOTHING,
    STATIC_LEAVE_EPOCH,
    Deadlines,
    Group,
    Heartbeat,
    Member,
    MemberId,
    MemberState,
    Rules,
)
from kafscale.coordinator.consumer.reconcile import is_subset
from kafscale.coordinator.consumer.subscriptions import metadata_hash
from kafscale.coordinator.consumer.validation import Refusal
from kafscale.wire.errors import ErrorCode


class Found(NamedTuple):
    """The member of a heartbeat, in its state before the heartbeat."""

    group: Group  # without `member`'s predecessor, if it has one
    member: Member
    makes_epoch: bool = False  # a member joined or left


def member_of_instance(members: Mapping[MemberId, Member], instance_id: str) -> Member | None:
    return next((member for member in members.values() if member.instance_id == instance_id), None)


def unknown(member_id: str, group_id: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def find(group: Group, request: Heartbeat, rules: Rules) -> Found | Refusal:
    """The member of a heartbeat that does not leave the group."""
    if request.member_epoch == JOIN_EPOCH:
        return _joining(group, request, rules)
    member = named(group, request)
    if isinstance(member, Refusal):
        return member
    return _wrong_epoch(member, request) or Found(group, member)


def named(group: Group, request: Heartbeat) -> Member | Refusal:
    """The existing member that the request names, by member id or by both ids."""
    members = group.persisted.members
    if group.persisted.epoch == 0:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group.persisted.group_id} not found.")
    if request.instance_id is None:
        known = members.get(MemberId(request.member_id))
        return known or unknown(request.member_id, group.persisted.group_id)
    member = member_of_instance(members, request.instance_id)
    if member is None:
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    if member.member_id != request.member_id:
        return Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} "
            f"was fenced by member {member.member_id}.",
        )
    return member


def _wrong_epoch(member: Member, request: Heartbeat) -> Refusal | None:
    said, known = request.member_epoch, member.epoch
    if said == known:
        return None
    owns_what_it_may = request.owned is not None and is_subset(request.owned, member.assigned)
    if said < known and said == member.previous_epoch and owns_what_it_may:
        return None
    return Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if said > known else 'smaller'} member epoch ({said}) "
        f"than the one known by the group coordinator ({known}). "
        "The member must abandon all its partitions and rejoin.",
    )


def _joining(group: Group, request: Heartbeat, rules: Rules) -> Found | Refusal:
    members = group.persisted.members
    member_id = MemberId(request.member_id or request.fresh_id)
    before = member_of_instance(members, request.instance_id) if request.instance_id is not None else None
    if before is not None and before.member_id != member_id:
        if before.epoch != STATIC_LEAVE_EPOCH:
            return Refusal(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {request.instance_id} cannot join the group "
                f"because the instance id is owned by {before.member_id} member.",
            )
        return _take_over(group, before, member_id)
    known = members.get(member_id)
    if known is not None and known.epoch == STATIC_LEAVE_EPOCH:
        # It returns under its old member id, with or without its instance id, and starts like a successor.
        return Found(group, replace(known, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH))
    if known is not None:
        return Found(group, known)
    if len(members) >= rules.members_max:
        return Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {rules.members_max} members.",
        )
    return Found(group, Member(member_id=member_id), makes_epoch=True)


def _take_over(group: Group, before: Member, member_id: MemberId) -> Found:
    """`member_id` takes over the place of `before`. The target needs no new epoch.

    If `member_id` was another member already, that member is removed, and its partitions are free.
    """
    makes_epoch = member_id in group.persisted.members
    inherited = group.persisted.target.get(before.member_id, NOTHING)
    group = without(group, {before.member_id, member_id})
    heir = replace(before, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    persisted = replace(group.persisted, target={**group.persisted.target, member_id: inherited})
    return Found(replace(group, persisted=persisted), heir, makes_epoch)


def static_leave(group: Group, member: Member) -> Group:
    """The member leaves and keeps its place until its session ends. Its successor starts without owned partitions.

    The partitions that it had to revoke are free at once.
    """
    gone = replace(member, epoch=STATIC_LEAVE_EPOCH, state=MemberState.STABLE, revoking=NOTHING)
    deadlines = group.deadlines[member.member_id]
    return replace(
        group,
        persisted=replace(group.persisted, members={**group.persisted.members, member.member_id: gone}),
        deadlines={**group.deadlines, member.member_id: Deadlines(deadlines.session_ms, None)},
    )


def fence(group: Group, member_ids: Collection[MemberId]) -> Group:
    """Removes these members: their partitions are free, and the group gets a new epoch."""
    return bumped(without(group, member_ids)) if member_ids else group


def without(group: Group, member_ids: Collection[MemberId]) -> Group:
    persisted = replace(
        group.persisted,
        members={name: member for name, member in group.persisted.members.items() if name not in member_ids},
        target={name: target for name, target in group.persisted.target.items() if name not in member_ids},
    )
    deadlines = {name: value for name, value in group.deadlines.items() if name not in member_ids}
    return replace(group, persisted=persisted, deadlines=deadlines)


def bumped(group: Group) -> Group:
    """The group in its next epoch. The next heartbeat computes the target."""
    persisted = replace(group.persisted, epoch=group.persisted.epoch + 1, metadata_hash=metadata_hash(group))
    return replace(group, persisted=persisted)
