"""Time and randomness come from one place, and a process may replace them there."""

from __future__ import annotations

import pytest
from kafscale.storage import system
from kafscale.storage.backoff import Backoff


class Still:
    """A machine on which nothing happens, and no dice are thrown."""

    def monotonic_ns(self) -> int:
        return 5_000_000_000

    def wall_ns(self) -> int:
        return 1_700_000_000_123_000_000

    def random_bytes(self, count: int) -> bytes:
        return bytes(range(count))


def test_whoever_asks_for_time_or_chance_asks_the_system_that_is_set() -> None:
    with system.replaced(Still()):
        assert (system.monotonic_s(), system.monotonic_ms(), system.monotonic_ns()) == (
            5.0,
            5_000,
            5_000_000_000,
        )
        assert (system.wall_s(), system.wall_ms()) == (pytest.approx(1_700_000_000.123), 1_700_000_000_123)
        assert system.random_uuid().hex == "000102030405460788090a0b0c0d0e0f"
        assert system.random_source().random() == system.random_source().random()
        assert Backoff().next_s() == Backoff().next_s()


def test_the_machine_is_back_after_the_context_also_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), system.replaced(Still()):
        raise ZeroDivisionError
    assert system.random_bytes(16) != system.random_bytes(16)
    assert system.wall_ms() > 1_700_000_000_123
    assert system.random_uuid().version == 4
