"""Mistakes to plant, one at a time: those of the model that lie in the coordinator and in the group, and a few of ours.

A flaw replaces one function of the real modules, or is a world whose processes make one mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Final

from kafscale.coordinator.groups import pending
from kafscale.coordinator.groups.pending import Change, Pending, Place
from kafscale.coordinator.transactions import machine, requests
from kafscale.coordinator.transactions.model import EndTxn, InitProducerId
from kafscale.coordinator.transactions.requests import Case, Judgement
from kafscale.storage.etcd.client import KeyValue, Put, Txn
from kafscale.storage.groups import encode_committed
from kafscale.storage.transactions import (
    ClosingTransaction,
    Participants,
    PendingOffset,
    TransactionState,
)
from kafscale.wire.errors import ErrorCode
from transaction_parts import SETTINGS, Coordinator, Setting
from transaction_world import World


@dataclass(frozen=True)
class Flaw:
    """`instead`: for a module or a class and a name, what is there instead. `settings` and `more`: where the search
    looks."""

    instead: tuple[tuple[ModuleType | type, str, object], ...] = ()
    world: type[World] = World
    settings: Sequence[Setting] = SETTINGS
    more: Mapping[str, float] = field(default_factory=dict)


# --- the protocol ---------------------------------------------------------------------------------


class Unfenced(Coordinator):
    fences = False


class Hasty(Coordinator):
    replies_early = True


class NoSlotFence(World):
    coordinator = Unfenced


class ReplyBeforeWrite(World):
    coordinator = Hasty


class EndBeforeDecision(World):
    ends_before_the_decision = True


_end_present, _judge_init, _put, _end = requests._end_present, requests.judge_init, pending.put, pending.end


def close_twice(case: Case, state: TransactionState, request: EndTxn) -> Judgement:
    return _end_present(case, replace(state, closing=None), request)


def forget_closing(state: TransactionState, ended: Participants) -> TransactionState:
    return replace(state, closing=None) if ended else state


def init_keeps_epoch(case: Case, request: InitProducerId) -> Judgement:
    done = _judge_init(case, request)
    if done.answer is None or done.answer.error or case.state is None or done.state is None:
        return done
    if case.state.current is not None or done.state.producer_id != case.state.producer_id:
        return done
    return requests._producer_is(replace(done.state, epoch=case.state.epoch), request.token)


def init_drops_current(case: Case, request: InitProducerId) -> Judgement:
    if case.state is not None:
        case = replace(case, state=replace(case.state, current=None))
    return _judge_init(case, request)


def ended_is_not_told(closing: ClosingTransaction | None, some: Participants) -> None:
    return None


def overlap_in_one_epoch(closing: ClosingTransaction) -> bool:
    return True


def fence_keeps_epoch(case: Case, state: TransactionState, *, last_epoch: int) -> TransactionState:
    return requests.decided(case, state, commit=False, bumped=False)


def old_end_txn(request: EndTxn, began_ms: int | None) -> bool:
    return False


def numbers_repeat(state: TransactionState, participants: Participants, wall_ms: int) -> TransactionState:
    if state.current is None:
        return replace(state, number=max(state.number, 1), started_ms=wall_ms, current=participants)
    return replace(state, current=state.current | participants)


# --- the group ------------------------------------------------------------------------------------


def put_after_end(held: Pending, *given: object) -> Change | ErrorCode:
    return _put(replace(held, crossed=0), *given)  # type: ignore[arg-type]


def whole_revision(held: Pending) -> list[PendingOffset]:
    return list(() if held.value is None else held.value.offsets)


def overwrites(place: Place, each: PendingOffset) -> Txn:
    return Txn(success=(Put(place.committed(each.where), encode_committed(each.offset)),))


def drops_before_moving(held: Pending, number: int, *, commit: bool) -> Change | None:
    """`cp` goes first, and the offsets would be moved after it."""
    return _end(held, number, commit=False)


TV1, TV2 = SETTINGS[:1], SETTINGS[1:]


def since_is_lost(place: Place, kv: KeyValue) -> Pending:
    held = _loaded(place, kv)
    assert held.value is not None
    offsets = tuple(replace(each, since=0) for each in held.value.offsets)
    return replace(held, value=replace(held.value, offsets=offsets))


_loaded = pending.loaded
PROTOCOL: Final[Mapping[str, Flaw]] = {
    "verify_from_memory": Flaw(
        ((machine, "NEEDS_NO_PROOF", frozenset(ErrorCode)),),
        more={"coordinator_moves": 3, "timeout_passes": 5},
    ),
    "no_slot_fence": Flaw(world=NoSlotFence),
    "close_twice": Flaw(((requests, "_end_present", close_twice),), settings=TV2, more={"end_arrives": 0.3}),
    "forget_closing": Flaw(((machine, "without_ended", forget_closing),)),
    "old_end_txn": Flaw(((requests, "is_older", old_end_txn),), settings=TV1, more={"late_end_txn": 5}),
    "init_keeps_epoch": Flaw(((requests, "judge_init", init_keeps_epoch),)),
    "init_drops": Flaw(((requests, "judge_init", init_drops_current),)),
    "end_before_decision": Flaw(world=EndBeforeDecision),
    "no_settle": Flaw(
        ((requests, "_still_awaits", ended_is_not_told),),
        settings=SETTINGS[-1:],
        more={"line_moves": 0.1, "timeout_passes": 0, "takeover": 0},
    ),
    "overlap_in_one_epoch": Flaw(((requests, "may_begin_beside", overlap_in_one_epoch),), settings=TV1),
    "fence_keeps_epoch": Flaw(
        ((requests, "aborted_by_fence", fence_keeps_epoch), (machine, "aborted_by_fence", fence_keeps_epoch)),
        settings=TV2,
    ),
}
"""By the model's names."""

GROUP: Final[Mapping[str, Flaw]] = {
    "put_after_end": Flaw(((pending, "put", put_after_end),)),
    "whole_revision": Flaw(((pending, "_kept", whole_revision),)),
    "overwrites": Flaw(((pending, "_move", overwrites),)),
    "cp_first": Flaw(((pending, "end", drops_before_moving),)),
}

OWN: Final[Mapping[str, Flaw]] = {
    "reply_before_write": Flaw(world=ReplyBeforeWrite),
    "parked_is_forgotten": Flaw(((machine._Working, "judge_parked", lambda working: None),), settings=TV1),
    "since_is_lost_at_a_load": Flaw(
        ((pending, "loaded", since_is_lost),), more={"line_moves": 5, "plain_commit": 3, "timeout_passes": 0}
    ),
    "numbers_repeat": Flaw(((requests, "joined", numbers_repeat),)),
    "last_epoch_is_exceeded": Flaw(((requests, "LAST_EPOCH", 1 << 20),)),
}
FLAWS: Final = {**PROTOCOL, **GROUP, **OWN}
