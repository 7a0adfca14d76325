"""One cluster for all tests of bad input, and the law around each of them.

Another connection works before and after each input, no process dies, and no service logs an error.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafscale.wire.errors import ErrorCode

from e2e.harness.cluster import Cluster
from e2e.harness.raw import Raw
from e2e.harness.requests import (
    TOPIC,
    batch,
    create,
    send,
)
from e2e.harness.services import until

ROLES = ("produce", "fetch", "coordinator", "admin", "frontdoor", "etcd")


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("bad-input"), env=settings)
    cluster.start()
    try:
        with Raw.to(cluster.bootstrap) as raw:
            until("the topic is there", lambda: create(raw, TOPIC, partitions=2) in (0, 36))
        yield cluster
        # The input is the client's mistake. No process may log an error or end because of it.
        assert cluster.logged_errors() == []
    finally:
        cluster.kill()


@pytest.fixture(autouse=True)
def bystander(cluster: Cluster) -> Iterator[None]:
    """A connection that existed before the input, and the processes that must still run after it."""
    pids = {role: cluster.pids(role) for role in ROLES}
    with Raw.to(cluster.bootstrap) as other:
        assert send(other, batch()) == ErrorCode.NONE
        yield
        assert send(other, batch()) == ErrorCode.NONE
    assert {role: cluster.pids(role) for role in ROLES} == pids


@pytest.fixture
def raw(cluster: Cluster) -> Iterator[Raw]:
    with Raw.to(cluster.bootstrap) as connection:
        yield connection
