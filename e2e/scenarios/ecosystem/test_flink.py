"""Flink's sink with EXACTLY_ONCE, for both ways to name its transactions: each number is in a topic once although the
job and services die, also when the job dies between a checkpoint and the commit of its transactions.

Their timeout is longer than the test, so Flink has to end what it left open: PROBING claims the transactional ids that
it may have used, LISTING asks for them (DescribeProducers, ListTransactions).
"""

from __future__ import annotations

import random
from itertools import chain
from pathlib import Path

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.ecosystem import Program, create_topics, java, read_as, write
from e2e.harness.kafka_tools import require_java
from e2e.harness.law import nap
from e2e.harness.transactional import COMMITTED

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(900)]

PART = 500
COPIES = ("flink-incrementing", "flink-pooling")
PRECOMMITTED = 137  # its exit code when it has ended itself
RESUMED = "Attempting to resume transaction"
LONGER_THAN_A_CHECKPOINT_S = 1.5


def copies(cluster: Cluster) -> list[list[int]]:
    """The numbers of each copy, as readers of committed records see them."""
    return [[*chain(*read_as(COMMITTED, cluster.bootstrap, topic))] for topic in COPIES]


def test_each_number_is_there_once_although_everything_dies(
    cluster: Cluster, programs: list[Program], tmp_path: Path
) -> None:
    require_java()
    create_topics(cluster.bootstrap, "flink", *COPIES)
    arguments = (cluster.bootstrap, "flink", str(tmp_path / "checkpoints"), str(PART - 1))
    job = Program("flink", java("kafscale.e2e.Copies", *arguments, project="flink"), tmp_path)
    programs.append(job)
    chance = random.Random(49)

    def all_copied(count: int) -> None:
        job.wait_for(f"{count} are copied", lambda: all(len(set(copy)) >= count for copy in copies(cluster)))

    job.start()
    write(cluster.bootstrap, "flink", range(PART))
    assert job.wait() == PRECOMMITTED
    assert RESUMED not in job.log.read_text()
    job.start()
    all_copied(PART)
    assert RESUMED in job.log.read_text()
    for number, victim in enumerate(("produce", "flink", "coordinator"), 1):
        write(cluster.bootstrap, "flink", range(number * PART, (number + 1) * PART))
        nap(chance.uniform(0, LONGER_THAN_A_CHECKPOINT_S))
        if victim == "flink":
            job.kill()
            job.start()
        else:
            cluster.kill_one(victim, 0)
        all_copied((number + 1) * PART)
    job.stop()
    for copy in copies(cluster):
        assert sorted(copy) == [*range(4 * PART)]
