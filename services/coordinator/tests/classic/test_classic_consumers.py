"""L13: after a quiet interval every live consumer is Stable, and the partitions are shared among them."""

import pytest

from services.coordinator.tests.classic.classic_consumers import PARTITIONS, REBALANCE_MS, simulate


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
def test_after_any_trouble_consumers_settle(cooperative: bool) -> None:
    for seed in range(12):
        simulate(seed, cooperative=cooperative, troubles=6)


def test_partitions_move_to_a_consumer_that_comes_later() -> None:
    town = simulate(1, cooperative=True, troubles=0)
    town.start()
    town.run(3 * REBALANCE_MS)
    town.must_be_settled()
    assert min(len(consumer.owned) for consumer in town.consumers) == len(PARTITIONS) // 4


@pytest.mark.deep
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
def test_after_any_trouble_consumers_settle_in_a_long_search(cooperative: bool) -> None:
    for seed in range(2_000):
        simulate(seed, cooperative=cooperative, troubles=10)
