"""The PUT governor: the rate holds, and nobody starves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafscale.produce.governor import BURST_FLUSHES, Governor


def drained(rate: int) -> Governor[str]:
    governor: Governor[str] = Governor(rate)
    for n in range(BURST_FLUSHES):
        assert governor.admit(f"warm-{n}", 1, 0)
    return governor


def test_a_store_that_bills_nothing_is_not_governed() -> None:
    governor: Governor[int] = Governor(None)
    assert all(governor.admit(n, 1, 0) for n in range(100_000))
    assert governor.next_due_ms(0) is None


@given(st.integers(1, 500), st.lists(st.tuples(st.integers(0, 50), st.integers(1, 1 << 20)), max_size=200))
def test_no_more_pass_than_rate_and_burst_allow(rate: int, wishes: list[tuple[int, int]]) -> None:
    governor: Governor[int] = Governor(rate)
    now_ms = passed = 0
    for number, (wait_ms, size) in enumerate(wishes):
        now_ms += wait_ms
        passed += governor.admit(number, size, now_ms)
        passed += len(governor.due(now_ms))
        assert passed <= BURST_FLUSHES + rate * now_ms / 1000 + 1e-6


def test_who_found_the_budget_spent_is_named_when_it_is_due() -> None:
    governor = drained(100)
    assert not governor.admit("a", 10, 0)
    due_ms = governor.next_due_ms(0)
    assert due_ms is not None
    assert 10 <= due_ms <= 11
    assert governor.due(due_ms - 5) == []
    assert governor.due(due_ms) == ["a"]
    assert governor.next_due_ms(due_ms) is None


def test_more_bytes_go_first_but_age_wins_in_the_end() -> None:
    governor = drained(1)
    governor.admit("small", 10, 0)
    governor.admit("large", 1_000, 0)
    assert governor.due(1_000) == ["large"]
    for second in range(2, 300):
        governor.admit(f"large-{second}", 1_000, second * 1_000 - 1_000)
        if governor.due(second * 1_000) == ["small"]:
            return
    raise AssertionError("the small one starved")


def test_a_newcomer_does_not_pass_those_who_wait() -> None:
    governor = drained(100)
    assert not governor.admit("first", 10, 0)
    assert not governor.admit("second", 10, 10)
    assert governor.due(10) == ["first"]


def test_asking_again_keeps_the_place_and_takes_the_new_size() -> None:
    governor = drained(1)
    governor.admit("a", 1, 0)
    governor.admit("b", 50, 0)
    governor.admit("a", 100, 500)
    assert governor.waiting == 2
    assert governor.due(1_000) == ["a"]


def test_the_forgotten_are_not_named() -> None:
    governor = drained(100)
    governor.admit("a", 1, 0)
    governor.forget("a")
    assert governor.due(1_000) == []
