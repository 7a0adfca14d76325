"""One cluster for the programs of Kafka's ecosystem. After them it is clean, and no service has logged an error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.ecosystem import Program

SETTINGS = {"KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("ecosystem"), env=SETTINGS)
    cluster.start()
    try:
        yield cluster
        cluster.stop()
        checked = cluster.fsck()
        assert checked.returncode == 0, checked.stdout
    finally:
        cluster.kill()


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    """Those that a test puts here end with it."""
    started: list[Program] = []
    yield started
    for program in started:
        program.close()
