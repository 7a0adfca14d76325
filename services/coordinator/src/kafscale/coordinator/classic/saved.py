"""Hard and soft state (raft's HardState and SoftState): what of a group must survive, and its return.

The law: a reply never claims more than what was saved with it. Members count once they are part of a
generation; newcomers, ids given out, deadlines and parked requests are soft, so a group is written
when a rebalance begins, when a generation is made, when it is assigned, and when somebody goes.
"""

from __future__ import annotations

from kafscale.coordinator.classic.model import Group, Member, Phase, Rules, SavedGroup, SavedMember


def durable(group: Group) -> SavedGroup | None:
    """None: there is nothing to keep (any more), the record may go."""
    if not group.known or group.phase is Phase.DEAD:
        return None
    members = tuple(_saved(m, m.metadata) for m in group.members.values() if m.metadata is not None)
    ids = [member.member_id for member in members]
    leader = group.leader if group.leader in ids else next(iter(ids), None)
    return SavedGroup(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name if members else None,
        leader=leader,
        rebalancing=bool(members) and group.phase is not Phase.STABLE,
        members=members,
    )


def must_save(before: Group, after: Group) -> bool:
    """Whether `durable` differs. Most steps are heartbeats, so it is told without building either one:
    what a step does not touch is the same object as before."""
    if _head(before) == _head(after) and len(before.members) == len(after.members):
        pairs = zip(before.members.values(), after.members.values(), strict=True)
        if all(old is new or _hard(old) == _hard(new) for old, new in pairs):
            return False
    return durable(before) != durable(after)


def _head(group: Group) -> tuple[object, ...]:
    protocol = group.protocol_type, group.protocol_name
    return group.phase, group.known, group.generation, *protocol, group.leader


def _hard(member: Member) -> tuple[object, ...]:
    timeouts = member.session_timeout_ms, member.rebalance_timeout_ms
    client = member.client_id, member.client_host
    return member.member_id, member.instance_id, *client, *timeouts, member.metadata, member.assignment


def restore(saved: SavedGroup, now_ms: int, rules: Rules) -> Group:
    """Everyone gets a full session. A half-made rebalance starts over: members keep their generation,
    and their next request tells them to join again."""
    del rules  # the bounds are checked where members come in; whoever is in, stays
    members = {m.member_id: _restored(m, saved.protocol_name or "", now_ms) for m in saved.members}
    phase, deadline_ms = Phase.EMPTY, None
    if members and saved.rebalancing:
        longest_ms = max(member.rebalance_timeout_ms for member in members.values())
        phase, deadline_ms = Phase.PREPARING_REBALANCE, now_ms + max(1, longest_ms)
    elif members:
        phase = Phase.STABLE
    return Group(
        phase=phase,
        known=True,
        generation=saved.generation,
        protocol_type=saved.protocol_type,
        protocol_name=saved.protocol_name,
        leader=saved.leader,
        members=members,
        rebalance_deadline_ms=deadline_ms,
    )


def _saved(member: Member, metadata: bytes) -> SavedMember:
    return SavedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        metadata=metadata,
        assignment=member.assignment,
    )


def _restored(saved: SavedMember, protocol: str, now_ms: int) -> Member:
    """Of all that the member offered only the chosen protocol is known, as after a failover of Kafka."""
    return Member(
        member_id=saved.member_id,
        instance_id=saved.instance_id,
        client_id=saved.client_id,
        client_host=saved.client_host,
        session_timeout_ms=saved.session_timeout_ms,
        rebalance_timeout_ms=saved.rebalance_timeout_ms,
        protocols=((protocol, saved.metadata),),
        metadata=saved.metadata,
        assignment=saved.assignment,
        session_deadline_ms=now_ms + saved.session_timeout_ms,
    )
