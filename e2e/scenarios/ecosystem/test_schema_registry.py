"""A schema registry whose storage is a topic: every schema that it acknowledged has its id after kill -9 of both sides.

Apicurio Registry with its storage `kafkasql`, and confluent-kafka's Avro serializers, which use Confluent's API.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from e2e.harness.apicurio import APPS, JOURNAL, Registry, avro, on_avro
from e2e.harness.cluster import Cluster
from e2e.harness.ecosystem import ADMIN_TIMEOUT_S, Program, create_topics
from e2e.harness.kafka_tools import require_java

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(600)]

TOPIC, SUBJECT = "orders-in-avro", "orders-in-avro-value"
ORDERS = 100  # of each version
SUBJECTS, SOME = 300, 20
CONFLICT = 409  # what Confluent's API says of an incompatible schema


def acknowledged(path: Path) -> dict[str, int]:
    """Subject -> id. A subject that was registered again had the same id again."""
    found: dict[str, int] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        subject, number = line.split()
        assert found.setdefault(subject, int(number)) == int(number), f"{subject} has two ids"
    return found


def started(registry: Registry, programs: list[Program]) -> Program:
    program = registry.program()
    programs.append(program)
    program.start()
    program.wait_for("the registry is ready", lambda: registry.is_ready)
    return program


def registering(registry: Registry, path: Path, programs: list[Program], folder: Path) -> Program:
    name = f"registering-{registry.name}"
    program = Program(name, on_avro("register", registry.url, SUBJECTS, path), folder, cwd=APPS)
    programs.append(program)
    program.start()
    return program


def assert_nothing_expires(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, JOURNAL)]).values()
    config = future.result(ADMIN_TIMEOUT_S)
    found = {name: config[name].value for name in ("cleanup.policy", "retention.ms", "retention.bytes")}
    assert found == {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def test_the_topic_has_every_schema(cluster: Cluster, programs: list[Program], tmp_path: Path) -> None:
    require_java()
    create_topics(cluster.bootstrap, TOPIC)
    path = tmp_path / "acknowledged"
    first, second, third = (Registry(name, cluster.bootstrap, tmp_path) for name in ("one", "two", "three"))

    running = started(first, programs)
    assert_nothing_expires(cluster.bootstrap)
    avro("limit", first.url, "BACKWARD")
    assert avro("produce", cluster.bootstrap, first.url, TOPIC, 1, 0, ORDERS) is None
    assert avro("produce", cluster.bootstrap, first.url, TOPIC, 2, ORDERS, ORDERS) is None
    assert avro("produce", cluster.bootstrap, first.url, TOPIC, 3, 2 * ORDERS, ORDERS) == CONFLICT
    orders_before = avro("schemas", first.url)[SUBJECT]
    assert [version for version, _, _ in orders_before] == [1, 2]

    client = registering(first, path, programs, tmp_path)
    client.wait_for("some schemas are acknowledged", lambda: len(acknowledged(path)) >= SOME)
    for role in ("produce", "coordinator"):
        cluster.kill_one(role, 0)
    more = len(acknowledged(path)) + SOME
    client.wait_for("more schemas are acknowledged", lambda: len(acknowledged(path)) >= more)
    running.kill()
    client.kill()
    by_first = acknowledged(path)
    assert len(by_first) < SUBJECTS

    running = started(second, programs)
    client = registering(second, path, programs, tmp_path)
    for role in ("fetch", "frontdoor", "admin"):
        cluster.kill_one(role, 0)
    assert client.wait() == 0, client.story()
    running.kill()

    started(third, programs)
    ids = acknowledged(path)
    assert len(set(ids.values())) == len(ids) == SUBJECTS
    found = avro("schemas", third.url)
    assert found.pop(SUBJECT) == orders_before
    assert found == {
        f"subject-{number}": [
            [1, ids[f"subject-{number}"], {"type": "record", "name": f"Record{number}", "fields": fields}]
        ]
        for number in range(SUBJECTS)
        for fields in ([{"name": "number", "type": "int"}],)
    }
    orders = [{"number": number, "currency": "EUR"} for number in range(ORDERS)]
    orders += [{"number": number, "currency": "CHF"} for number in range(ORDERS, 2 * ORDERS)]
    assert avro("consume", cluster.bootstrap, third.url, TOPIC, len(orders)) == orders
    assert avro("produce", cluster.bootstrap, third.url, TOPIC, 3, 2 * ORDERS, 1) == CONFLICT
