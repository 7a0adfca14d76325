"""What comes into a consumer group, what it holds, what goes out: values only (KIP-848).

A group is two things. `PersistedGroup` is what must survive the process (raft's HardState): the shell writes
it before any reply leaves. The rest of `Group` is soft: the topics as they are known here, what the
expressions match among them, and the members' deadlines. So a plain heartbeat moves a deadline, and
`PersistedGroup` stays the same object.

Epochs, in Kafka's words. The *group epoch* counts changes of membership, subscription and topics.
The *target assignment epoch* is the group epoch for which `PersistedGroup.target` was computed. A *member
epoch* is the target assignment epoch that the member has been told of; members get there one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NewType

from kafscale.storage.keys import TopicId
from kafscale.wire.errors import ErrorCode

Token = int
"""Names one waiting request of the shell; the machine only echoes it."""
MemberId = NewType("MemberId", str)
Partitions = Mapping[TopicId, frozenset[int]]
"""Some partitions, by topic. No topic stands in it without a partition."""
NOTHING: Partitions = {}

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member goes and will be back: its partitions stay reserved while its session lasts."""
UNCHANGED = -1
"""RebalanceTimeoutMs: as the member said before."""
MEMBER_TYPE_CONSUMER = 1
"""ConsumerGroupDescribe 1, MemberType: a member by this protocol (0 would be a classic one)."""


class TopicInfo(NamedTuple):
    topic_id: TopicId
    partitions: int


Topics = Mapping[str, TopicInfo]
"""The topics that exist, by name. The shell shares one mapping among all groups."""


class Assignor(Enum):
    """The server-side assignors, by the names that clients ask for them."""

    UNIFORM = "uniform"
    RANGE = "range"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings (Kafka's group.consumer.*) and bounds of one group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    default_assignor: Assignor = Assignor.UNIFORM
    members_max: int = 1_000  # GROUP_MAX_SIZE_REACHED past it
    rebalance_timeout_max_ms: int = 3_600_000  # a longer one is cut to this
    topic_names_max: int = 1_000  # of one member; this and the following: INVALID_REQUEST past it
    text_bytes_max: int = 512  # member id, instance id, rack; what is only shown is cut
    regex_bytes_max: int = 2_048


# --- events ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """ConsumerGroupHeartbeat 0-1, one to one. None (and UNCHANGED): not said, as before."""

    token: Token
    fresh_id: str  # drawn by the shell: the id of a member of version 0 that brings none
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED
    subscribed_names: tuple[str, ...] | None = None
    subscribed_regex: str | None = None  # since version 1
    server_assignor: str | None = None
    owned: Partitions | None = None  # what the client holds, said when it changed
    client_id: str = ""
    client_host: str = ""
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """May this OffsetCommit or TxnOffsetCommit (`transactional`) pass? `version` is OffsetCommit's."""

    token: Token
    member_id: str
    member_epoch: int
    version: int = 9
    transactional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """May this OffsetFetch pass? Below version 9, and for admin clients, `member_id` is None; an empty one is
    a member's that nobody knows, as in Kafka."""

    token: Token
    member_id: str | None = None
    member_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    topics: Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Nothing but time passed: `next_deadline` has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """DeleteGroups."""

    token: Token


Event = Heartbeat | Commit | Fetch | TopicsChanged | Tick | Delete


# --- state -----------------------------------------------------------------------------------


class MemberState(Enum):
    """Where a member is on the way from its assignment to its target (Kafka's MemberState).

    STABLE                 it has been told all of its target
    UNREVOKED_PARTITIONS   it has been told to give partitions back, and has not said that it did
    UNRELEASED_PARTITIONS  it waits for partitions that others still hold
    """

    STABLE = "stable"
    UNREVOKED_PARTITIONS = "unrevoked_partitions"
    UNRELEASED_PARTITIONS = "unreleased_partitions"


class GroupState(Enum):
    """As Kafka prints them. DEAD: there is no such group, not yet or not any more."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """`assigned` and `revoking` together are what others may not have: the epoch at which a
    partition is owned is the `epoch` of the one member that has it in either of them."""

    member_id: MemberId
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    revoking: Partitions = field(default_factory=dict)  # Kafka: partitions pending revocation
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 0
    names: frozenset[str] = frozenset()
    regex: str | None = None  # None or "": no expression
    assignor: Assignor | None = None

    def holds(self, topic_id: TopicId) -> frozenset[int]:
        return self.assigned.get(topic_id, frozenset()) | self.revoking.get(topic_id, frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistedGroup:
    """What must be durable before a reply leaves. Epoch 0: there is no such group, and no key."""

    group_id: str
    epoch: int = 0
    target_epoch: int = 0
    target: Mapping[MemberId, Partitions] = field(default_factory=dict)
    members: Mapping[MemberId, Member] = field(default_factory=dict)
    metadata_hash: bytes = b""  # of the subscribed topics that `epoch` has seen


class Deadlines(NamedTuple):
    """Of one member, in monotonic ms."""

    session_ms: int
    rebalance_ms: int | None  # set exactly in UNREVOKED_PARTITIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    persisted: PersistedGroup
    topics: Topics = field(default_factory=dict)
    matches: Mapping[str, frozenset[str]] = field(default_factory=dict)  # expression -> existing topics
    deadlines: Mapping[MemberId, Deadlines] = field(default_factory=dict)
    due_ms: int | None = None  # no deadline is before it; None: not known


# --- replies ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    token: Token
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None  # None: as the member was told before


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReply:
    """To Commit and Fetch. NONE: as far as the group is concerned, it may pass."""

    token: Token
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReply:
    """NONE: the group is gone once the new state is durable; its offsets are the shell's to delete."""

    token: Token
    error: ErrorCode = ErrorCode.NONE


Reply = HeartbeatReply | CheckReply | DeleteReply


@dataclass(frozen=True, slots=True)
class Transition:
    group: Group
    replies: tuple[Reply, ...] = ()
