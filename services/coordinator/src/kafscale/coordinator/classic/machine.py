"""The classic group as a function: step · next_deadline · durable · restore.

The laws: every request is answered exactly once; every rebalance ends; the generation never falls; what a
reply promises is in `durable` of the same transition. The shell keeps the order: write `durable(group)` if it
changed (`must_save`), release the replies, arm one timer at `next_deadline`.
"""

from __future__ import annotations

from typing import assert_never

from kafscale.coordinator.classic.join import join
from kafscale.coordinator.classic.model import (
    Abandon,
    Commit,
    Delete,
    Event,
    Group,
    Heartbeat,
    Join,
    Leave,
    Phase,
    Rules,
    Sync,
    Tick,
    Transition,
)
from kafscale.coordinator.classic.persisted import durable, must_save, restore
from kafscale.coordinator.classic.rebalance import expire, settle
from kafscale.coordinator.classic.requests import abandon, commit, delete, heartbeat, leave, refuse
from kafscale.coordinator.classic.sync import sync
from kafscale.coordinator.classic.working_group import WorkingGroup

__all__ = ["durable", "must_save", "next_deadline", "restore", "step"]


def step(group: Group, event: Event, now_ms: int, rules: Rules) -> Transition:
    """Applies the event, then expires what is due, then ends a complete rebalance. A client's mistake is a reply."""
    working = WorkingGroup.begin(group, now_ms, rules)
    if working.phase is Phase.DEAD:
        refuse(working, event)
    else:
        _apply(working, event)
        expire(working)
        settle(working)
    return working.finish()


def next_deadline(group: Group) -> int | None:
    """When to call `step(…, Tick(), …)` next. After a step it is in the future."""
    deadlines = [m.session_deadline_ms for m in group.members.values()]
    deadlines += [*group.pending.values(), group.rebalance_deadline_ms, group.sync_deadline_ms]
    return min([due_ms for due_ms in deadlines if due_ms is not None], default=None)


def _apply(working: WorkingGroup, event: Event) -> None:
    match event:
        case Join():
            join(working, event)
        case Sync():
            sync(working, event)
        case Heartbeat():
            heartbeat(working, event)
        case Leave():
            leave(working, event)
        case Commit():
            commit(working, event)
        case Delete():
            delete(working, event)
        case Abandon():
            abandon(working, event)
        case Tick():
            pass
        case _:
            assert_never(event)
