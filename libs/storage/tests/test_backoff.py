"""Exponential backoff."""

import random

from kafscale.storage.backoff import Backoff


def test_a_backoff_doubles_to_its_cap_and_starts_over_after_success() -> None:
    backoff = Backoff(first_ms=100, cap_ms=400, source=random.Random(1))
    for most_ms in (100, 200, 400, 400):
        assert most_ms / 2000 <= backoff.next_s() <= most_ms / 1000
    backoff.reset()
    assert backoff.next_s() <= 0.1
