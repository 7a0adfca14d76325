"""JoinGroup: who comes in, who waits, who is told the generation at once.

A Join is parked when it makes a rebalance necessary or belongs to one. A newcomer always does; the
leader's own does (it saw something, perhaps more partitions); another member's does if its metadata
changed. A static member that comes back (KIP-345) takes its former self's place without one.
"""

from __future__ import annotations

from dataclasses import replace

from kafscale.coordinator.classic.model import (
    NO_MEMBER_ID,
    Join,
    JoinReply,
    Member,
    MemberId,
    Phase,
    protocol_bytes,
)
from kafscale.coordinator.classic.protocols import metadata_for, select, supports
from kafscale.coordinator.classic.rebalance import current_generation, prepare_rebalance
from kafscale.coordinator.classic.turn import Turn
from kafscale.wire.errors import ErrorCode


def join(turn: Turn, event: Join) -> None:
    error = _refusal(turn, event)
    if error is not ErrorCode.NONE:
        turn.replies.append(JoinReply(token=event.token, error=error, member_id=event.member_id))
    elif not _has_room(turn, event):
        _turn_away(turn, event)
    elif not supports(turn, event.protocol_type, event.protocols):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        turn.replies.append(JoinReply(token=event.token, error=error, member_id=event.member_id))
    elif event.member_id == NO_MEMBER_ID:
        _join_without_id(turn, event)
    elif event.member_id in turn.pending and event.instance_id is None:
        _add(turn, event, event.member_id)
    else:
        _rejoin(turn, event)


def _refusal(turn: Turn, event: Join) -> ErrorCode:
    """What is refused before the group is looked at; nothing changes."""
    rules = turn.rules
    if not rules.session_timeout_min_ms <= event.session_timeout_ms <= rules.session_timeout_max_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    names = event.member_id or event.fresh_id, event.instance_id or "", event.client_id, event.client_host
    offered = sum(map(len, names)) + len(event.protocol_type) + protocol_bytes(event.protocols)
    if len(event.protocols) > rules.protocols_max or offered > rules.metadata_bytes_max:
        return ErrorCode.INVALID_REQUEST
    former = _existing(turn, event)
    kept = 0 if former is None else len(former.assignment)
    held = sum([member.bytes_held for member in turn.members.values() if member is not former])
    return ErrorCode.INVALID_REQUEST if held + kept + offered > rules.state_bytes_max else ErrorCode.NONE


def _existing(turn: Turn, event: Join) -> Member | None:
    """The member that joins again, be it as a static member's new self."""
    if event.member_id == NO_MEMBER_ID and event.instance_id is not None:
        return turn.member_of(event.instance_id)
    return turn.members.get(event.member_id)


def _has_room(turn: Turn, event: Join) -> bool:
    """During the joins those count that have joined, so that a smaller maximum shrinks the group."""
    existing, size_max = _existing(turn, event), turn.rules.group_size_max
    if turn.phase is Phase.PREPARING_REBALANCE:
        if existing is not None and existing.joining is not None:
            return True
        return sum(m.joining is not None for m in turn.members.values()) < size_max
    return existing is not None or len(turn.members) < size_max


def _turn_away(turn: Turn, event: Join) -> None:
    turn.pending.pop(event.member_id, None)
    if event.member_id in turn.members:
        turn.remove(event.member_id)
    turn.replies.append(JoinReply(token=event.token, error=ErrorCode.GROUP_MAX_SIZE_REACHED))


def _join_without_id(turn: Turn, event: Join) -> None:
    assert event.fresh_id not in turn.members, "drawn twice"
    former = None if event.instance_id is None else turn.member_of(event.instance_id)
    if former is not None:
        _replace(turn, event, former)
    elif event.instance_id is None and event.needs_known_id:
        _give_id(turn, event)
    else:
        _add(turn, event, event.fresh_id)


def _give_id(turn: Turn, event: Join) -> None:
    """KIP-394: a client that does not come back with its id has never been a member."""
    while len(turn.pending) >= turn.rules.group_size_max:
        del turn.pending[next(iter(turn.pending))]  # it will be unknown, and ask again
    turn.pending[event.fresh_id] = turn.now_ms + event.session_timeout_ms
    error = ErrorCode.MEMBER_ID_REQUIRED
    turn.replies.append(JoinReply(token=event.token, error=error, member_id=event.fresh_id))


def _add(turn: Turn, event: Join, member_id: MemberId) -> None:
    turn.pending.pop(member_id, None)
    if not turn.members:
        turn.protocol_type, turn.leader = event.protocol_type, member_id
    if turn.initial is not None:
        turn.initial = replace(turn.initial, member_added=True)
    member = Member(
        member_id=member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(event),
        protocols=event.protocols,
    )
    _wait(turn, event, member)


def _rejoin(turn: Turn, event: Join) -> None:
    error = turn.check(event.member_id, event.instance_id)
    if error is not ErrorCode.NONE:
        turn.replies.append(JoinReply(token=event.token, error=error, member_id=event.member_id))
        return
    member = turn.members[event.member_id]
    completing = turn.phase is Phase.COMPLETING_REBALANCE
    follows = turn.phase is Phase.STABLE and turn.leader != event.member_id
    if member.protocols == event.protocols and (completing or follows):
        turn.replies.append(current_generation(turn, member, event.token))  # the first answer was lost
    else:
        _wait(turn, event, _updated(member, event))


def _updated(member: Member, event: Join) -> Member:
    return replace(
        member,
        protocols=event.protocols,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(event),
    )


def _wait(turn: Turn, event: Join, member: Member) -> None:
    turn.park_join(member, event.token)
    if turn.phase is not Phase.PREPARING_REBALANCE:
        prepare_rebalance(turn)


def _replace(turn: Turn, event: Join, former: Member) -> None:
    """A static member's process was started again, or twice: the former one is fenced from here on."""
    if former.joining is not None:
        turn.answer_join(former, ErrorCode.FENCED_INSTANCE_ID, former.member_id)
    if former.syncing is not None:
        turn.answer_sync(turn.members[former.member_id], ErrorCode.FENCED_INSTANCE_ID)
    former_leader = turn.leader
    member = replace(
        _updated(turn.members[former.member_id], event),
        member_id=event.fresh_id,
        client_id=event.client_id,
        client_host=event.client_host,
    )
    order = [member if m.member_id == former.member_id else m for m in turn.members.values()]
    turn.members = {m.member_id: m for m in order}
    if turn.leader == former.member_id:
        turn.leader = member.member_id
    if turn.phase is Phase.STABLE and select(turn.members.values()) == turn.protocol_name:
        _take_over(turn, event, member, former_leader or NO_MEMBER_ID)
    else:
        _wait(turn, event, member)


def _take_over(turn: Turn, event: Join, member: Member, former_leader: MemberId) -> None:
    """The assignment stays. Whoever cannot be told to skip it (KIP-814, v9) is not told that it leads:
    it sees the leader's former id, follows, and gets the assignment from its Sync."""
    assert turn.protocol_name is not None
    member = replace(member, metadata=metadata_for(event.protocols, turn.protocol_name))
    turn.extend_session(member)
    reply = current_generation(turn, member, event.token)
    if event.may_skip_assignment:
        reply = replace(reply, skip_assignment=turn.leader == member.member_id)
    else:
        reply = replace(reply, leader=former_leader, members=())
    turn.replies.append(reply)


def _rebalance_timeout_ms(event: Join) -> int:
    return event.session_timeout_ms if event.rebalance_timeout_ms < 0 else event.rebalance_timeout_ms
