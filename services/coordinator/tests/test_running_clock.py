"""Sessions are judged by time that was lived through."""

from __future__ import annotations

from kafscale.coordinator.groups.running_clock import RunningClock
from kafscale.runtime.clock import ManualClock


def test_a_pause_is_not_lived_through() -> None:
    clock = ManualClock(now_ms=1_000)
    running = RunningClock(clock)
    clock.advance(1_000)
    assert running.now_ms() == 2_000
    clock.advance(60_000)
    assert running.now_ms() == 2_000
    clock.advance(1_500)
    assert running.now_ms() == 3_500
    assert running.real_ms() == 63_500
