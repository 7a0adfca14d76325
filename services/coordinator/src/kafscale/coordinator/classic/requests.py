"""The requests that are answered at once: Heartbeat, LeaveGroup, the check of a commit, DeleteGroups.

The law: a request with another generation than the current one never succeeds. A heartbeat changes deadlines
only, and so does a commit, which counts as a heartbeat (a transactional one does not). Neither costs a write.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from kafscale.coordinator.classic.model import (
    NO_MEMBER_ID,
    Abandon,
    Commit,
    Delete,
    Event,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    Leaver,
    LeaveReply,
    LeaverReply,
    Phase,
    StatusReply,
    Sync,
    SyncReply,
    Tick,
)
from kafscale.coordinator.classic.rebalance import GENERATION_PHASES, prepare_rebalance
from kafscale.coordinator.classic.working_group import WorkingGroup
from kafscale.wire.errors import ErrorCode


def heartbeat(group: WorkingGroup, event: Heartbeat) -> None:
    error = group.check(event.member_id, event.instance_id)
    if error is ErrorCode.NONE and event.generation != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if error is ErrorCode.NONE:
        group.extend_session(group.members[event.member_id])
        if group.phase is Phase.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    group.replies.append(StatusReply(token=event.token, error=error))


def leave(group: WorkingGroup, event: Leave) -> None:
    """All leavers are removed in one step, so a batch causes one rebalance."""
    before = len(group.members)
    leavers = tuple(
        LeaverReply(member_id=each.member_id, instance_id=each.instance_id, error=_leave_one(group, each))
        for each in event.leavers
    )
    group.replies.append(LeaveReply(token=event.token, leavers=leavers))
    if len(group.members) < before and group.phase in GENERATION_PHASES:
        prepare_rebalance(group)


def _leave_one(group: WorkingGroup, leaver: Leaver) -> ErrorCode:
    member_id = leaver.member_id
    if member_id in group.pending:
        del group.pending[member_id]
        return ErrorCode.NONE
    if member_id == NO_MEMBER_ID and leaver.instance_id is not None:
        holder = group.member_of(leaver.instance_id)
        member_id = NO_MEMBER_ID if holder is None else holder.member_id
    error = group.check(member_id, leaver.instance_id)
    if error is ErrorCode.NONE:
        group.remove(member_id)
    return error


def commit(group: WorkingGroup, event: Commit) -> None:
    error = _commit_refusal(group, event)
    if error is ErrorCode.NONE:
        if group.phase is Phase.EMPTY:
            group.known = True
        elif not event.transactional:
            group.extend_session(group.members[event.member_id])
    group.replies.append(StatusReply(token=event.token, error=error))


def _commit_refusal(group: WorkingGroup, event: Commit) -> ErrorCode:
    """Kafka's ClassicGroup.validateOffsetCommit, and Kafka's errors for groups that do not exist."""
    if group.phase is Phase.EMPTY:
        if event.generation < 0:
            return ErrorCode.NONE  # a consumer without a group protocol, or an admin client
        if not group.known and not group.pending:
            missing = event.names_missing_groups
            return ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.ILLEGAL_GENERATION
    if event.transactional and _has_no_member(event):
        return ErrorCode.NONE  # a producer that knows nothing of the group's members (before KIP-447)
    error = group.check(event.member_id, event.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.phase is Phase.COMPLETING_REBALANCE and not event.transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _has_no_member(event: Commit) -> bool:
    return event.generation < 0 and event.member_id == NO_MEMBER_ID and event.instance_id is None


def delete(group: WorkingGroup, event: Delete) -> None:
    error = ErrorCode.NONE
    if group.members:
        error = ErrorCode.NON_EMPTY_GROUP
    elif not group.known and not group.pending:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    else:
        group.pending.clear()
        group.enter(Phase.DEAD)
    group.replies.append(StatusReply(token=event.token, error=error))


def abandon(group: WorkingGroup, event: Abandon) -> None:
    """Forgets the parked request. The member stays for one session, in which it may retry."""
    for member in [*group.members.values()]:
        if member.joining == event.token:
            group.extend_session(replace(member, joining=None))
        elif member.syncing == event.token:
            group.extend_session(replace(member, syncing=None, must_sync=True))


def refuse(group: WorkingGroup, event: Event) -> None:
    """Answers a request to a Dead group: the client looks the group up again."""
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    match event:
        case Join():
            group.replies.append(JoinReply(token=event.token, error=error, member_id=event.member_id))
        case Sync():
            group.replies.append(SyncReply(token=event.token, error=error))
        case Heartbeat() | Commit():
            group.replies.append(StatusReply(token=event.token, error=error))
        case Leave():
            group.replies.append(LeaveReply(token=event.token, error=error))
        case Delete():
            group.replies.append(StatusReply(token=event.token, error=ErrorCode.GROUP_ID_NOT_FOUND))
        case Abandon() | Tick():
            pass
        case _:
            assert_never(event)
