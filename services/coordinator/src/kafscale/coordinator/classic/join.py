"""JoinGroup: which Joins are refused, which are parked, and which are answered at once.

A Join is parked if it starts a rebalance or belongs to one. That is every Join of a new member, every Join of
the leader (it may have seen new partitions), and the Join of another member if its metadata changed. A static
member that restarts (KIP-345) takes over its old membership without a rebalance.
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
    Protocol,
    protocol_bytes,
)
from kafscale.coordinator.classic.rebalance import (
    current_generation,
    metadata_for,
    prepare_rebalance,
    select_protocol,
)
from kafscale.coordinator.classic.working_group import WorkingGroup
from kafscale.wire.errors import ErrorCode


def join(group: WorkingGroup, event: Join) -> None:
    error = _refusal(group, event)
    if error is not ErrorCode.NONE:
        group.replies.append(JoinReply(token=event.token, error=error, member_id=event.member_id))
    elif not _has_room(group, event):
        _turn_away(group, event)
    elif not _supports(group, event.protocol_type, event.protocols):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        group.replies.append(JoinReply(token=event.token, error=error, member_id=event.member_id))
    elif event.member_id == NO_MEMBER_ID:
        _join_without_id(group, event)
    elif event.member_id in group.pending and event.instance_id is None:
        _add(group, event, event.member_id)
    else:
        _rejoin(group, event)


def _refusal(group: WorkingGroup, event: Join) -> ErrorCode:
    """Errors that change nothing in the group."""
    rules = group.rules
    if not rules.session_timeout_min_ms <= event.session_timeout_ms <= rules.session_timeout_max_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    names = event.member_id or event.fresh_id, event.instance_id or "", event.client_id, event.client_host
    offered = sum(map(len, names)) + len(event.protocol_type) + protocol_bytes(event.protocols)
    if len(event.protocols) > rules.protocols_max or offered > rules.metadata_bytes_max:
        return ErrorCode.INVALID_REQUEST
    former = _existing(group, event)
    kept = 0 if former is None else len(former.assignment)
    held = sum([member.bytes_held for member in group.members.values() if member is not former])
    return ErrorCode.INVALID_REQUEST if held + kept + offered > rules.state_bytes_max else ErrorCode.NONE


def _existing(group: WorkingGroup, event: Join) -> Member | None:
    """The member that rejoins; for a static member, possibly under its old member id."""
    if event.member_id == NO_MEMBER_ID and event.instance_id is not None:
        return group.member_of(event.instance_id)
    return group.members.get(event.member_id)


def _has_room(group: WorkingGroup, event: Join) -> bool:
    """While members join, only those that have joined count, so a smaller maximum shrinks the group."""
    existing, size_max = _existing(group, event), group.rules.group_size_max
    if group.phase is Phase.PREPARING_REBALANCE:
        if existing is not None and existing.joining is not None:
            return True
        return sum(m.joining is not None for m in group.members.values()) < size_max
    return existing is not None or len(group.members) < size_max


def _supports(group: WorkingGroup, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
    """Whether a client with these protocols can be a member: all members must offer one of them. As in Kafka, a member
    that rejoins is also compared with its own earlier protocols."""
    if group.phase is Phase.EMPTY:
        return bool(protocol_type and protocols)
    if protocol_type != group.protocol_type:
        return False
    members = group.members.values()
    return any(all(_offers(member, name) for member in members) for name, _ in protocols)


def _offers(member: Member, name: str) -> bool:
    return any(name == offered for offered, _ in member.protocols)


def _turn_away(group: WorkingGroup, event: Join) -> None:
    group.pending.pop(event.member_id, None)
    if event.member_id in group.members:
        group.remove(event.member_id)
    group.replies.append(JoinReply(token=event.token, error=ErrorCode.GROUP_MAX_SIZE_REACHED))


def _join_without_id(group: WorkingGroup, event: Join) -> None:
    assert event.fresh_id not in group.members, "a member id was used twice"
    former = None if event.instance_id is None else group.member_of(event.instance_id)
    if former is not None:
        _replace(group, event, former)
    elif event.instance_id is None and event.needs_known_id:
        _give_id(group, event)
    else:
        _add(group, event, event.fresh_id)


def _give_id(group: WorkingGroup, event: Join) -> None:
    """KIP-394: a client that does not rejoin with its id was never a member."""
    while len(group.pending) >= group.rules.group_size_max:
        del group.pending[next(iter(group.pending))]  # its client gets UNKNOWN_MEMBER_ID and retries
    group.pending[event.fresh_id] = group.now_ms + event.session_timeout_ms
    error = ErrorCode.MEMBER_ID_REQUIRED
    group.replies.append(JoinReply(token=event.token, error=error, member_id=event.fresh_id))


def _add(group: WorkingGroup, event: Join, member_id: MemberId) -> None:
    group.pending.pop(member_id, None)
    if not group.members:
        group.protocol_type, group.leader = event.protocol_type, member_id
    if group.initial is not None:
        group.initial = replace(group.initial, member_added=True)
    member = Member(
        member_id=member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(event),
        protocols=event.protocols,
    )
    _wait(group, event, member)


def _rejoin(group: WorkingGroup, event: Join) -> None:
    error = group.check(event.member_id, event.instance_id)
    if error is not ErrorCode.NONE:
        group.replies.append(JoinReply(token=event.token, error=error, member_id=event.member_id))
        return
    member = group.members[event.member_id]
    completing = group.phase is Phase.COMPLETING_REBALANCE
    follows = group.phase is Phase.STABLE and group.leader != event.member_id
    if member.protocols == event.protocols and (completing or follows):
        group.replies.append(current_generation(group, member, event.token))  # its first reply was lost
    else:
        _wait(group, event, _updated(member, event))


def _updated(member: Member, event: Join) -> Member:
    return replace(
        member,
        protocols=event.protocols,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout_ms(event),
    )


def _wait(group: WorkingGroup, event: Join, member: Member) -> None:
    group.park_join(member, event.token)
    if group.phase is not Phase.PREPARING_REBALANCE:
        prepare_rebalance(group)


def _replace(group: WorkingGroup, event: Join, former: Member) -> None:
    """A static member's process was restarted, or started twice. Requests of the older one are fenced from now on."""
    if former.joining is not None:
        group.answer_join(former, ErrorCode.FENCED_INSTANCE_ID, former.member_id)
    if former.syncing is not None:
        group.answer_sync(group.members[former.member_id], ErrorCode.FENCED_INSTANCE_ID)
    former_leader = group.leader
    member = replace(
        _updated(group.members[former.member_id], event),
        member_id=event.fresh_id,
        client_id=event.client_id,
        client_host=event.client_host,
    )
    order = [member if m.member_id == former.member_id else m for m in group.members.values()]
    group.members = {m.member_id: m for m in order}
    if group.leader == former.member_id:
        group.leader = member.member_id
    if group.phase is Phase.STABLE and select_protocol(group.members.values()) == group.protocol_name:
        _take_over(group, event, member, former_leader or NO_MEMBER_ID)
    else:
        _wait(group, event, member)


def _take_over(group: WorkingGroup, event: Join, member: Member, former_leader: MemberId) -> None:
    """The assignment stays. A client before v9 has no field to skip it (KIP-814), so its reply names the leader's
    old id: the client acts as a follower and gets the assignment from its Sync."""
    assert group.protocol_name is not None
    member = replace(member, metadata=metadata_for(event.protocols, group.protocol_name))
    group.extend_session(member)
    reply = current_generation(group, member, event.token)
    if event.may_skip_assignment:
        reply = replace(reply, skip_assignment=group.leader == member.member_id)
    else:
        reply = replace(reply, leader=former_leader, members=())
    group.replies.append(reply)


def _rebalance_timeout_ms(event: Join) -> int:
    return event.session_timeout_ms if event.rebalance_timeout_ms < 0 else event.rebalance_timeout_ms
