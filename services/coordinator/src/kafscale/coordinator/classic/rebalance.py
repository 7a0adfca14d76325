"""How a rebalance begins, how it goes on when time passes, and how it ends.

The law: PreparingRebalance and CompletingRebalance have a deadline, always. At the first's end those
who have not joined are dropped (static members stay until their session ends); at the second's, those
who have not asked for their assignment. `expire` and `settle` close every step, whatever opened it.
"""

from __future__ import annotations

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
    Token,
)
from kafscale.coordinator.classic.protocols import metadata_for, select
from kafscale.coordinator.classic.turn import Turn
from kafscale.wire.errors import ErrorCode

GENERATION_PHASES = (Phase.COMPLETING_REBALANCE, Phase.STABLE)


def prepare_rebalance(turn: Turn) -> None:
    """Everyone is to join (again). Kafka gives the first members of a group time to become more."""
    now_ms, rules = turn.now_ms, turn.rules
    completing = turn.phase is Phase.COMPLETING_REBALANCE
    for member in [*turn.members.values()]:
        if member.syncing is not None:
            turn.answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        kept = turn.members[member.member_id]
        assignment = NO_ASSIGNMENT if completing else kept.assignment
        turn.put(replace(kept, must_sync=False, assignment=assignment))
    turn.sync_deadline_ms = None
    if turn.phase is Phase.EMPTY:
        delay_ms = rules.initial_rebalance_delay_ms
        turn.initial = InitialDelay(ends_ms=now_ms + max(delay_ms, turn.rebalance_timeout_ms))
        turn.rebalance_deadline_ms = now_ms + delay_ms
    else:
        turn.rebalance_deadline_ms = now_ms + turn.rebalance_timeout_ms
    turn.enter(Phase.PREPARING_REBALANCE)


def expire(turn: Turn) -> None:
    """Let happen what is due: first sessions, then the phase's end."""
    now_ms = turn.now_ms
    for member_id, due_ms in [*turn.pending.items()]:
        if due_ms <= now_ms:
            del turn.pending[member_id]
    late = [m for m in turn.members.values() if _is_due(m.session_deadline_ms, now_ms)]
    for member in late:
        turn.remove(member.member_id)
    if late and turn.phase in GENERATION_PHASES:
        prepare_rebalance(turn)
    if _is_due(turn.rebalance_deadline_ms, now_ms):
        if turn.phase is Phase.PREPARING_REBALANCE:
            _end_joins(turn)
        else:
            _drop_who_did_not_sync(turn)
    if _is_due(turn.sync_deadline_ms, now_ms):
        _drop_who_did_not_sync(turn)


def settle(turn: Turn) -> None:
    """The joins are over when everyone has joined, or everyone has gone. Ids that were given out and
    not used do not count: a client that never comes back must not hold up the others."""
    if turn.phase is not Phase.PREPARING_REBALANCE:
        return
    if not turn.members:
        _become_empty(turn)
    elif turn.initial is None and all(m.joining is not None for m in turn.members.values()):
        _complete_joins(turn)


def current_generation(turn: Turn, member: Member, token: Token) -> JoinReply:
    """What a member is told of the generation that it is part of; the leader hears of all members."""
    leads = turn.leader == member.member_id
    return JoinReply(
        token=token,
        generation=turn.generation,
        protocol_type=turn.protocol_type,
        protocol_name=turn.protocol_name,
        leader=_leader(turn),
        member_id=member.member_id,
        members=_roster(turn) if leads else (),
    )


def _roster(turn: Turn) -> tuple[JoinMember, ...]:
    return tuple(
        JoinMember(member_id=m.member_id, instance_id=m.instance_id, metadata=m.metadata or b"")
        for m in turn.members.values()
    )


def _leader(turn: Turn) -> MemberId:
    assert turn.leader is not None, "a generation has a leader"
    return turn.leader


def _is_due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms


def _end_joins(turn: Turn) -> None:
    """The deadline of the joins has come; the first rebalance may wait for more newcomers."""
    now_ms, initial = turn.now_ms, turn.initial
    if initial is not None and initial.member_added and now_ms < initial.ends_ms:
        delay_ms = max(1, turn.rules.initial_rebalance_delay_ms)
        turn.initial = replace(initial, member_added=False)
        turn.rebalance_deadline_ms = min(now_ms + delay_ms, initial.ends_ms)
        return
    turn.initial = None
    for member in [*turn.members.values()]:
        if member.joining is None and member.instance_id is None:
            turn.remove(member.member_id)
    if any(member.joining is not None for member in turn.members.values()):
        _complete_joins(turn)
    else:  # nobody, or static members whose sessions go on: wait for them, or for their end
        turn.rebalance_deadline_ms = now_ms + turn.rebalance_timeout_ms


def _complete_joins(turn: Turn) -> None:
    """The next generation: who is in it, who leads it, what it speaks. Everyone has to sync now."""
    members = turn.members
    if turn.leader is None or members[turn.leader].joining is None:
        turn.leader = next(m.member_id for m in members.values() if m.joining is not None)
    turn.generation = Generation(turn.generation + 1)
    turn.known = True
    turn.protocol_name = chosen = select(members.values())
    for member in [*members.values()]:
        turn.put(replace(member, metadata=metadata_for(member.protocols, chosen), must_sync=True))
    for member in [*members.values()]:
        if member.joining is not None:
            turn.replies.append(current_generation(turn, member, member.joining))
        turn.extend_session(replace(member, joining=None))
    turn.rebalance_deadline_ms = turn.now_ms + turn.rebalance_timeout_ms
    turn.enter(Phase.COMPLETING_REBALANCE)


def _drop_who_did_not_sync(turn: Turn) -> None:
    """They have a generation and want nothing of it: the others shall have their share."""
    for member in [*turn.members.values()]:
        if member.must_sync:
            turn.remove(member.member_id)
    prepare_rebalance(turn)


def _become_empty(turn: Turn) -> None:
    """The last member has gone: a generation without members, so that nobody's old one is current."""
    turn.generation = Generation(turn.generation + 1)
    turn.known = True
    turn.protocol_name = turn.leader = turn.initial = None
    turn.rebalance_deadline_ms = None
    turn.enter(Phase.EMPTY)
