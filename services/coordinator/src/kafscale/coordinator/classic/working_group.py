"""A working copy of a group during one step, with the replies so far.

The law: a parked token leaves its member only through `answer_join` or `answer_sync`, and all code that
drops or replaces a member calls this class. So every request is answered exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from kafscale.coordinator.classic.model import (
    NO_MEMBER_ID,
    Generation,
    Group,
    InitialDelay,
    InstanceId,
    JoinReply,
    Member,
    MemberId,
    Phase,
    Reply,
    Rules,
    SyncReply,
    Token,
    Transition,
)
from kafscale.wire.errors import ErrorCode

_FIELDS = tuple(each.name for each in fields(Group))


@dataclass(slots=True, kw_only=True)
class WorkingGroup:
    """Mutable, and used for one step only. The fields are those of `Group`."""

    now_ms: int
    rules: Rules
    phase: Phase
    known: bool
    generation: Generation
    protocol_type: str | None
    protocol_name: str | None
    leader: MemberId | None
    members: dict[MemberId, Member]
    pending: dict[MemberId, int]
    rebalance_deadline_ms: int | None
    sync_deadline_ms: int | None
    initial: InitialDelay | None
    replies: list[Reply] = field(default_factory=list)
    entered: list[Phase] = field(default_factory=list)

    @classmethod
    def begin(cls, group: Group, now_ms: int, rules: Rules) -> WorkingGroup:
        values = {name: getattr(group, name) for name in _FIELDS}
        values |= {"members": dict(group.members), "pending": dict(group.pending)}
        return cls(now_ms=now_ms, rules=rules, **values)

    def finish(self) -> Transition:
        group = Group(**{name: getattr(self, name) for name in _FIELDS})
        return Transition(group=group, replies=tuple(self.replies), entered=tuple(self.entered))

    def enter(self, phase: Phase) -> None:
        self.phase = phase
        self.entered.append(phase)

    # --- members -------------------------------------------------------------------------------

    def put(self, member: Member) -> None:
        self.members[member.member_id] = member

    def member_of(self, instance_id: InstanceId) -> Member | None:
        """The static member with this instance id."""
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def check(self, member_id: MemberId, instance_id: InstanceId | None) -> ErrorCode:
        """The error of a request that is not from a member, or from a replaced static member (KIP-345)."""
        if instance_id is not None:
            holder = self.member_of(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def remove(self, member_id: MemberId) -> None:
        """Removes a member. Its parked request fails with UNKNOWN_MEMBER_ID, so the client rejoins without an id."""
        member = self.members[member_id]
        if member.joining is not None:
            self.answer_join(member, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID)
        if member.syncing is not None:
            self.answer_sync(self.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID)
        del self.members[member_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def extend_session(self, member: Member) -> None:
        """A full session from now. A member with a parked request does not expire, unless it is new."""
        waits = member.is_parked and not member.is_new
        deadline_ms = None if waits else self.now_ms + member.session_timeout_ms
        self.put(replace(member, session_deadline_ms=deadline_ms))

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of all members; at least 1, so that a deadline is in the future."""
        return max([1, *(m.rebalance_timeout_ms for m in self.members.values())])

    # --- parked requests -----------------------------------------------------------------------

    def park_join(self, member: Member, token: Token) -> None:
        """A second Join of a member replaces the first, whose connection is lost."""
        if member.joining is not None:
            self.answer_join(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        deadline_ms = self.now_ms + self.rules.new_member_join_timeout_ms if member.is_new else None
        self.put(replace(member, joining=token, session_deadline_ms=deadline_ms))

    def park_sync(self, member: Member, token: Token) -> None:
        if member.syncing is not None:
            self.answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.put(replace(member, syncing=token, must_sync=False, session_deadline_ms=None))

    def answer_join(self, member: Member, error: ErrorCode, member_id: MemberId) -> None:
        assert member.joining is not None, member.member_id
        self.replies.append(JoinReply(token=member.joining, error=error, member_id=member_id))
        self.extend_session(replace(member, joining=None))

    def answer_sync(self, member: Member, error: ErrorCode) -> None:
        assert member.syncing is not None, member.member_id
        self.replies.append(SyncReply(token=member.syncing, error=error))
        self.extend_session(replace(member, syncing=None))
