"""SyncGroup: the leader sends the assignments of its generation, and the other members wait for theirs.

The law: an assignment is only sent in the generation that it was made for.
"""

from __future__ import annotations

from dataclasses import replace

from kafscale.coordinator.classic.model import NO_ASSIGNMENT, Member, Phase, Sync, SyncReply, Token
from kafscale.coordinator.classic.working_group import WorkingGroup
from kafscale.wire.errors import ErrorCode


def sync(group: WorkingGroup, event: Sync) -> None:
    error = _refusal(group, event)
    if error is not ErrorCode.NONE:
        group.replies.append(SyncReply(token=event.token, error=error))
        return
    member = group.members[event.member_id]
    if group.phase is Phase.COMPLETING_REBALANCE:
        group.park_sync(member, event.token)
        if group.leader == event.member_id:
            _distribute(group, event)
    else:
        group.put(replace(member, must_sync=False))
        group.replies.append(_assigned(group, member, event.token))
        _close_if_all_synced(group)


def _refusal(group: WorkingGroup, event: Sync) -> ErrorCode:
    error = group.check(event.member_id, event.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(event.protocol_type, group.protocol_type) or _differs(
        event.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.phase is Phase.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    if (
        group.phase is Phase.COMPLETING_REBALANCE
        and group.leader == event.member_id
        and _is_too_big(group, event)
    ):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _differs(given: str | None, chosen: str | None) -> bool:
    return given is not None and chosen is not None and given != chosen


def _is_too_big(group: WorkingGroup, event: Sync) -> bool:
    held = sum([m.bytes_held - len(m.assignment) for m in group.members.values()])
    given = sum([len(assignment) for _, assignment in event.assignments])
    return held + given > group.rules.state_bytes_max


def _distribute(group: WorkingGroup, event: Sync) -> None:
    """A member that the leader did not name gets an empty assignment. Unknown member ids are ignored."""
    given = dict(event.assignments)
    for member in [*group.members.values()]:
        member = replace(member, assignment=given.get(member.member_id, NO_ASSIGNMENT))
        if member.syncing is None:
            group.put(member)
        else:
            group.replies.append(_assigned(group, member, member.syncing))
            group.extend_session(replace(member, syncing=None))
    group.sync_deadline_ms, group.rebalance_deadline_ms = group.rebalance_deadline_ms, None
    _close_if_all_synced(group)
    group.enter(Phase.STABLE)


def _close_if_all_synced(group: WorkingGroup) -> None:
    if not any(member.must_sync for member in group.members.values()):
        group.sync_deadline_ms = None


def _assigned(group: WorkingGroup, member: Member, token: Token) -> SyncReply:
    return SyncReply(
        token=token,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
