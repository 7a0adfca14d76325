"""Kafka Streams with a repartition topic and a state with a changelog: exact results after kill -9 of both sides.

One program is right with at-least-once: the largest of the numbers. The other one counts, so it is right only with
exactly_once_v2.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.ecosystem import PARTITIONS, Program, bounds, create_topics, java, values, write
from e2e.harness.kafka_tools import require_java
from e2e.harness.law import nap
from e2e.harness.transactional import COMMITTED, read

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(900)]

HALF, COUNT = 2_000, 4_000
REMAINDERS = 10
KILLS = int(os.environ.get("KILLS", "4"))
ROLES = ("produce", "coordinator", "fetch", "frontdoor")
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
    for role in ROLES:
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


def counts(cluster: Cluster) -> dict[str, list[int]]:
    """Every count that each remainder had, as readers of committed records see it."""
    found: dict[str, list[int]] = {str(each): [] for each in range(REMAINDERS)}
    for partition in range(PARTITIONS):
        for _, value in read(cluster.bootstrap, "counts-out", COMMITTED, partition):
            remainder, count = value.split(":")
            found[remainder].append(int(count))
    return found


def test_counts_are_exact_although_everything_dies(
    cluster: Cluster, programs: list[Program], tmp_path: Path
) -> None:
    require_java()
    create_topics(cluster.bootstrap, "counts-in", "counts-out")
    names = ("counts", "counts-in", "counts-out")
    app = Program(
        "counts", java("kafscale.e2e.Counts", cluster.bootstrap, *names, str(tmp_path / "state")), tmp_path
    )
    programs.append(app)
    app.start()
    chance = random.Random(49)
    for number in range(KILLS):
        write(cluster.bootstrap, "counts-in", range(number * COUNT // KILLS, (number + 1) * COUNT // KILLS))
        nap(chance.uniform(0.5, 5.0))
        if number % 2:
            cluster.kill_one(chance.choice(ROLES), 0)
        else:
            app.kill()
            app.start()
    expected = Counter(str(number % REMAINDERS) for number in range(COUNT))
    app.wait_for(
        "every number is counted",
        lambda: all(seen and max(seen) >= expected[each] for each, seen in counts(cluster).items()),
    )
    app.stop()
    for remainder, seen in counts(cluster).items():
        assert seen == sorted(set(seen)), remainder
        assert seen[-1] == expected[remainder], remainder
