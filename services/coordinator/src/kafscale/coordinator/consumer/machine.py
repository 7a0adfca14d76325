"""A consumer group by KIP-848: `step`, `next_deadline`, `durable`, `restore`. Pure: no clock, no chance.

The laws (tests/consumer):

- No two members own a partition at the same time, as far as the replies and heartbeats show.
- A member's epoch never falls. A heartbeat with a wrong epoch changes nothing and fails.
- Without heartbeats a group becomes Empty. With unchanged heartbeats it becomes Stable, and then a heartbeat changes
  no persisted state.
- `restore(durable(g))` behaves as g.

A step applies the event, then expires what is due. The group epoch rises at once, and the next heartbeat computes the
target for it (until then the group is ASSIGNING, as in Kafka). So 100 members that leave together cost one
assignment. The first member makes epoch 1, as in KIP-848. Kafka 4.3 starts group epochs at 1, so its first answer is
2. Clients only echo the value, so they see no difference.

The shell may release the reply to a `Heartbeat` only after `durable` of the new group is written. If that fails, it
keeps the old group and answers COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import assert_never

from kafscale.coordinator.consumer import subscriptions
from kafscale.coordinator.consumer.assignors import Candidate, Target, assign
from kafscale.coordinator.consumer.membership import bumped, fence, find, named, static_leave
from kafscale.coordinator.consumer.model import (
    JOIN_EPOCH,
    NOTHING,
    STATIC_LEAVE_EPOCH,
    UNCHANGED,
    Assignor,
    Commit,
    Deadlines,
    Delete,
    Event,
    Fetch,
    Group,
    GroupState,
    Heartbeat,
    HeartbeatReply,
    Member,
    MemberId,
    MemberState,
    PersistedGroup,
    Rules,
    Sees,
    StatusReply,
    Tick,
    Topics,
    TopicsChanged,
    Transition,
    sees_all,
)
from kafscale.coordinator.consumer.reconcile import is_reconciled, reconcile
from kafscale.coordinator.consumer.validation import Refusal, bad_expression, cut, refusal_of
from kafscale.storage.keys import TopicId
from kafscale.wire.errors import ErrorCode

MEMBER_EPOCH_COMMIT_VERSION = 9
"""The first OffsetCommit that carries a member epoch."""
NO_PRINCIPAL = "?"
"""Of a member whose principal is too long to be stored: no ACL names it, as it has no type."""


def step(group: Group, event: Event, now_ms: int, rules: Rules, sees: Sees = sees_all) -> Transition:
    """Applies one event. A client's mistake is a reply, never an exception."""
    match event:
        case Heartbeat():
            done = _heartbeat(group, event, now_ms, rules, sees)
        case Commit():
            done = Transition(group, (StatusReply(token=event.token, error=_commit_error(group, event)),))
        case Fetch():
            done = Transition(group, (StatusReply(token=event.token, error=_fetch_error(group, event)),))
        case TopicsChanged():
            done = Transition(_with_topics(group, event.topics, sees))
        case Tick():
            done = Transition(group)
        case Delete():
            done = _delete(group, event)
        case _:
            assert_never(event)
    return replace(done, group=_without_expired(done.group, now_ms))


def next_deadline(group: Group) -> int | None:
    """When `Tick` is due, in monotonic ms. None: never.

    It may be earlier than every deadline: a heartbeat moves its member's deadline, and to search the earliest of 1,000
    deadlines each time would cost more than the rest of the step.
    """
    return group.due_ms if group.deadlines and group.due_ms is not None else _earliest(group)


def durable(group: Group) -> PersistedGroup:
    """The state that must survive. It stays the same object until it changes."""
    return group.persisted


def restore(
    persisted: PersistedGroup, now_ms: int, topics: Topics, rules: Rules, sees: Sees = sees_all
) -> Group:
    """The group with full sessions, and with a new epoch if its topics have changed.

    `restore(PersistedGroup(group_id=…), …)` is a group that does not exist yet.
    """
    deadlines = {member.member_id: _deadlines(member, now_ms, rules) for member in persisted.members.values()}
    return _with_topics(Group(persisted=persisted, deadlines=deadlines), topics, sees)


def state_of(persisted: PersistedGroup) -> GroupState:
    if persisted.epoch == 0:
        return GroupState.DEAD
    if not persisted.members:
        return GroupState.EMPTY
    if persisted.epoch > persisted.target_epoch:
        return GroupState.ASSIGNING
    if all(is_reconciled(member, persisted.target_epoch) for member in persisted.members.values()):
        return GroupState.STABLE
    return GroupState.RECONCILING


# --- heartbeats --------------------------------------------------------------------------------


