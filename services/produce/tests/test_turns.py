"""Turns of partitions that flush to a store that bills nothing: the bound holds, and nobody is stopped for long."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from kafscale.produce.pump import Pump
from kafscale.produce.turns import AT_ONCE_MAX, TURN_MS_MAX, Turns
from kafscale.runtime.clock import ManualClock


class Wisher:
    """As much of a partition and its writer as the pump looks at."""

    def __init__(self, *, wants_seal: bool) -> None:
        self.writer = self
        self.wants_seal = wants_seal
        self.granted = False

    def grant_seal(self, _now: object) -> bool:
        self.granted = self.wants_seal
        return self.granted

    def drive(self, _now: object) -> None:
        """After a grant."""


def taken() -> Turns[str]:
    """All turns are taken at 0 ms."""
    turns: Turns[str] = Turns()
    assert all(turns.admit(f"holder-{n}", 1, 0) for n in range(AT_ONCE_MAX))
    return turns


def test_few_partitions_never_wait() -> None:
    turns: Turns[int] = Turns()
    for now_ms in range(100):
        assert all(turns.admit(n, 1, now_ms) for n in range(AT_ONCE_MAX))
        assert turns.next_due_ms(now_ms) is None


def test_one_that_has_a_turn_may_flush_again() -> None:
    assert taken().admit("holder-0", 1, 5)


def test_who_waits_has_its_turn_when_another_is_done() -> None:
    turns = taken()
    assert not turns.admit("small", 10, 0)
    assert not turns.admit("large", 1_000, 0)
    assert turns.due(10) == []
    turns.done("holder-1")
    assert turns.due(10) == ["large"]
    assert turns.due(10) == []
    turns.done("large")
    assert turns.due(10) == ["small"]
    assert turns.waiting == 0


def test_a_newcomer_does_not_pass_those_who_wait() -> None:
    turns = taken()
    turns.admit("first", 1, 0)
    turns.done("holder-0")
    assert not turns.admit("second", 1, 0)


def test_a_turn_whose_flush_is_in_trouble_lapses() -> None:
    turns = taken()
    turns.admit("waits", 1, 10)
    assert turns.next_due_ms(10) == TURN_MS_MAX
    assert turns.due(TURN_MS_MAX - 1) == []
    assert turns.due(TURN_MS_MAX) == ["waits"]


def test_the_forgotten_neither_wait_nor_hold_a_turn() -> None:
    turns = taken()
    turns.admit("waits", 1, 0)
    turns.forget("waits")
    turns.forget("holder-0")
    assert turns.due(0) == []
    assert turns.admit("new", 1, 0)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 300))))
def test_no_more_hold_a_turn_than_the_bound_allows(events: list[tuple[int, bool, int]]) -> None:
    turns: Turns[int] = Turns()
    holders: dict[int, int] = {}
    now_ms = 0
    for key, finished, wait_ms in events:
        now_ms += wait_ms
        holders = {one: since for one, since in holders.items() if now_ms - since < TURN_MS_MAX}
        if finished:
            turns.done(key)
            holders.pop(key, None)
        elif turns.admit(key, 1, now_ms):
            holders.setdefault(key, now_ms)
        holders |= dict.fromkeys(turns.due(now_ms), now_ms)
        assert len(holders) <= AT_ONCE_MAX


async def test_a_turn_that_comes_too_late_goes_on_to_the_next() -> None:
    turns: Turns[Any] = Turns()
    pump = Pump(ManualClock(), turns)
    holders = [Wisher(wants_seal=False) for _ in range(AT_ONCE_MAX)]
    assert all(turns.admit(holder, 1, 0) for holder in holders)
    sealed, wants = Wisher(wants_seal=False), Wisher(wants_seal=True)
    turns.admit(sealed, 1_000, 0)
    turns.admit(wants, 1, 0)
    pump.flushed(cast(Any, holders[0]))
    assert wants.granted
    assert not sealed.granted
    assert turns.waiting == 0
