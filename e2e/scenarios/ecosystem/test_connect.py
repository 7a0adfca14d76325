"""Kafka Connect, two workers: its topics, its group and its connectors go on when a worker and services are killed.

With `exactly.once.source.support` each line is in the topic once.
"""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from kafscale.runtime.ports import free_port

from e2e.harness.cluster import Cluster
from e2e.harness.ecosystem import ARRIVES_WITHIN_S, Program, create_topics, java, properties, read_as
from e2e.harness.kafka_tools import require_java
from e2e.harness.services import until
from e2e.harness.transactional import COMMITTED, UNCOMMITTED

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(900)]

HALF, MORE, COUNT = 1_000, 1_500, 2_000
BOUNDARY = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": 3_000}
"""With exactly-once: long enough that a worker dies in a transaction."""
CALL_TIMEOUT_S = 60.0
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
FILES = "org.apache.kafka.connect.file"


def worker(bootstrap: str, port: int, once: str, folder: Path) -> Program:
    """`once`: its exactly.once.source.support."""
    group = f"connect-{once}"
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "exactly.once.source.support": once,
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "offset.flush.interval.ms": 500,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 1_000,
        "scheduled.rebalance.max.delay.ms": 1_000,
        "plugin.discovery": "service_load",
        **{f"{kind}.storage.topic": f"{group}-{kind}" for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.replication.factor": 1 for kind in ("config", "offset", "status")},
    }
    name = f"worker-{port}"
    path = properties(folder / f"{name}.properties", settings)
    return Program(name, java("org.apache.kafka.connect.cli.ConnectDistributed", str(path)), folder)


def call(port: int, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(
        f"http://127.0.0.1:{port}{path}",
        data,
        {"Content-Type": "application/json"},
        method=method,
    )
    with urlopen(request, timeout=CALL_TIMEOUT_S) as answer:
        return json.loads(answer.read() or b"null")


def answers(port: int, method: str, path: str, body: Any = None) -> bool:
    """Workers refuse while the group rebalances."""
    try:
        call(port, method, path, body)
    except (HTTPError, URLError, OSError):
        return False
    return True


def running_on(port: int, connector: str) -> str | None:
    """The worker that runs its task, if it runs."""
    try:
        tasks = call(port, "GET", f"/connectors/{connector}/status")["tasks"]
    except (HTTPError, URLError, OSError):
        return None
    return next((task["worker_id"] for task in tasks if task["state"] == "RUNNING"), None)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def append(path: Path, numbers: range) -> None:
    with path.open("a") as file:
        file.writelines(f"{number}\n" for number in numbers)


@pytest.mark.parametrize("once", ["disabled", "enabled"])
def test_a_file_goes_through_a_topic_into_a_file(
    cluster: Cluster, programs: list[Program], tmp_path: Path, once: str
) -> None:
    require_java()
    topic = f"lines-{once}"
    create_topics(cluster.bootstrap, topic)
    ports = (free_port(), free_port())
    workers = {f"127.0.0.1:{port}": worker(cluster.bootstrap, port, once, tmp_path) for port in ports}
    programs.extend(workers.values())
    given, written = tmp_path / "given.txt", tmp_path / "written.txt"
    append(given, range(HALF))
    for each in workers.values():
        each.start()
    source = {
        "connector.class": f"{FILES}.FileStreamSourceConnector",
        "file": str(given),
        "topic": topic,
        **BOUNDARY,
    }
    sink = {
        "connector.class": f"{FILES}.FileStreamSinkConnector",
        "file": str(written),
        "topics": topic,
        "consumer.override.isolation.level": COMMITTED,
    }
    for name, config in (("source", source), ("sink", sink)):
        path = f"/connectors/{name}/config"
        until(
            f"{name} is accepted",
            lambda path=path, config=config: answers(ports[0], "PUT", path, config),  # type: ignore[misc]
            ARRIVES_WITHIN_S,
        )
    until("the first half has arrived", lambda: len(set(lines(written))) == HALF, ARRIVES_WITHIN_S)

    owner = running_on(ports[0], "source")
    assert owner is not None
    left = next(port for port in ports if f"127.0.0.1:{port}" != owner)
    append(given, range(HALF, MORE))
    until(
        "more is in the topic",
        lambda: sum(map(len, read_as(UNCOMMITTED, cluster.bootstrap, topic))) > HALF,
        ARRIVES_WITHIN_S,
    )
    workers[owner].kill()
    append(given, range(MORE, COUNT))
    for role in ("coordinator", "produce", "fetch", "frontdoor"):
        cluster.kill_one(role, 0)
    until("the second half has arrived", lambda: len(set(lines(written))) == COUNT, ARRIVES_WITHIN_S)
    assert set(lines(written)) == {str(number) for number in range(COUNT)}
    assert running_on(left, "source") == f"127.0.0.1:{left}"
    if once == "enabled":
        found = sorted(chain(*read_as(COMMITTED, cluster.bootstrap, topic)))
        assert found == [*range(COUNT)]
    for name in ("source", "sink"):
        assert answers(left, "DELETE", f"/connectors/{name}")
