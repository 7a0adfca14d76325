"""What the simulation of closed and open loops shows of the service's rule for bundles. No clock is read."""

from __future__ import annotations

import pytest
from kafscale.produce.bundles.gather import GatherLimits

from bench.gathering import FAR_S3, NEAR_S3, Load, simulated

ONCE = GatherLimits(linger_ms=0)


@pytest.mark.parametrize(
    "load",
    [
        Load(what="directory", clients=64),
        Load(what="partitions", clients=64, partitions=12),
        Load(what="near", clients=64, costs=NEAR_S3),
        Load(what="far", clients=64, costs=FAR_S3),
    ],
    ids=lambda load: load.what,
)
def test_64_clients_share_one_bundle_and_no_two_crowds_take_turns(load: Load) -> None:
    assert simulated(load, GatherLimits(), seconds=1).per_bundle >= 60


def test_without_a_wait_two_crowds_take_turns() -> None:
    assert simulated(Load(what="64", clients=64), ONCE, seconds=1).per_bundle <= 40


def test_a_client_that_is_alone_pays_nothing_for_the_wait_of_others() -> None:
    alone = Load(what="1")
    assert simulated(alone, GatherLimits(), seconds=1) == simulated(alone, ONCE, seconds=1)


def test_an_open_loop_shares_more_the_busier_it_is() -> None:
    rates = (100, 1_000, 3_000)
    loads = [Load(what="", per_s=rate, partitions=12) for rate in rates]
    shared = [simulated(load, GatherLimits(), seconds=3).per_bundle for load in loads]
    assert shared[0] < 1.2
    assert shared[1] > 4
    assert shared[2] > 12
