"""The classic group type: its machine as the actor drives it, and its record in etcd, which is one value. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.coordinator.classic.machine import durable, must_save, next_deadline, restore, step
from kafscale.coordinator.classic.model import (
    Abandon,
    Event,
    Generation,
    Group,
    InstanceId,
    MemberId,
    PersistedGroup,
    PersistedMember,
    Reply,
    Rules,
    Tick,
    Token,
)
from kafscale.coordinator.groups.group_txns import GroupChange
from kafscale.storage.groups import (
    ClassicGroup,
    ClassicMember,
    ClassicPhase,
    ClassicProtocol,
    GroupRecord,
    encode_group,
)


class ClassicGroupType:
    """`GroupType[Group, Event, PersistedGroup | None]`."""

    next_deadline = staticmethod(next_deadline)
    must_save = staticmethod(must_save)
    durable = staticmethod(durable)

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def fresh(self) -> Group:
        return Group()

    def restored(self, persisted: PersistedGroup, now_ms: int) -> Group:
        return restore(persisted, now_ms, self._rules)

    def step(self, group: Group, event: Event, now_ms: int) -> tuple[Group, Sequence[Reply]]:
        done = step(group, event, now_ms, self._rules)
        return done.group, done.replies

    def reborn(self, group: Group, now_ms: int) -> Group:
        persisted = durable(group)
        return Group() if persisted is None else restore(persisted, now_ms, self._rules)

    def parts_changed(self, stored: PersistedGroup | None, group: Group) -> int:
        return 0

    def change(
        self, name: str, stored: PersistedGroup | None, group: Group, empty_since_ms: int
    ) -> GroupChange:
        persisted = durable(group)
        if persisted is None:
            return GroupChange(record=None)
        state = GroupRecord(group=name, state=_to_record(persisted), empty_since_ms=empty_since_ms)
        return GroupChange(record=encode_group(state))

    def tick(self) -> Event:
        return Tick()

    def abandon(self, token: int) -> Event | None:
        return Abandon(token=Token(token))

    def exists(self, group: Group) -> bool:
        return group.exists

    def generation(self, group: Group) -> int:
        return group.generation

    def is_empty(self, group: Group) -> bool:
        return not group.members


def _to_record(persisted: PersistedGroup) -> ClassicGroup:
    if not persisted.members:
        phase = ClassicPhase.EMPTY
    elif persisted.rebalancing:
        phase = ClassicPhase.PREPARING_REBALANCE
    else:
        phase = ClassicPhase.STABLE
    protocol = persisted.protocol_name or ""
    return ClassicGroup(
        generation=persisted.generation,
        protocol_type=persisted.protocol_type,
        protocol=persisted.protocol_name,
        leader=persisted.leader,
        phase=phase,
        members=tuple(
            ClassicMember(
                id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                protocols=(ClassicProtocol(name=protocol, metadata=member.metadata),),
                assignment=member.assignment,
            )
            for member in persisted.members
        ),
    )


def persisted_of(record: ClassicGroup) -> PersistedGroup:
    return PersistedGroup(
        generation=Generation(record.generation),
        protocol_type=record.protocol_type,
        protocol_name=record.protocol,
        leader=None if record.leader is None else MemberId(record.leader),
        rebalancing=record.phase in (ClassicPhase.PREPARING_REBALANCE, ClassicPhase.COMPLETING_REBALANCE),
        members=tuple(
            PersistedMember(
                member_id=MemberId(member.id),
                instance_id=None if member.instance_id is None else InstanceId(member.instance_id),
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                metadata=member.protocols[0].metadata if member.protocols else b"",
                assignment=member.assignment,
            )
            for member in record.members
        ),
    )