def _heartbeat(group: Group, request: Heartbeat, now_ms: int, rules: Rules, sees: Sees) -> Transition:
    refused = refusal_of(group.persisted.group_id, request, rules)
    if refused is not None:
        return _refuse(group, request, refused)
    if request.member_epoch < JOIN_EPOCH:
        return _leave(group, request)
    found = find(group, request, rules)
    if isinstance(found, Refusal):
        return _refuse(group, request, found)
    said = _with_metadata(found.member, request, rules)
    new_expression = said.regex if said.regex != found.member.regex else None
    refused = bad_expression(new_expression)
    if refused is not None:
        return _refuse(group, request, refused)
    group = _with_member(found.group, said)
    if found.makes_epoch or _changes_subscription(found.member, said):
        members = group.persisted.members.values()
        matches = subscriptions.all_matches(members, group.topics, sees, group.matches)
        group = bumped(replace(group, matches=matches))
    group = _with_target(group, rules)
    member = _reconciled(group, said, request)
    group = _with_member(group, member)
    # The rebalance timeout restarts each time a member must revoke partitions, and only then.
    before = group.deadlines.get(member.member_id)
    deadlines = _deadlines(member, now_ms, rules)
    if before is not None and before.rebalance_ms is not None and member.revoking == found.member.revoking:
        deadlines = deadlines._replace(rebalance_ms=before.rebalance_ms)
    due_ms = None if group.due_ms is None else min(group.due_ms, _first(deadlines))
    group = replace(group, deadlines={**group.deadlines, member.member_id: deadlines}, due_ms=due_ms)
    return Transition(group, (_answer(request, found.member, member, rules),))


def _refuse(group: Group, request: Heartbeat, refusal: Refusal) -> Transition:
    reply = HeartbeatReply(token=request.token, error=refusal.error, message=refusal.message)
    return Transition(group, (reply,))


def _leave(group: Group, request: Heartbeat) -> Transition:
    member = named(group, request)
    if isinstance(member, Refusal):
        return _refuse(group, request, member)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        group = static_leave(group, member)
    else:
        group = fence(group, {member.member_id})
    reply = HeartbeatReply(token=request.token, member_id=member.member_id, member_epoch=request.member_epoch)
    return Transition(group, (reply,))


def _with_metadata(member: Member, request: Heartbeat, rules: Rules) -> Member:
    """The member with the heartbeat's metadata; the same object if nothing changed."""
    names, regex, timeout_ms = (
        request.subscribed_names,
        request.subscribed_regex,
        request.rebalance_timeout_ms,
    )
    said = replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=cut(request.client_id, rules.text_bytes_max),
        client_host=cut(request.client_host, rules.text_bytes_max),
        principal=_kept_principal(request.principal, rules),
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if timeout_ms == UNCHANGED
        else min(timeout_ms, rules.rebalance_timeout_max_ms),
        names=member.names if names is None else frozenset(names),
        regex=member.regex if regex is None else regex,
        assignor=member.assignor if request.server_assignor is None else Assignor(request.server_assignor),
    )
    return member if said == member else said


def _kept_principal(principal: str, rules: Rules) -> str:
    """A cut name would be another principal's. Without a name, an expression matches what everybody may describe."""
    return principal if len(principal.encode(errors="replace")) <= rules.text_bytes_max else NO_PRINCIPAL


def _changes_subscription(before: Member, said: Member) -> bool:
    return before.names != said.names or before.expression != said.expression


def _with_target(group: Group, rules: Rules) -> Group:
    """Computes the target assignment, unless it has the group's epoch already."""
    persisted = group.persisted
    if persisted.target_epoch == persisted.epoch:
        return group
    subscribed = subscriptions.topic_ids_by_member(group)
    wanted = frozenset().union(*subscribed.values())
    sizes = {topic_id: size for topic_id, size in group.topics.values() if topic_id in wanted}
    candidates = {
        member_id: Candidate(
            instance_id=persisted.members[member_id].instance_id,
            subscribed=topic_ids,
            target=persisted.target.get(member_id, NOTHING),
        )
        for member_id, topic_ids in subscribed.items()
    }
    target: Target = assign(preferred_assignor(persisted, rules), candidates, sizes)
    return replace(group, persisted=replace(persisted, target=target, target_epoch=persisted.epoch))


def preferred_assignor(persisted: PersistedGroup, rules: Rules) -> Assignor:
    """The assignor that most members request. In a tie it is the default, then the first by name."""
    votes = Counter(member.assignor for member in persisted.members.values() if member.assignor is not None)
    default = rules.default_assignor
    return min(votes, key=lambda one: (-votes[one], one is not default, one.value), default=default)


def _reconciled(group: Group, member: Member, request: Heartbeat) -> Member:
    def held_by_others(topic_id: TopicId, wanted: frozenset[int]) -> frozenset[int]:
        others = (other for other in group.persisted.members.values() if other.member_id != member.member_id)
        return wanted & frozenset().union(*(other.holds(topic_id) for other in others))

    target = group.persisted.target.get(member.member_id, NOTHING)
    return reconcile(member, group.persisted.target_epoch, target, held_by_others, request.owned)


