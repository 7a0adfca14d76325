"""SyncGroup: the leader brings the assignment of its generation, everyone else waits for theirs.

The law: an assignment is handed out in the generation that it was made for, or not at all.
"""

from __future__ import annotations

from dataclasses import replace

from kafscale.coordinator.classic.model import NO_ASSIGNMENT, Member, Phase, Sync, SyncReply, Token
from kafscale.coordinator.classic.turn import Turn
from kafscale.wire.errors import ErrorCode


def sync(turn: Turn, event: Sync) -> None:
    error = _refusal(turn, event)
    if error is not ErrorCode.NONE:
        turn.replies.append(SyncReply(token=event.token, error=error))
        return
    member = turn.members[event.member_id]
    if turn.phase is Phase.COMPLETING_REBALANCE:
        turn.park_sync(member, event.token)
        if turn.leader == event.member_id:
            _distribute(turn, event)
    else:
        turn.put(replace(member, must_sync=False))
        turn.replies.append(_assigned(turn, member, event.token))
        _close_if_all_synced(turn)


def _refusal(turn: Turn, event: Sync) -> ErrorCode:
    error = turn.check(event.member_id, event.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if event.generation != turn.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(event.protocol_type, turn.protocol_type) or _differs(event.protocol_name, turn.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if turn.phase is Phase.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    if (
        turn.phase is Phase.COMPLETING_REBALANCE
        and turn.leader == event.member_id
        and _is_too_big(turn, event)
    ):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _differs(given: str | None, chosen: str | None) -> bool:
    return given is not None and chosen is not None and given != chosen


def _is_too_big(turn: Turn, event: Sync) -> bool:
    held = sum([m.bytes_held - len(m.assignment) for m in turn.members.values()])
    given = sum([len(assignment) for _, assignment in event.assignments])
    return held + given > turn.rules.state_bytes_max


def _distribute(turn: Turn, event: Sync) -> None:
    """Whom the leader forgot gets nothing; whom the group does not know is left out."""
    given = dict(event.assignments)
    for member in [*turn.members.values()]:
        member = replace(member, assignment=given.get(member.member_id, NO_ASSIGNMENT))
        if member.syncing is None:
            turn.put(member)
        else:
            turn.replies.append(_assigned(turn, member, member.syncing))
            turn.extend_session(replace(member, syncing=None))
    turn.sync_deadline_ms, turn.rebalance_deadline_ms = turn.rebalance_deadline_ms, None
    _close_if_all_synced(turn)
    turn.enter(Phase.STABLE)


def _close_if_all_synced(turn: Turn) -> None:
    if not any(member.must_sync for member in turn.members.values()):
        turn.sync_deadline_ms = None


def _assigned(turn: Turn, member: Member, token: Token) -> SyncReply:
    return SyncReply(
        token=token,
        protocol_type=turn.protocol_type,
        protocol_name=turn.protocol_name,
        assignment=member.assignment,
    )
