"""A client that sends two requests in one write gets the answers of a client that waits for the first one.

Law: Kafka handles one request of a connection at a time. Here the two may go to different services, yet the second one
sees what the first one wrote, each time, for every pair of requests where an answer shows it (`harness/pipelining.py`).
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.pipelining import PAIRS, Pair, ask, in_one_write, one_by_one
from e2e.harness.raw import Raw

TRIALS = 12
ENV = {
    "KAFSCALE_AUTHORIZER": "acl",
    "KAFSCALE_ALLOW_EVERYONE_IF_NO_ACL_FOUND": "true",
}

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    scale = {"produce": 2, "fetch": 2, "coordinator": 2, "admin": 2}
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("pipelined") / "data", scale=scale, env=ENV)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_the_second_of_two_requests_in_one_write_sees_what_the_first_one_wrote(
    cluster: Cluster, pair: Pair
) -> None:
    names = (f"p-{uuid.uuid4().hex[:8]}-{number}" for number in itertools.count())
    said = []
    for way in (one_by_one, *[in_one_write] * TRIALS):
        name = next(names)
        with Raw.to(cluster.bootstrap) as raw:
            for step in pair.before:
                ask(raw, step(name))
            said.append(way(raw, pair, name))
    assert said == [pair.answers] * (TRIALS + 1)
