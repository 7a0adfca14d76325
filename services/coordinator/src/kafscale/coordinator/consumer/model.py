"""The events, the state and the replies of a consumer group: values only (KIP-848).

A group has two parts. `PersistedGroup` must survive the process (raft's HardState): the shell writes it before any
reply leaves. The rest of `Group` is not persisted: the known topics, the topics that regular expressions match, and the
members' deadlines. So a plain heartbeat moves a deadline, and `PersistedGroup` stays the same object.

Epochs, in Kafka's words. The *group epoch* counts changes of membership, subscription and topics.
The *target assignment epoch* is the group epoch for which `PersistedGroup.target` was computed. A *member
epoch* is the last target assignment epoch that the member has received. Members advance one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NewType

from kafscale.storage.keys import TopicId
from kafscale.wire.errors import ErrorCode

Token = int
"""Identifies one waiting request of the shell. The machine only echoes it."""
MemberId = NewType("MemberId", str)
Partitions = Mapping[TopicId, frozenset[int]]
"""Partitions by topic. It contains no topic without a partition."""
NOTHING: Partitions = {}

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member leaves temporarily. Its partitions stay reserved until its session ends."""
UNCHANGED = -1
"""RebalanceTimeoutMs: the value of the member's earlier heartbeat."""
MEMBER_TYPE_CONSUMER = 1
"""MemberType in ConsumerGroupDescribe v1: a member of this protocol (0 is a classic one)."""


class TopicInfo(NamedTuple):
    topic_id: TopicId
    partitions: int


Topics = Mapping[str, TopicInfo]
"""The topics that exist, by name. The shell shares one mapping among all groups."""


class Expression(NamedTuple):
    """A regular expression of a member. What it matches depends on what its member may describe.

    Without an authorizer `principal` and `client_host` are empty, so all members share the result.
    """

    text: str
    principal: str
    client_host: str


Matches = Mapping[Expression, frozenset[str]]
"""The existing topics that each expression matches and its member may describe."""
Sees = Callable[[Expression, frozenset[str]], frozenset[str]]
"""Of the topics that an expression matches, those that its member may describe."""


def sees_all(_: Expression, topics: frozenset[str]) -> frozenset[str]:
    """Without an authorizer."""
    return topics


class Assignor(Enum):
    """The server-side assignors. The values are their names in requests."""

    UNIFORM = "uniform"
    RANGE = "range"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings (Kafka's group.consumer.*) and bounds of one group."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    default_assignor: Assignor = Assignor.UNIFORM
    members_max: int = 1_000  # beyond it: GROUP_MAX_SIZE_REACHED
    rebalance_timeout_max_ms: int = 3_600_000  # a longer timeout is reduced to this
    topic_names_max: int = 1_000  # of one member; beyond this limit and the next two: INVALID_REQUEST
    text_bytes_max: int = 512  # member id, instance id, rack; a longer client id or host is truncated
    regex_bytes_max: int = 2_048


# --- events ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The fields of ConsumerGroupHeartbeat v0-1. None (and UNCHANGED): unchanged since the last heartbeat."""

    token: Token
    fresh_id: str  # created by the shell, for a member of v0 without an id
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED
    subscribed_names: tuple[str, ...] | None = None
    subscribed_regex: str | None = None  # since version 1
    server_assignor: str | None = None
    owned: Partitions | None = None  # the partitions that the client owns; sent when they change
    client_id: str = ""
    client_host: str = ""
    principal: str = ""  # empty without an authorizer
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Asks whether this OffsetCommit is allowed.

    `transactional`: a TxnOffsetCommit. The member is checked if the request has one, whatever the version is.
    """

    token: Token
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    version: int = 9
    transactional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Asks whether this OffsetFetch is allowed. `member_id` is None below v9 and for admin clients. An empty id is an
    unknown member, as in Kafka."""

    token: Token
    member_id: str | None = None
    member_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    topics: Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed: `next_deadline` is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """DeleteGroups."""

    token: Token


Event = Heartbeat | Commit | Fetch | TopicsChanged | Tick | Delete


# --- state -----------------------------------------------------------------------------------


class MemberState(Enum):
    """The progress of a member from its assignment to its target (Kafka's MemberState).

    STABLE                 it has received its whole target
    UNREVOKED_PARTITIONS   it must revoke partitions, and has not confirmed it
    UNRELEASED_PARTITIONS  it waits for partitions that other members still own
    """

    STABLE = "stable"
    UNREVOKED_PARTITIONS = "unrevoked_partitions"
    UNRELEASED_PARTITIONS = "unreleased_partitions"


class GroupState(Enum):
    """The states as Kafka prints them. DEAD: the group does not exist."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """No other member may have the partitions in `assigned` and `revoking`. A partition's owner epoch is the `epoch` of
    the one member that has it in either of them."""

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
    principal: str = ""  # who described the topics of `regex`; empty without an authorizer
    rebalance_timeout_ms: int = 0
    names: frozenset[str] = frozenset()
    regex: str | None = None  # None or "": no expression
    assignor: Assignor | None = None

    @property
    def expression(self) -> Expression | None:
        if not self.regex:
            return None
        return Expression(self.regex, self.principal, self.client_host if self.principal else "")

    def holds(self, topic_id: TopicId) -> frozenset[int]:
        return self.assigned.get(topic_id, frozenset()) | self.revoking.get(topic_id, frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistedGroup:
    """The state that must be written before a reply leaves. Epoch 0: the group does not exist and has no key."""

    group_id: str
    epoch: int = 0
    target_epoch: int = 0
    target: Mapping[MemberId, Partitions] = field(default_factory=dict)
    members: Mapping[MemberId, Member] = field(default_factory=dict)
    metadata_hash: bytes = b""  # of the subscribed topics at `epoch`


class Deadlines(NamedTuple):
    """Of one member, in monotonic ms."""

    session_ms: int
    rebalance_ms: int | None  # set only in UNREVOKED_PARTITIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    persisted: PersistedGroup
    topics: Topics = field(default_factory=dict)
    matches: Matches = field(default_factory=dict)
    deadlines: Mapping[MemberId, Deadlines] = field(default_factory=dict)
    due_ms: int | None = None  # no deadline is earlier; None: unknown


# --- replies ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    token: Token
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None  # None: unchanged since the last reply


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReply:
    """The reply to Commit, Fetch and Delete. NONE: the group allows the request, or is deleted once the new state is
    written. Then the shell deletes its offsets."""

    token: Token
    error: ErrorCode = ErrorCode.NONE


Reply = HeartbeatReply | StatusReply


@dataclass(frozen=True, slots=True)
class Transition:
    group: Group
    replies: tuple[Reply, ...] = ()
