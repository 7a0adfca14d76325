"""The classic group type: its machine as the actor drives it, and its record in etcd, which is one value. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.coordinator.classic.machine import durable, must_save, next_deadline, restore, step
from kafscale.coordinator.classic.model import (
    Abandon,
    Event,
    Group,
    Reply,
    Rules,
    Tick,
    Token,
)
from kafscale.coordinator.groups.group_txns import GroupChange
from kafscale.storage.groups import ClassicGroup, GroupRecord, encode_group


class ClassicGroupType:
    """`GroupType[Group, Event, ClassicGroup | None]`."""

    next_deadline = staticmethod(next_deadline)
    must_save = staticmethod(must_save)
    durable = staticmethod(durable)

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def restored(self, persisted: ClassicGroup | None, now_ms: int) -> Group:
        return Group() if persisted is None else restore(persisted, now_ms)

    def step(self, group: Group, event: Event, now_ms: int) -> tuple[Group, Sequence[Reply]]:
        done = step(group, event, now_ms, self._rules)
        return done.group, done.replies

    def parts_changed(self, stored: ClassicGroup | None, group: Group) -> int:
        return 0

    def change(
        self, name: str, stored: ClassicGroup | None, group: Group, empty_since_ms: int
    ) -> GroupChange:
        persisted = durable(group)
        if persisted is None:
            return GroupChange(record=None)
        state = GroupRecord(group=name, state=persisted, empty_since_ms=empty_since_ms)
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
