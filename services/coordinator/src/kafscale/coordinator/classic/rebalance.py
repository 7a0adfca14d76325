"""How a rebalance starts, what its deadlines do, and how it ends.

The law: PreparingRebalance and CompletingRebalance always have a deadline. At the first one, members that have
not joined are removed (static members stay until their session ends). At the second one, members that have not
sent a Sync are removed. Every step ends with `expire` and `settle`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from kafscale.coordinator.classic.model import (
    NO_ASSIGNMENT,
    Generation,
    InitialDelay,
    JoinReply,
    Member,
    MemberId,
    Phase,
    Protocol,
    Token,
)
from kafscale.coordinator.classic.working_group import WorkingGroup
from kafscale.wire.errors import ErrorCode

GENERATION_PHASES = (Phase.COMPLETING_REBALANCE, Phase.STABLE)


def prepare_rebalance(group: WorkingGroup) -> None:
    """All members must join again. As in Kafka, the first rebalance of a group waits for more members."""
    now_ms, rules = group.now_ms, group.rules
    completing = group.phase is Phase.COMPLETING_REBALANCE
    for member in [*group.members.values()]:
        if member.syncing is not None:
            group.answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        kept = group.members[member.member_id]
        assignment = NO_ASSIGNMENT if completing else kept.assignment
        group.put(replace(kept, must_sync=False, assignment=assignment))
    group.sync_deadline_ms = None
    if group.phase is Phase.EMPTY:
        delay_ms = rules.initial_rebalance_delay_ms
        group.initial = InitialDelay(ends_ms=now_ms + max(delay_ms, group.rebalance_timeout_ms))
        group.rebalance_deadline_ms = now_ms + delay_ms
    else:
        group.rebalance_deadline_ms = now_ms + group.rebalance_timeout_ms
    group.enter(Phase.PREPARING_REBALANCE)


def expire(group: WorkingGroup) -> None:
    """Applies the deadlines that have passed: first the sessions, then the phase's."""
    now_ms = group.now_ms
    for member_id, due_ms in [*group.pending.items()]:
        if due_ms <= now_ms:
            del group.pending[member_id]
    late = [m for m in group.members.values() if _is_due(m.session_deadline_ms, now_ms)]
    for member in late:
        group.remove(member.member_id)
    if late and group.phase in GENERATION_PHASES:
        prepare_rebalance(group)
    if _is_due(group.rebalance_deadline_ms, now_ms):
        if group.phase is Phase.PREPARING_REBALANCE:
            _end_joins(group)
        else:
            _remove_unsynced(group)
    if _is_due(group.sync_deadline_ms, now_ms):
        _remove_unsynced(group)


def settle(group: WorkingGroup) -> None:
    """The joins end when all members have joined, or none is left. Unused member ids do not count: a client that does
    not return must not delay the others."""
    if group.phase is not Phase.PREPARING_REBALANCE:
        return
    if not group.members:
        _become_empty(group)
    elif group.initial is None and all(m.joining is not None for m in group.members.values()):
        _complete_joins(group)


def current_generation(group: WorkingGroup, member: Member, token: Token) -> JoinReply:
    """The reply to a member of the present generation. The leader's reply lists all members."""
    leads = group.leader == member.member_id
    return JoinReply(
        token=token,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=_leader(group),
        member_id=member.member_id,
        members=tuple(group.members.values()) if leads else (),
    )


def select_protocol(members: Collection[Member]) -> str:
    """Each member votes for the first of its protocols that all members offer. The earlier member breaks ties."""
    common = {name for member in members for name, _ in member.protocols}
    for member in members:
        common.intersection_update([name for name, _ in member.protocols])
    assert common, "every member shares a protocol with the others"
    votes = Counter(next(name for name, _ in member.protocols if name in common) for member in members)
    return max(votes, key=votes.__getitem__)


def metadata_for(protocols: tuple[Protocol, ...], chosen: str) -> bytes:
    return next(metadata for name, metadata in protocols if name == chosen)


def _leader(group: WorkingGroup) -> MemberId:
    assert group.leader is not None, "a generation has a leader"
    return group.leader


def _is_due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms


def _end_joins(group: WorkingGroup) -> None:
    """The deadline of the joins has passed. The first rebalance may wait longer for new members."""
    now_ms, initial = group.now_ms, group.initial
    if initial is not None and initial.member_added and now_ms < initial.ends_ms:
        delay_ms = max(1, group.rules.initial_rebalance_delay_ms)
        group.initial = replace(initial, member_added=False)
        group.rebalance_deadline_ms = min(now_ms + delay_ms, initial.ends_ms)
        return
    group.initial = None
    for member in [*group.members.values()]:
        if member.joining is None and member.instance_id is None:
            group.remove(member.member_id)
    if any(member.joining is not None for member in group.members.values()):
        _complete_joins(group)
    else:  # no members, or static members with live sessions: wait for their Joins, or for the end of their sessions
        group.rebalance_deadline_ms = now_ms + group.rebalance_timeout_ms


def _complete_joins(group: WorkingGroup) -> None:
    """Makes the next generation: its members, leader and protocol. All members must send a Sync now."""
    members = group.members
    if group.leader is None or members[group.leader].joining is None:
        group.leader = next(m.member_id for m in members.values() if m.joining is not None)
    group.generation = Generation(group.generation + 1)
    group.known = True
    group.protocol_name = chosen = select_protocol(members.values())
    for member in [*members.values()]:
        group.put(replace(member, metadata=metadata_for(member.protocols, chosen), must_sync=True))
    for member in [*members.values()]:
        if member.joining is not None:
            group.replies.append(current_generation(group, member, member.joining))
        group.extend_session(replace(member, joining=None))
    group.rebalance_deadline_ms = group.now_ms + group.rebalance_timeout_ms
    group.enter(Phase.COMPLETING_REBALANCE)


def _remove_unsynced(group: WorkingGroup) -> None:
    """Removes members that got the generation and sent no Sync. The others share their partitions."""
    for member in [*group.members.values()]:
        if member.must_sync:
            group.remove(member.member_id)
    prepare_rebalance(group)


def _become_empty(group: WorkingGroup) -> None:
    """The last member has left. The generation rises, so no former member has the current one."""
    group.generation = Generation(group.generation + 1)
    group.known = True
    group.protocol_name = group.leader = group.initial = None
    group.rebalance_deadline_ms = None
    group.enter(Phase.EMPTY)
