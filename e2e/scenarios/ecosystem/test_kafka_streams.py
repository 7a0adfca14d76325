"""Kafka Streams with a repartition topic and a state with a changelog: exact results after kill -9 of both sides.

Exactly-once (`processing.guarantee=exactly_once_v2`) needs transactions, which KafScale does not have.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.ecosystem import Program, bounds, create_topics, java, values, write
from e2e.harness.kafka_tools import require_java

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(900)]

HALF, COUNT = 2_000, 4_000
REMAINDERS = 10
REPARTITION = "largest-numbers-by-remainder-repartition"


def last_by_remainder(cluster: Cluster) -> set[int]:
    """The last value of each key: the largest of the numbers with its remainder."""
    found: dict[int, int] = {}
    for log in values(cluster.bootstrap, "streams-out"):
        for value in log:
            found[int(value) % REMAINDERS] = int(value)
    return set(found.values())


def test_a_state_survives_kills_and_the_loss_of_its_folder(
    cluster: Cluster, programs: list[Program], tmp_path: Path
) -> None:
    require_java()
    create_topics(cluster.bootstrap, "streams-in", "streams-out")
    state = tmp_path / "state"
    names = ("largest-numbers", "streams-in", "streams-out")
    app = Program("streams", java("kafscale.e2e.Largest", cluster.bootstrap, *names, str(state)), tmp_path)
    programs.append(app)

    def largest(count: int) -> None:
        expected = set(range(count - REMAINDERS, count))
        app.wait_for("the largest numbers are there", lambda: last_by_remainder(cluster) == expected)

    write(cluster.bootstrap, "streams-in", range(HALF))
    app.start()
    largest(HALF)
    app.kill()
    shutil.rmtree(state)  # the changelog has all of it
    write(cluster.bootstrap, "streams-in", range(HALF, COUNT))
    app.start()
    for role in ("produce", "coordinator", "fetch", "frontdoor"):
        cluster.kill_one(role, 0)
    largest(COUNT)
    write(cluster.bootstrap, "streams-in", range(REMAINDERS))  # smaller than what the state must still have
    write(cluster.bootstrap, "streams-in", [COUNT])
    app.wait_for("the state has gone on", lambda: COUNT in last_by_remainder(cluster))
    assert last_by_remainder(cluster) == {*range(COUNT - REMAINDERS + 1, COUNT + 1)}
    app.wait_for(
        "what it has read of the repartition topic is deleted",
        lambda: all(start == end for start, end in bounds(cluster.bootstrap, REPARTITION).values()),
    )
    app.stop()