def _answer(request: Heartbeat, before: Member, member: Member, rules: Rules) -> HeartbeatReply:
    """Sends the assignment if it changed, if the member sent a full heartbeat, or if its last response was lost."""
    is_full_heartbeat = (
        request.rebalance_timeout_ms != UNCHANGED
        and (request.subscribed_names is not None or request.subscribed_regex is not None)
        and request.owned is not None
    )
    behind = request.member_epoch != before.epoch
    includes_assignment = is_full_heartbeat or behind or before.assigned != member.assigned
    return HeartbeatReply(
        token=request.token,
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=rules.heartbeat_interval_ms,
        assignment=member.assigned if includes_assignment else None,
    )


# --- checks, topics, deletion --------------------------------------------------------------------


def _commit_error(group: Group, request: Commit) -> ErrorCode:
    persisted = group.persisted
    if request.member_epoch < 0 and not persisted.members:
        return ErrorCode.NONE  # an admin client, or a consumer without a group
    if request.transactional:
        return _transactional_error(persisted, request)
    if persisted.epoch == 0:
        return ErrorCode.GROUP_ID_NOT_FOUND
    error = _epoch_error(persisted, request.member_id, request.member_epoch)
    if error is ErrorCode.UNKNOWN_MEMBER_ID or request.version >= MEMBER_EPOCH_COMMIT_VERSION:
        return error
    return ErrorCode.UNSUPPORTED_VERSION


def _transactional_error(persisted: PersistedGroup, request: Commit) -> ErrorCode:
    """Kafka's errors of a TxnOffsetCommit, in the words of the classic protocol."""
    if persisted.epoch == 0:
        return ErrorCode.ILLEGAL_GENERATION
    if request.member_epoch < 0 and not request.member_id and request.instance_id is None:
        return ErrorCode.NONE  # a producer that knows nothing of the group's members (before KIP-447)
    error = _epoch_error(persisted, request.member_id, request.member_epoch)
    return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error


def _fetch_error(group: Group, request: Fetch) -> ErrorCode:
    if request.member_id is None and request.member_epoch < 0:
        return ErrorCode.NONE
    if group.persisted.epoch == 0:
        return ErrorCode.NONE  # a group that does not exist has no offsets, which is not an error
    return _epoch_error(group.persisted, request.member_id or "", request.member_epoch)


def _epoch_error(persisted: PersistedGroup, member_id: str, member_epoch: int) -> ErrorCode:
    member = persisted.members.get(MemberId(member_id))
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member.epoch == member_epoch else ErrorCode.STALE_MEMBER_EPOCH


def _with_topics(group: Group, topics: Topics, sees: Sees) -> Group:
    """The group with these topics, and with a new epoch if a subscribed topic changed."""
    matches = subscriptions.all_matches(group.persisted.members.values(), topics, sees)
    group = replace(group, topics=topics, matches=matches)
    if group.persisted.members and subscriptions.metadata_hash(group) != group.persisted.metadata_hash:
        group = bumped(group)
    return group


def _delete(group: Group, request: Delete) -> Transition:
    match state_of(group.persisted):
        case GroupState.DEAD:
            return Transition(group, (StatusReply(token=request.token, error=ErrorCode.GROUP_ID_NOT_FOUND),))
        case GroupState.EMPTY:
            gone = replace(group, persisted=PersistedGroup(group_id=group.persisted.group_id), matches={})
            return Transition(gone, (StatusReply(token=request.token),))
        case GroupState.ASSIGNING | GroupState.RECONCILING | GroupState.STABLE:
            return Transition(group, (StatusReply(token=request.token, error=ErrorCode.NON_EMPTY_GROUP),))


# --- time ----------------------------------------------------------------------------------------


def _deadlines(member: Member, now_ms: int, rules: Rules) -> Deadlines:
    revokes = member.state is MemberState.UNREVOKED_PARTITIONS
    rebalance_ms = now_ms + member.rebalance_timeout_ms if revokes else None
    return Deadlines(now_ms + rules.session_timeout_ms, rebalance_ms)


def _first(deadlines: Deadlines) -> int:
    if deadlines.rebalance_ms is None:
        return deadlines.session_ms
    return min(deadlines.session_ms, deadlines.rebalance_ms)


def _without_expired(group: Group, now_ms: int) -> Group:
    """Removes the members whose session or rebalance timeout has passed."""
    if group.due_ms is not None and now_ms < group.due_ms:
        return group
    gone = {member_id for member_id, due in group.deadlines.items() if _first(due) <= now_ms}
    group = fence(group, gone)
    due_ms = _earliest(group)
    return group if due_ms == group.due_ms else replace(group, due_ms=due_ms)


def _earliest(group: Group) -> int | None:
    return min((_first(deadlines) for deadlines in group.deadlines.values()), default=None)


def _with_member(group: Group, member: Member) -> Group:
    members = group.persisted.members
    if members.get(member.member_id) is member:
        return group
    return replace(group, persisted=replace(group.persisted, members={**members, member.member_id: member}))
