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
SUBJECTS, SOME = 80, 10
CONFLICT = 409  # what Confluent's API says of an incompatible schema


def acknowledged(path: Path) -> dict[str, int]:
    """Subject -> id. A subject that was registered again had the same id again."""
    found: dict[str, int] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        subject, number = line.split()
        assert found.setdefault(subject, int(number)) == int(number), f"{subject} has two ids"
    return found


def record(subject: str) -> dict[str, object]:
    """The schema that on_avro.py registers for a subject."""
    name = subject.title().replace("-", "")
    return {"type": "record", "name": name, "fields": [{"name": "number", "type": "int"}]}


def registering(registry: Registry, path: Path, programs: list[Program], folder: Path) -> Program:
    name = f"registering-{registry.name}"
    program = Program(name, on_avro("register", registry.url, SUBJECTS, path), folder, cwd=APPS)
    programs.append(program)
    program.start()
    return program


def kill_after_some(client: Program, path: Path, cluster: Cluster, registry: Program) -> None:
    """Services that write, then the registry, while the client registers schemas."""
    client.wait_for("some schemas are acknowledged", lambda: len(acknowledged(path)) >= SOME)
    for role in ("produce", "coordinator"):
        cluster.kill_one(role, 0)
    enough = len(acknowledged(path)) + SOME
    client.wait_for("more schemas are acknowledged", lambda: len(acknowledged(path)) >= enough)
    registry.kill()
    client.kill()
    assert len(acknowledged(path)) < SUBJECTS, "the registry was killed too late"


def assert_nothing_expires(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, JOURNAL)]).values()
    config = future.result(ADMIN_TIMEOUT_S)
    found = {name: config[name].value for name in ("cleanup.policy", "retention.ms", "retention.bytes")}
    assert found == {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def test_the_topic_has_every_schema(cluster: Cluster, programs: list[Program], tmp_path: Path) -> None:
    require_java()
    create_topics(cluster.bootstrap, TOPIC)
    first, second = (Registry(name, cluster.bootstrap, tmp_path) for name in ("first", "second"))
    running = first.started(programs)
    assert_nothing_expires(cluster.bootstrap)
    avro("limit", first.url, "BACKWARD")
    assert avro("produce", cluster.bootstrap, first.url, TOPIC, 1, 0, ORDERS) is None
    assert avro("produce", cluster.bootstrap, first.url, TOPIC, 2, ORDERS, ORDERS) is None
    assert avro("produce", cluster.bootstrap, first.url, TOPIC, 3, 2 * ORDERS, 1) == CONFLICT
    versions = avro("schemas", first.url)[SUBJECT]
    assert [version for version, _, _ in versions] == [1, 2]

    path = tmp_path / "acknowledged"
    client = registering(first, path, programs, tmp_path)
    kill_after_some(client, path, cluster, running)
    before = acknowledged(path)

    second.started(programs)
    found = avro("schemas", second.url)
    assert found.pop(SUBJECT) == versions
    assert len(found) - len(before) in (0, 1)  # one more if the kill came before its answer
    assert {subject: found[subject] for subject in before} == {
        subject: [[1, number, record(subject)]] for subject, number in before.items()
    }
    assert avro("produce", cluster.bootstrap, second.url, TOPIC, 3, 2 * ORDERS, 1) == CONFLICT

    client = registering(second, path, programs, tmp_path)
    client.wait_for("the second registers more", lambda: len(acknowledged(path)) > len(found))
    for role in ("fetch", "frontdoor", "admin"):
        cluster.kill_one(role, 0)
    assert client.wait() == 0, client.story()
    ids = acknowledged(path)
    assert len(ids) == len(set(ids.values())) == SUBJECTS
    orders = [{"number": number, "currency": "EUR"} for number in range(ORDERS)]
    orders += [{"number": number, "currency": "CHF"} for number in range(ORDERS, 2 * ORDERS)]
    assert avro("consume", cluster.bootstrap, second.url, TOPIC, len(orders)) == orders
