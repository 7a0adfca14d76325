"""How a rebalance begins, how it goes on when time passes, and how it ends.

The law: PreparingRebalance and CompletingRebalance have a deadline, always. At the first's end those
who have not joined are dropped (static members stay until their session ends); at the second's, those
who have not asked for their assignment. `expire` and `settle` close every step, whatever opened it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from kafscale.coordinator.classic.model import (
    NO_ASSIGNMENT,
    Generation,
    InitialDelay,
    JoinMember,
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
    """Everyone is to join (again). Kafka gives the first members of a group time to become more."""
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
    """Let happen what is due: first sessions, then the phase's end."""
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
            _drop_who_did_not_sync(group)
    if _is_due(group.sync_deadline_ms, now_ms):
        _drop_who_did_not_sync(group)


def settle(group: WorkingGroup) -> None:
    """The joins are over when everyone has joined, or everyone has gone. Ids that were given out and
    not used do not count: a client that never comes back must not hold up the others."""
    if group.phase is not Phase.PREPARING_REBALANCE:
        return
    if not group.members:
        _become_empty(group)
    elif group.initial is None and all(m.joining is not None for m in group.members.values()):
        _complete_joins(group)


def current_generation(group: WorkingGroup, member: Member, token: Token) -> JoinReply:
    """What a member is told of the generation that it is part of; the leader hears of all members."""
    leads = group.leader == member.member_id
    return JoinReply(
        token=token,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=_leader(group),
        member_id=member.member_id,
        members=_roster(group) if leads else (),
    )


def select_protocol(members: Collection[Member]) -> str:
    """Each member votes for the first of its protocols that all offer; the earlier member breaks ties."""
    common = {name for member in members for name, _ in member.protocols}
    for member in members:
        common.intersection_update([name for name, _ in member.protocols])
    assert common, "no member is let in that has nothing in common with the others"
    votes = Counter(next(name for name, _ in member.protocols if name in common) for member in members)
    return max(votes, key=votes.__getitem__)


def metadata_for(protocols: tuple[Protocol, ...], chosen: str) -> bytes:
    return next(metadata for name, metadata in protocols if name == chosen)


def _roster(group: WorkingGroup) -> tuple[JoinMember, ...]:
    return tuple(
        JoinMember(member_id=m.member_id, instance_id=m.instance_id, metadata=m.metadata or b"")
        for m in group.members.values()
    )


def _leader(group: WorkingGroup) -> MemberId:
    assert group.leader is not None, "a generation has a leader"
    return group.leader


def _is_due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms


def _end_joins(group: WorkingGroup) -> None:
    """The deadline of the joins has come; the first rebalance may wait for more newcomers."""
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
    else:  # nobody, or static members whose sessions go on: wait for them, or for their end
        group.rebalance_deadline_ms = now_ms + group.rebalance_timeout_ms


def _complete_joins(group: WorkingGroup) -> None:
    """The next generation: who is in it, who leads it, what it speaks. Everyone has to sync now."""
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


def _drop_who_did_not_sync(group: WorkingGroup) -> None:
    """They have a generation and want nothing of it: the others shall have their share."""
    for member in [*group.members.values()]:
        if member.must_sync:
            group.remove(member.member_id)
    prepare_rebalance(group)


def _become_empty(group: WorkingGroup) -> None:
    """The last member has gone: a generation without members, so that nobody's old one is current."""
    group.generation = Generation(group.generation + 1)
    group.known = True
    group.protocol_name = group.leader = group.initial = None
    group.rebalance_deadline_ms = None
    group.enter(Phase.EMPTY)
