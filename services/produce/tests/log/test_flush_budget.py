"""The budget of flushes: the rate holds, and nobody starves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafscale.produce.log.flush import BURST_FLUSHES, FlushBudget


def drained(rate: int) -> FlushBudget[str]:
    budget: FlushBudget[str] = FlushBudget(rate)
    for n in range(BURST_FLUSHES):
        assert budget.admit(f"warm-{n}", 1, 0)
    return budget


def test_a_store_that_bills_nothing_has_no_budget() -> None:
    budget: FlushBudget[int] = FlushBudget(None)
    assert all(budget.admit(n, 1, 0) for n in range(100_000))
    assert budget.next_due_ms(0) is None


@given(st.integers(1, 500), st.lists(st.tuples(st.integers(0, 50), st.integers(1, 1 << 20)), max_size=200))
def test_no_more_pass_than_rate_and_burst_allow(rate: int, wishes: list[tuple[int, int]]) -> None:
    budget: FlushBudget[int] = FlushBudget(rate)
    now_ms = passed = 0
    for number, (wait_ms, size) in enumerate(wishes):
        now_ms += wait_ms
        passed += budget.admit(number, size, now_ms)
        passed += len(budget.due(now_ms))
        assert passed <= BURST_FLUSHES + rate * now_ms / 1000 + 1e-6


def test_who_found_the_budget_spent_is_named_when_it_is_due() -> None:
    budget = drained(100)
    assert not budget.admit("a", 10, 0)
    due_ms = budget.next_due_ms(0)
    assert due_ms is not None
    assert 10 <= due_ms <= 11
    assert budget.due(due_ms - 5) == []
    assert budget.due(due_ms) == ["a"]
    assert budget.next_due_ms(due_ms) is None


def test_more_bytes_go_first_but_age_wins_in_the_end() -> None:
    budget = drained(1)
    budget.admit("small", 10, 0)
    budget.admit("large", 1_000, 0)
    assert budget.due(1_000) == ["large"]
    for second in range(2, 300):
        budget.admit(f"large-{second}", 1_000, second * 1_000 - 1_000)
        if budget.due(second * 1_000) == ["small"]:
            return
    raise AssertionError("the small one starved")


def test_a_newcomer_does_not_pass_those_who_wait() -> None:
    budget = drained(100)
    assert not budget.admit("first", 10, 0)
    assert not budget.admit("second", 10, 10)
    assert budget.due(10) == ["first"]


def test_asking_again_keeps_the_place_and_takes_the_new_size() -> None:
    budget = drained(1)
    budget.admit("a", 1, 0)
    budget.admit("b", 50, 0)
    budget.admit("a", 100, 500)
    assert budget.waiting == 2
    assert budget.due(1_000) == ["a"]


def test_the_forgotten_are_not_named() -> None:
    budget = drained(100)
    budget.admit("a", 1, 0)
    budget.forget("a")
    assert budget.due(1_000) == []
