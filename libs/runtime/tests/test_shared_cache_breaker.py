"""The breaker of the shared cache, driven by any history of outcomes."""

from hypothesis import given
from hypothesis import strategies as st
from kafscale.runtime.shared_cache.breaker import (
    FAILURES_MAX,
    WAIT_FIRST_MS,
    WAIT_MAX_MS,
    Breaker,
    BreakerState,
)


def opened(now_ms: int = 0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES_MAX):
        assert breaker.allow(now_ms)
        breaker.failed(now_ms)
    return breaker


def test_it_opens_after_failures_in_a_row() -> None:
    breaker = Breaker()
    for _ in range(FAILURES_MAX - 1):
        breaker.failed(0)
    breaker.succeeded()
    for _ in range(FAILURES_MAX - 1):
        breaker.failed(0)
    assert breaker.allow(0)
    breaker.failed(0)
    assert breaker.state is BreakerState.OPEN
    assert not breaker.allow(WAIT_FIRST_MS - 1)


def test_one_call_tries_it_and_a_success_closes() -> None:
    breaker = opened()
    assert breaker.allow(WAIT_FIRST_MS)
    assert breaker.state is BreakerState.HALF_OPEN
    assert not breaker.allow(WAIT_FIRST_MS)
    breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED
    assert breaker.allow(WAIT_FIRST_MS)
    breaker.failed(WAIT_FIRST_MS)
    assert breaker.state is BreakerState.CLOSED, "a success forgets the failures before it"


def test_each_failed_trial_doubles_the_wait_to_half_a_minute() -> None:
    breaker, now_ms, waits = opened(), 0, []
    for _ in range(10):
        wait_ms = next(
            wait for wait in (WAIT_FIRST_MS << n for n in range(20)) if breaker.allow(now_ms + wait)
        )
        now_ms += wait_ms
        waits.append(wait_ms)
        breaker.failed(now_ms)
        assert not breaker.allow(now_ms)
    assert waits[:4] == [WAIT_FIRST_MS, 2 * WAIT_FIRST_MS, 4 * WAIT_FIRST_MS, 8 * WAIT_FIRST_MS]
    assert not breaker.allow(now_ms + WAIT_MAX_MS - 1)
    assert breaker.allow(now_ms + WAIT_MAX_MS)


def test_a_success_forgets_how_long_the_wait_was() -> None:
    breaker = opened()
    assert breaker.allow(WAIT_FIRST_MS)
    breaker.failed(WAIT_FIRST_MS)
    assert breaker.allow(10_000)
    breaker.succeeded()
    for _ in range(FAILURES_MAX):
        breaker.failed(10_000)
    assert breaker.allow(10_000 + WAIT_FIRST_MS)


def test_a_trial_whose_outcome_never_comes_costs_one_wait() -> None:
    breaker = opened()
    assert breaker.allow(WAIT_FIRST_MS)
    assert not breaker.allow(2 * WAIT_FIRST_MS - 1)
    assert breaker.allow(2 * WAIT_FIRST_MS)


def test_outcomes_of_calls_from_before_it_opened_change_nothing() -> None:
    breaker = opened()
    breaker.failed(WAIT_FIRST_MS - 1)
    breaker.succeeded()
    assert breaker.state is BreakerState.OPEN
    assert breaker.allow(WAIT_FIRST_MS)


@given(st.lists(st.tuples(st.integers(0, 40_000), st.sampled_from(["ok", "failed", "lost"])), max_size=60))
def test_whatever_happens_it_is_tried_again_within_half_a_minute(steps: list[tuple[int, str]]) -> None:
    breaker, now_ms = Breaker(), 0
    for passed_ms, outcome in steps:
        now_ms += passed_ms
        if not breaker.allow(now_ms):
            assert breaker.state is not BreakerState.CLOSED
            assert breaker.allow(now_ms + WAIT_MAX_MS)
            now_ms += WAIT_MAX_MS
        if outcome == "ok":
            breaker.succeeded()
            assert breaker.state is BreakerState.CLOSED
        elif outcome == "failed":
            breaker.failed(now_ms)
