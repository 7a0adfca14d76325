"""Rates, buckets and throttle times, compared with an implementation that keeps every event."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access import quota_rates as module
from kafscale.access.quota_rates import (
    Meters,
    TokenBucket,
    Window,
    WindowedRate,
    admit_connection,
    fetch_bytes_max,
)

WINDOW = Window()
Event = tuple[int, float]


def naive(events: list[Event], now_ms: int) -> tuple[float, int]:
    """The usage in the window and the time that it covers, from all events."""
    samples: list[list[Event]] = []
    for event in events:
        if not samples or event[0] - samples[-1][0][0] >= 1_000:
            samples.append([])
        samples[-1].append(event)
    inside = [sample for sample in samples if now_ms - sample[-1][0] < 11_000]
    if not inside:
        return 0.0, 10_000
    elapsed_ms = now_ms - inside[0][0][0]
    # Whole samples are added in front until there are ten.
    while elapsed_ms < 10_000:
        elapsed_ms += 1_000
    return sum(amount for sample in inside for _, amount in sample), elapsed_ms


@given(st.lists(st.tuples(st.integers(0, 4_000), st.integers(-5, 100)), max_size=40), st.integers(0, 15_000))
def test_the_rate_is_that_of_all_events_in_the_window(steps: list[tuple[int, int]], later_ms: int) -> None:
    times = list(accumulate(pause_ms for pause_ms, _ in steps))
    events: list[Event] = []
    rate = WindowedRate(WINDOW)
    for now_ms, (_, amount) in zip(times, steps, strict=True):
        events.append((now_ms, amount))
        rate.record(amount, now_ms)
        used, covered_ms = naive(events, now_ms)
        assert rate.per_second(now_ms) == pytest.approx(used / covered_ms * 1_000)
    now_ms = (times or [0])[-1] + later_ms
    used, covered_ms = naive(events, now_ms)
    assert rate.elapsed_ms(now_ms) == covered_ms
    assert rate.per_second(now_ms) == pytest.approx(used / covered_ms * 1_000)
    assert 10_000 <= covered_ms < 13_000


def test_a_client_at_its_limit_is_not_throttled_and_one_above_it_is() -> None:
    rate = WindowedRate(WINDOW)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1_000, 0) == 0
    rate.record(1, 0)
    # (1000.1 - 1000) / 1000 * 10 s
    assert rate.throttle_ms(1_000, 0) == 1
    rate.record(9_999, 500)
    # the window is 10.5 s: 20,000 bytes in it are 1904.8 per second
    assert rate.throttle_ms(1_000, 500) == 9_500


def test_after_the_throttle_time_the_rate_is_at_the_limit() -> None:
    rate = WindowedRate(WINDOW)
    rate.record(10_500, 0)
    throttle_ms = rate.throttle_ms(1_000, 0)
    assert throttle_ms == 500
    assert rate.per_second(throttle_ms) == pytest.approx(1_000)


def test_what_is_taken_back_does_not_count() -> None:
    rate = WindowedRate(WINDOW)
    rate.record(50_000, 0)
    rate.record(-50_000, 10)
    assert rate.throttle_ms(1_000, 10) == 0


@pytest.mark.parametrize("size", [100, 700, 2_500])
def test_a_client_that_obeys_has_its_limit_within_a_tenth_over_a_minute(size: int) -> None:
    rate, now_ms, used = WindowedRate(WINDOW), 0, 0
    while now_ms < 120_000:
        rate.record(size, now_ms)
        # The first minute begins with the burst of a whole window.
        used += size if now_ms >= 60_000 else 0
        now_ms += max(1, rate.throttle_ms(1_000, now_ms))
    assert used == pytest.approx(60_000, rel=0.1)


def test_the_throttle_time_fits_its_field() -> None:
    rate = WindowedRate(WINDOW)
    rate.record(1e15, 0)
    assert rate.throttle_ms(1, 0) == 2**31 - 1


def test_kafka_s_example_of_the_token_bucket() -> None:
    """Quota 5, 100 samples of 1 s: a burst of 560 leaves -60 of 500 tokens, which takes 12 s (class TokenBucket)."""
    bucket = TokenBucket(Window(samples=100))
    assert bucket.take(560, 5, 1_000) == 0
    assert bucket.take(1, 5, 1_000) == 12_000
    assert bucket.take(1, 5, 12_999) == 1
    assert bucket.take(1, 5, 13_000) == 0


def test_the_permissive_quota_takes_always() -> None:
    bucket = TokenBucket(WINDOW)
    assert bucket.take_anyway(11, 1, 0) == 0
    assert bucket.take_anyway(1, 1, 0) == 1_000
    assert bucket.take_anyway(1, 1, 0) == 2_000
    assert bucket.take(1, 1, 0) == 2_000
    assert bucket.take(1, 1, 2_000) == 0


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 40)), min_size=1, max_size=60),
    st.floats(0.1, 20),
)
def test_mutations_never_exceed_the_burst_and_the_rate(steps: list[tuple[int, int]], limit: float) -> None:
    bucket, now_ms, taken, last = TokenBucket(WINDOW), 0, 0, 0
    for pause_ms, permits in steps:
        now_ms += pause_ms
        throttle_ms = bucket.take(permits, limit, now_ms)
        if throttle_ms == 0:
            taken, last = taken + permits, permits
        else:
            assert bucket.take(permits, limit, now_ms) == throttle_ms
    assert taken - last <= limit * (11 + now_ms / 1_000) + 0.01


def test_connections_above_the_rate_are_held_and_do_not_count() -> None:
    rate = WindowedRate(WINDOW)
    assert [admit_connection(rate, 2, WINDOW, 0) for _ in range(22)] == [0] * 20 + [500, 500]
    assert rate.per_second(0) == 2
    assert admit_connection(rate, 2, WINDOW, 10_500) == 0
    for _ in range(100):
        rate.record(1, 10_500)
    assert admit_connection(rate, 2, WINDOW, 10_500) == 1_000


def test_a_fetch_gets_what_is_left_of_the_window_and_at_least_one_sample() -> None:
    rate = WindowedRate(WINDOW)
    assert fetch_bytes_max(rate, 1_000, WINDOW, 0) == 10_000
    rate.record(6_000, 0)
    assert fetch_bytes_max(rate, 1_000, WINDOW, 0) == 4_000
    rate.record(3_500, 0)
    assert fetch_bytes_max(rate, 1_000, WINDOW, 0) == 1_000
    rate.record(50_000, 0)
    assert fetch_bytes_max(rate, 1_000, WINDOW, 0) == 1_000
    wide = Window(samples=3, sample_ms=2_000)
    assert fetch_bytes_max(WindowedRate(wide), 1_000, wide, 0) == 4_000
    assert fetch_bytes_max(WindowedRate(WINDOW), 0.001, WINDOW, 0) == 1


@given(st.lists(st.tuples(st.integers(0, 4_000), st.integers(1, 3_000)), max_size=30))
def test_what_is_left_can_be_used_without_a_throttle_time(steps: list[tuple[int, int]]) -> None:
    rate, now_ms = WindowedRate(WINDOW), 0
    for pause_ms, amount in steps:
        now_ms += pause_ms
        left = int(rate.left(1_000, now_ms))
        assert (left < 0) <= (rate.throttle_ms(1_000, now_ms) > 0)
        rate.record(min(left, amount) if left > 0 else 0, now_ms)
        assert rate.throttle_ms(1_000, now_ms) == 0 or left <= 0


def used(meters: Meters[str, WindowedRate], key: str, now_ms: int) -> WindowedRate:
    rate = meters.of(key, now_ms)
    rate.record(1, now_ms)
    return rate


def test_meters_are_kept_by_key_and_the_least_used_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "METERS_MAX", 2)
    meters: Meters[str, WindowedRate] = Meters(WindowedRate, WINDOW)
    first, second = used(meters, "a", 0), used(meters, "b", 0)
    assert first is not second
    assert used(meters, "a", 0) is first
    used(meters, "c", 0)
    assert len(meters) == 2
    assert used(meters, "a", 0) is first
    assert used(meters, "b", 0) is not second


def test_meters_that_were_not_used_for_a_window_are_forgotten() -> None:
    meters: Meters[str, WindowedRate] = Meters(WindowedRate, WINDOW)
    for number in range(100):
        used(meters, f"m{number}", number)
    assert len(meters) == 100
    for now_ms in range(11_099, 11_199):
        used(meters, "other", now_ms)
    assert len(meters) == 1


@given(
    st.lists(st.tuples(st.integers(0, 9_000), st.integers(1, 60), st.booleans()), max_size=30),
    st.floats(0.1, 20),
)
def test_a_bucket_that_is_as_new_gives_what_a_new_one_gives(
    steps: list[tuple[int, int, bool]], limit: float
) -> None:
    bucket, now_ms = TokenBucket(WINDOW), 0
    for pause_ms, permits, strict in steps:
        now_ms += pause_ms
        if bucket.is_as_new(now_ms):
            fresh = TokenBucket(WINDOW).take_anyway(permits, limit, now_ms)
            assert bucket.take_anyway(permits, limit, now_ms) == pytest.approx(fresh, abs=1)
            continue
        (bucket.take if strict else bucket.take_anyway)(permits, limit, now_ms)
