"""Spring for Apache Kafka: what `executeInTransaction` and a listener container with a KafkaTransactionManager write is
there once, also when their code throws exceptions, and when the program and services are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.ecosystem import KEYS, PARTITIONS, Program, create_topics, java, read_as, write
from e2e.harness.kafka_tools import require_java
from e2e.harness.transactional import COMMITTED, UNCOMMITTED

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(600)]

IN_TEMPLATES = 30
PART = 60
VICTIMS = ("coordinator", "produce", "listener", "frontdoor")


def count(logs: list[list[int]]) -> int:
    return sum(map(len, logs))


def test_an_exception_in_a_template_aborts(cluster: Cluster, programs: list[Program], tmp_path: Path) -> None:
    require_java()
    create_topics(cluster.bootstrap, "templates")
    arguments = (cluster.bootstrap, "templates", str(IN_TEMPLATES))
    program = Program("templates", java("kafscale.e2e.Templates", *arguments, project="spring"), tmp_path)
    programs.append(program)
    program.start()
    assert program.wait() == 0, program.story()
    found = {
        isolation: sorted(sum(read_as(isolation, cluster.bootstrap, "templates"), []))
        for isolation in (COMMITTED, UNCOMMITTED)
    }
    assert found[COMMITTED] == [number for number in range(IN_TEMPLATES) if number % 3 != 2]
    assert found[UNCOMMITTED] == [*range(IN_TEMPLATES)]


def test_a_listener_copies_exactly_once(cluster: Cluster, programs: list[Program], tmp_path: Path) -> None:
    require_java()
    create_topics(cluster.bootstrap, "listened", "written")
    arguments = (cluster.bootstrap, "listener", "listened", "written")
    listener = Program("listener", java("kafscale.e2e.Listener", *arguments, project="spring"), tmp_path)
    programs.append(listener)

    def copied(least: int) -> None:
        listener.wait_for(
            f"{least} are copied",
            lambda: count(read_as(COMMITTED, cluster.bootstrap, "written")) >= least,
        )

    listener.start()
    for number, victim in enumerate(VICTIMS):
        write(cluster.bootstrap, "listened", range(number * PART, (number + 1) * PART))
        copied(number * PART + 1)
        if victim == "listener":
            listener.kill()
            listener.start()
        else:
            cluster.kill_one(victim, 0)
    written = len(VICTIMS) * PART
    copied(written)
    listener.stop()
    expected = [
        [number for number in range(written) if number % KEYS % PARTITIONS == partition]
        for partition in range(PARTITIONS)
    ]
    assert read_as(COMMITTED, cluster.bootstrap, "written") == expected
    refused = written // 10
    assert count(read_as(UNCOMMITTED, cluster.bootstrap, "written")) >= written + refused
