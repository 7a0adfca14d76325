"""Sessions are judged by time that was lived through."""

from __future__ import annotations

from kafscale.coordinator.groups.running_clock import RunningClock
from kafscale.testkit.clock import ManualClock


def test_a_pause_is_not_lived_through() -> None:
    clock = ManualClock(now_ms=1_000)
    running = RunningClock(clock, lambda: True)
    clock.advance(1_000)
    assert running.now_ms() == 2_000
    clock.advance(60_000)
    assert running.now_ms() == 2_000
    clock.advance(1_500)
    assert running.now_ms() == 3_500
    assert running.real_ms() == 63_500


def test_time_without_freshness_is_not_lived_through() -> None:
    clock = ManualClock(now_ms=1_000)
    fresh = [True]
    running = RunningClock(clock, lambda: fresh[0])
    clock.advance(500)
    assert running.now_ms() == 1_500
    fresh[0] = False
    for _ in range(100):
        clock.advance(500)
        assert running.now_ms() == 1_500
    fresh[0] = True
    clock.advance(500)  # it may have become fresh at the end of this half second only
    assert running.now_ms() == 1_500
    clock.advance(500)
    assert running.now_ms() == 2_000
