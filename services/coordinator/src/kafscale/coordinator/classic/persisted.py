"""The persisted state of a group (raft's HardState): its record in etcd, and how a group is restored from it.

The law: a reply never promises more than the state that was persisted with it. A member is persisted once it
is part of a generation. New members, unused member ids, deadlines and parked requests are not persisted. So a
group is written when a rebalance begins, when a generation is complete, when it gets its assignment, and when
a member leaves.
"""

from __future__ import annotations

from kafscale.coordinator.classic.model import Generation, Group, InstanceId, Member, MemberId, Phase
from kafscale.storage.groups import ClassicGroup, ClassicMember, ClassicPhase, ClassicProtocol


def durable(group: Group) -> ClassicGroup | None:
    """None: there is nothing to persist, and the record may be deleted. A group that is neither Empty nor Stable is
    persisted as PreparingRebalance: its members rejoin."""
    if not group.known or group.phase is Phase.DEAD:
        return None
    chosen = group.protocol_name or ""
    members = tuple(
        _persisted(m, chosen, m.metadata) for m in group.members.values() if m.metadata is not None
    )
    ids = [member.id for member in members]
    phase = ClassicPhase.STABLE if group.phase is Phase.STABLE else ClassicPhase.PREPARING_REBALANCE
    return ClassicGroup(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol_name if members else None,
        leader=group.leader if group.leader in ids else next(iter(ids), None),
        phase=phase if members else ClassicPhase.EMPTY,
        members=members,
    )


def must_save(before: Group, after: Group) -> bool:
    """Whether `durable` differs. Most steps are heartbeats, so this first compares fields without building either
    state: objects that a step does not change stay the same objects."""
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


def restore(persisted: ClassicGroup, now_ms: int) -> Group:
    """Everyone gets a full session. A half-made rebalance starts over: members keep their generation,
    and their next request tells them to join again."""
    members = {MemberId(m.id): _restored(m, persisted.protocol or "", now_ms) for m in persisted.members}
    phase, deadline_ms = Phase.EMPTY, None
    if members and persisted.phase is not ClassicPhase.STABLE:
        longest_ms = max(member.rebalance_timeout_ms for member in members.values())
        phase, deadline_ms = Phase.PREPARING_REBALANCE, now_ms + max(1, longest_ms)
    elif members:
        phase = Phase.STABLE
    return Group(
        phase=phase,
        known=True,
        generation=Generation(persisted.generation),
        protocol_type=persisted.protocol_type,
        protocol_name=persisted.protocol,
        leader=None if persisted.leader is None else MemberId(persisted.leader),
        members=members,
        rebalance_deadline_ms=deadline_ms,
    )


def _persisted(member: Member, protocol: str, metadata: bytes) -> ClassicMember:
    return ClassicMember(
        id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=(ClassicProtocol(name=protocol, metadata=metadata),),
        assignment=member.assignment,
    )


def _restored(persisted: ClassicMember, protocol: str, now_ms: int) -> Member:
    """Only the chosen protocol of the member is known, as after a failover of Kafka."""
    metadata = persisted.protocols[0].metadata if persisted.protocols else b""
    return Member(
        member_id=MemberId(persisted.id),
        instance_id=None if persisted.instance_id is None else InstanceId(persisted.instance_id),
        client_id=persisted.client_id,
        client_host=persisted.client_host,
        session_timeout_ms=persisted.session_timeout_ms,
        rebalance_timeout_ms=persisted.rebalance_timeout_ms,
        protocols=((protocol, metadata),),
        metadata=metadata,
        assignment=persisted.assignment,
        session_deadline_ms=now_ms + persisted.session_timeout_ms,
    )
