"""The live groups of this instance, by slot: finds, creates, converts and drops them.

The laws:

- A group is here exactly while this instance owns its slot and has read its record. A request for another group gets
  NOT_COORDINATOR, or COORDINATOR_LOAD_IN_PROGRESS while the slot is being read.
- Answers from memory are given only while no other process can consider our lease expired.
- A group id has one type at a time. An empty group takes the type of the next member.
- If this version cannot read a group's record, it does not serve the group and does not change the record, because a
  newer version may own it. The other groups of the slot are served.
- A group is created only while etcd has room for new groups, and fewer than `groups_max` groups are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import structlog
from kafscale.coordinator.classic import model as classic
from kafscale.coordinator.classic.queries import state_of as classic_state
from kafscale.coordinator.consumer import model as consumer
from kafscale.coordinator.consumer.machine import state_of as consumer_state
from kafscale.coordinator.groups.actor import Actor, EtcdState, GroupFailed, GroupType, Shared
from kafscale.coordinator.groups.classic_type import ClassicGroupType
from kafscale.coordinator.groups.consumer_type import ConsumerGroupType, persisted_of
from kafscale.coordinator.groups.running_clock import RunningClock
from kafscale.coordinator.slots import Held, turns
from kafscale.runtime.committer import Committer
from kafscale.runtime.etcd_space import EtcdSpace, Use
from kafscale.storage.consumer_groups import StoredGroup, stored_groups
from kafscale.storage.etcd.client import KeyValue
from kafscale.storage.groups import NOT_EMPTY, ClassicGroup
from kafscale.storage.keys import Keyspace, SlotId
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.slots import slot_of
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

ClassicActor = Actor[classic.Group, classic.Event, Any]
ConsumerActor = Actor[consumer.Group, consumer.Event, Any]
AnyActor = Actor[Any, Any, Any]
AnyGroupType = GroupType[Any, Any, Any]
GROUP_ID_BYTES_MAX = 1_024
"""A longer id would not fit into the keys of offsets."""
GROUP_STATES = tuple(dict.fromkeys(state.value for state in (*classic.Phase, *consumer.GroupState)))
"""Every value of `Groups.state_of`."""
UNREADABLE = (UnreadableValue, ValueError)
"""ValueError: a number or a name that this version does not know, such as an assignor."""


class Groups:
    """See the module's laws. They are `Contents` of slots."""

    def __init__(
        self,
        *,
        keyspace: Keyspace,
        committer: Committer,
        clock: RunningClock,
        classic_type: ClassicGroupType,
        consumer_type: ConsumerGroupType,
        held: Callable[[SlotId], Held | None],
        fenced: Callable[[Held], None],
        space: EtcdSpace,
        groups_max: int,
    ) -> None:
        self._keyspace = keyspace
        self._clock = clock
        self._classic = classic_type
        self._consumer = consumer_type
        self._held = held
        self._space = space
        self._groups_max = groups_max
        self._actors: dict[SlotId, dict[str, AnyActor]] = {}
        self._unreadable: dict[SlotId, set[str]] = {}
        self._leftovers: dict[SlotId, set[str]] = {}  # groups without a group key, but with keys below it
        self.rebalances = 0
        self._shared = Shared(
            committer=committer,
            keyspace=keyspace,
            clock=clock,
            fenced=fenced,
            rebalanced=self._rebalanced,
            forget=self._forget,
        )

    # -- slots come and go -----------------------------------------------------------------------

    def prefix(self, slot_id: SlotId) -> bytes:
        return self._keyspace.groups_prefix(slot_id)

    def load(self, held: Held, kvs: Sequence[KeyValue]) -> Iterator[None]:
        self._actors[held.slot_id] = {}
        self._unreadable[held.slot_id] = set()
        self._leftovers[held.slot_id] = set()
        groups: dict[str, StoredGroup] = {}
        for keys in turns(kvs, lambda _: 0):  # the values are decoded later
            stored_groups(self._keyspace, keys, _not_a_group, into=groups)
            yield
        for some in turns(groups.items(), lambda found: found[1].bytes):
            for name, stored in some:
                self._load(held, name, stored)
            yield

    def _load(self, held: Held, name: str, stored: StoredGroup) -> None:
        if stored.record is None:
            self._leftovers[held.slot_id].add(name)
            return
        try:
            self._actors[held.slot_id][name] = self._restored(held, name, stored.record, stored)
        except UNREADABLE as error:
            self._unreadable[held.slot_id].add(name)
            log.error("group record unreadable", group=name, why=str(error))

    def _restored(self, held: Held, name: str, record: KeyValue, found: StoredGroup) -> AnyActor:
        whole, is_whole = found.assembled(), found.is_of_one_value
        now_ms = self._clock.now_ms()
        group_type: AnyGroupType
        stored: Any
        if isinstance(whole.state, ClassicGroup):
            group_type, stored = self._classic, whole.state
        else:
            group_type, stored = self._consumer, persisted_of(name, whole.state)
        group: Any = group_type.restored(stored, now_ms)
        is_old = is_whole and group_type is self._consumer
        topics_changed = group_type.durable(group) != stored
        lacks_empty_time = group_type.is_empty(group) and whole.empty_since_ms == NOT_EMPTY
        in_etcd = EtcdState(
            revision=record.mod_revision,
            stored=None if is_old else stored,
            needs_write=is_old or topics_changed or lacks_empty_time,
            has_leftovers=is_whole and bool(found.parts),
            empty_since_ms=whole.empty_since_ms,
        )
        return Actor(name, held, group_type, group, self._shared, in_etcd=in_etcd)

    def _new(self, name: str, group_type: AnyGroupType, group: Any) -> AnyActor:
        """An actor of a group that etcd does not have."""
        held = self.slot(name)
        in_etcd = EtcdState(has_leftovers=name in self._leftovers[held.slot_id])
        return Actor(name, held, group_type, group, self._shared, in_etcd=in_etcd)

    def lose(self, slot_id: SlotId) -> None:
        self._unreadable.pop(slot_id, None)
        self._leftovers.pop(slot_id, None)
        for actor in self._actors.pop(slot_id, {}).values():
            actor.end(ErrorCode.NOT_COORDINATOR)

    def _rebalanced(self) -> None:
        self.rebalances += 1

    def _forget(self, actor: AnyActor) -> None:
        actors = self._actors.get(actor.held.slot_id, {})
        if actors.get(actor.name) is not actor:
            return
        if actor.before is None:
            del actors[actor.name]
        else:  # no member joined: the group is still what its record says
            old = actor.before
            actors[actor.name] = Actor(
                old.name, old.held, old.type, old.group, self._shared, in_etcd=old.in_etcd
            )
        actor.end(ErrorCode.NOT_COORDINATOR)

    # -- groups ----------------------------------------------------------------------------------

    def slot(self, name: str) -> Held:
        """The claim of the group's slot. Raises `GroupFailed` if this instance does not coordinate the group."""
        if len(name.encode()) > GROUP_ID_BYTES_MAX:
            raise GroupFailed(ErrorCode.INVALID_GROUP_ID)
        held = self._held(slot_of(name))
        if held is None or not self._clock.is_fresh():
            raise GroupFailed(ErrorCode.NOT_COORDINATOR)
        if not held.loaded:
            raise GroupFailed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return held

    def find(self, name: str) -> AnyActor | None:
        """The group, or None if it does not exist. Raises `GroupFailed` if this instance does not coordinate it.

        COORDINATOR_NOT_AVAILABLE for a group that cannot be read: every client then waits and retries. Any other error
        would end consumers, although their group is intact and a newer version may serve it soon.
        """
        held = self.slot(name)
        if name in self._unreadable[held.slot_id]:
            raise GroupFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._actors[held.slot_id].get(name)

    def is_unreadable(self, name: str) -> bool:
        return name in self._unreadable.get(slot_of(name), ())

    def unreadable(self) -> Iterator[str]:
        for names in self._unreadable.values():
            yield from names

    def classic_group(self, name: str) -> ClassicActor:
        """The classic group for a member's request. If it does not exist, an empty one that is not kept.

        NOT_COORDINATOR while its slot is being read. Apache Kafka never answers COORDINATOR_LOAD_IN_PROGRESS to
        SyncGroup and Heartbeat, so clients do not know it there: Java's consumer ends at it in the answer to SyncGroup.
        """
        try:
            actor = self._find_named(name)
        except GroupFailed as failed:
            if failed.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise GroupFailed(ErrorCode.NOT_COORDINATOR) from failed
            raise
        if actor is not None and actor.type is self._classic:
            return actor
        return self._new(name, self._classic, classic.Group())

    def joined(self, name: str) -> ClassicActor:
        """The classic group for a JoinGroup; creates it if it does not exist.

        INCONSISTENT_GROUP_PROTOCOL while it has members of the other protocol.
        """
        actor = self._find_named(name)
        if actor is not None and actor.type is self._classic:
            return actor
        if actor is None:
            return self._new_classic(name)
        if not actor.type.is_empty(actor.group):
            raise GroupFailed(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return self._add(self._converted(actor, self._classic, classic.Group(known=True), needs_write=True))

    def committing(self, name: str) -> AnyActor:
        """The group for an OffsetCommit, of either type. If it does not exist, creates a classic one.

        The group with an empty id may have offsets, as in Kafka, but no members.
        """
        actor = self.find(name)
        return self._new_classic(name) if actor is None else actor

    def consumer_group(self, name: str) -> ConsumerActor:
        """The consumer group for a ConsumerGroupHeartbeat. GROUP_ID_NOT_FOUND while it has classic members."""
        actor = self._find_named(name)
        if actor is not None and actor.type is self._consumer:
            return actor
        fresh = self._consumer.fresh(name, self._clock.now_ms())
        if actor is None:
            return self._add_new(self._new(name, self._consumer, fresh))
        if not actor.type.is_empty(actor.group):
            raise GroupFailed(ErrorCode.GROUP_ID_NOT_FOUND)
        return self._add(self._converted(actor, self._consumer, fresh, needs_write=False))

    def _find_named(self, name: str) -> AnyActor | None:
        if not name:
            raise GroupFailed(ErrorCode.INVALID_GROUP_ID)
        return self.find(name)

    def _new_classic(self, name: str) -> ClassicActor:
        return self._add_new(self._new(name, self._classic, classic.Group()))

    def _add_new(self, actor: AnyActor) -> AnyActor:
        """COORDINATOR_NOT_AVAILABLE if there are too many groups, or etcd is too full: clients retry."""
        if sum(map(len, self._actors.values())) >= self._groups_max:
            raise GroupFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.need_room(Use.NEW, len(actor.name.encode()))
        return self._add(actor)

    def need_room(self, use: Use, size: int, keys: int = 1) -> None:
        """Raises `GroupFailed` while etcd is too full for `size` bytes in `keys` keys."""
        if not self._space.admits(use, size, keys):
            raise GroupFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _converted(
        self, actor: AnyActor, group_type: AnyGroupType, group: Any, *, needs_write: bool
    ) -> AnyActor:
        """An empty group of the other type, which replaces the record with its first write.

        COORDINATOR_LOAD_IN_PROGRESS while the old group is busy: both types' own errors would end a consumer.
        """
        if not actor.idle:
            raise GroupFailed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        in_etcd = replace(actor.in_etcd, stored=None, needs_write=needs_write)
        before = actor if in_etcd.revision else None
        return Actor(actor.name, actor.held, group_type, group, self._shared, in_etcd=in_etcd, before=before)

    def _add(self, actor: AnyActor) -> AnyActor:
        actors = self._actors[actor.held.slot_id]
        before = actors.get(actor.name)
        if before is not None:
            before.end(ErrorCode.NOT_COORDINATOR)
        actors[actor.name] = actor
        return actor

    def all(self) -> Iterator[AnyActor]:
        for actors in self._actors.values():
            yield from actors.values()

    def state_of(self, actor: AnyActor) -> str:
        """The state of a group of either type, as Kafka prints it."""
        if actor.type is self._classic:
            return classic_state(actor.group)
        return consumer_state(actor.group.persisted).value

    @property
    def unreadable_count(self) -> int:
        return sum(map(len, self._unreadable.values()))

    def in_slot(self, slot_id: SlotId) -> list[AnyActor]:
        return list(self._actors.get(slot_id, {}).values())

    def is_classic(self, actor: AnyActor) -> bool:
        return actor.type is self._classic

    def empty_since_ms(self, actor: AnyActor) -> int | None:
        """Wall time; None while the group has members, is busy, or was never written."""
        in_etcd = actor.in_etcd
        if not in_etcd.revision or not actor.idle or not actor.type.is_empty(actor.group):
            return None
        return None if in_etcd.empty_since_ms == NOT_EMPTY else in_etcd.empty_since_ms

    async def delete(self, actor: AnyActor) -> ErrorCode:
        """DeleteGroups: NONE, NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND. The caller deletes the group's offsets."""
        if actor.type is self._classic:
            reply = await actor.ask(lambda token: classic.Delete(token=classic.Token(token)))
        else:
            reply = await actor.ask(lambda token: consumer.Delete(token=token))
        error: ErrorCode = reply.error
        return error

    def topics_changed(self, topics: consumer.Topics) -> None:
        for actor in list(self.all()):
            if actor.type is self._consumer:
                actor.tell(consumer.TopicsChanged(topics=topics))


def _not_a_group(kv: KeyValue, error: Exception) -> None:
    log.error("unknown group key", key=repr(kv.key), why=str(error))
