"""The events, the state and the replies of a classic group: values only.

Every request has a *token*, an opaque number of the shell. Exactly one reply carries it, in the same step or, for
Join and Sync, in a later one. Until then the request is *parked* in a member. Times are monotonic milliseconds; a
timer is a field, and a deadline is due when `now_ms` has reached it. Names and rules are Kafka's
(GroupMetadataManager and ClassicGroup, Kafka 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

from kafscale.wire.errors import ErrorCode

Token = NewType("Token", int)
MemberId = NewType("MemberId", str)
InstanceId = NewType("InstanceId", str)
Generation = NewType("Generation", int)
Protocol = tuple[str, bytes]
"""The name of an assignor that a member offers, and the member's metadata (its subscription) for it."""

NO_MEMBER_ID = MemberId("")
NO_GENERATION = Generation(-1)
NO_ASSIGNMENT = b""
CONSUMER = "consumer"
"""The protocol type of consumers. Only their metadata can be read."""


class Phase(Enum):
    """The state of a group, in Kafka's words. DescribeGroups and ListGroups print the values.

    EMPTY                 no members. Join starts the first rebalance after `initial_rebalance_delay_ms`;
                          a simple commit (generation -1) passes.              → PREPARING, DEAD
    PREPARING_REBALANCE   waits for Joins, which are parked. Sync and Heartbeat get REBALANCE_IN_PROGRESS,
                          commits of the last generation pass.                 → COMPLETING, EMPTY
    COMPLETING_REBALANCE  the generation is decided; waits for the leader's Sync, parks the others'.
                          Heartbeat passes, commits get REBALANCE_IN_PROGRESS. → STABLE, PREPARING
    STABLE                every member has an assignment, which any Sync gets. Join of a new member, of
                          the leader, or with other metadata: back.            → PREPARING
    DEAD                  deleted. All requests get COORDINATOR_NOT_AVAILABLE.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings and bounds. The same group may be stepped with other rules at any time."""

    session_timeout_min_ms: int = 6_000  # group.min.session.timeout.ms
    session_timeout_max_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    new_member_join_timeout_ms: int = 300_000  # how long a new member's Join may be parked
    group_size_max: int = 1_000  # group.max.size; also the bound of member ids that no Join has used yet
    protocols_max: int = 32  # of one Join
    metadata_bytes_max: int = 256 << 10  # of one member: ids, protocols, metadata
    state_bytes_max: int = 1 << 20  # of all members and their assignments; the record is smaller


# --- events -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup. `fresh_id`: an unused member id, for a member that needs one."""

    token: Token
    member_id: MemberId
    fresh_id: MemberId
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1  # negative (v0): the session timeout
    instance_id: InstanceId | None = None
    client_id: str = ""
    client_host: str = ""
    needs_known_id: bool = False  # v4+, KIP-394: an empty member id gets MEMBER_ID_REQUIRED and a new id
    may_skip_assignment: bool = False  # v9+, KIP-814: a static leader may keep the assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup. Only the leader's `assignments` are used."""

    token: Token
    generation: Generation
    member_id: MemberId
    instance_id: InstanceId | None = None
    protocol_type: str | None = None  # v5+, KIP-559: checked if given
    protocol_name: str | None = None
    assignments: tuple[tuple[MemberId, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    token: Token
    generation: Generation
    member_id: MemberId
    instance_id: InstanceId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaver:
    """A static member may be named by its instance id alone, as administrators do (KIP-345)."""

    member_id: MemberId = NO_MEMBER_ID
    instance_id: InstanceId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """LeaveGroup; one leaver before v3."""

    token: Token
    leavers: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Asks whether this OffsetCommit may be written. It does not contain the offsets.

    `transactional`: a TxnOffsetCommit. Its offsets are pending until the transaction is over, so no state of a
    rebalance refuses it, and it is no heartbeat. The member is checked if the request has one.
    """

    token: Token
    generation: Generation = NO_GENERATION
    member_id: MemberId = NO_MEMBER_ID
    instance_id: InstanceId | None = None
    names_missing_groups: bool = False  # OffsetCommit v9+: GROUP_ID_NOT_FOUND, before ILLEGAL_GENERATION
    transactional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """DeleteGroups for this group."""

    token: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """The client of `token` has disconnected, or the request's deadline has passed."""

    token: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed."""


Event = Join | Sync | Heartbeat | Leave | Commit | Delete | Abandon | Tick


# --- state ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """`metadata`, for the chosen protocol, is None until the member is part of a generation."""

    member_id: MemberId
    instance_id: InstanceId | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    metadata: bytes | None = None
    assignment: bytes = NO_ASSIGNMENT
    # the fields below are not persisted
    joining: Token | None = None
    syncing: Token | None = None
    must_sync: bool = False  # it has its generation and has not sent a Sync
    session_deadline_ms: int | None = None  # None while a request is parked, except for a new member

    @property
    def is_new(self) -> bool:
        return self.metadata is None

    @property
    def is_parked(self) -> bool:
        return self.joining is not None or self.syncing is not None

    @property
    def bytes_held(self) -> int:
        names = (
            len(self.member_id) + len(self.instance_id or "") + len(self.client_id) + len(self.client_host)
        )
        return names + len(self.assignment) + protocol_bytes(self.protocols)


def protocol_bytes(protocols: tuple[Protocol, ...]) -> int:
    return sum([len(name) + len(metadata) for name, metadata in protocols])


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialDelay:
    """The first rebalance of an empty group ends after `initial_rebalance_delay_ms` without a Join (KIP-134)."""

    ends_ms: int  # at the latest
    member_added: bool = False  # since the delay was last extended


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """`Group()` is a group that does not exist. Mappings are never changed in place."""

    phase: Phase = Phase.EMPTY
    known: bool = False  # it has had a generation or a commit, so it is listed and can be deleted
    generation: Generation = Generation(0)
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: MemberId | None = None
    members: Mapping[MemberId, Member] = field(default_factory=dict)  # in the order of their Joins
    # the fields below are not persisted
    pending: Mapping[MemberId, int] = field(default_factory=dict)  # new member ids without a Join: expiry
    rebalance_deadline_ms: int | None = None  # of the joins (Preparing) or the syncs (Completing)
    sync_deadline_ms: int | None = None  # Stable: of the members that must still sync
    initial: InitialDelay | None = None

    @property
    def exists(self) -> bool:
        """Whether Kafka would find a group with this id."""
        if self.phase is Phase.DEAD:
            return False
        return self.known or self.phase is not Phase.EMPTY or bool(self.pending)


# --- replies ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    token: Token
    error: ErrorCode = ErrorCode.NONE
    generation: Generation = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: MemberId = NO_MEMBER_ID
    member_id: MemberId = NO_MEMBER_ID
    members: tuple[Member, ...] = ()  # in the leader's reply only
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    token: Token
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = NO_ASSIGNMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaverReply:
    member_id: MemberId
    instance_id: InstanceId | None
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveReply:
    token: Token
    error: ErrorCode = ErrorCode.NONE
    leavers: tuple[LeaverReply, ...] = ()  # in the order of the request


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReply:
    """The reply to Heartbeat, Commit and Delete. After NONE the shell writes the offsets and then acknowledges them, or
    deletes the offsets of the group, which is Dead."""

    token: Token
    error: ErrorCode = ErrorCode.NONE


Reply = JoinReply | SyncReply | LeaveReply | StatusReply


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The group after a step. `entered`: the phases that it entered, in order."""

    group: Group
    replies: tuple[Reply, ...] = ()
    entered: tuple[Phase, ...] = ()
