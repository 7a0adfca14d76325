"""docs/clients.md names the client versions of the lock files and build files, and every tool of Kafka."""

from __future__ import annotations

import json
import re
from pathlib import Path

from e2e.harness.clients import CLIENTS
from e2e.harness.kafka_tools import MAINS, VERSIONS

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "e2e" / "clients"


def found(pattern: str, path: Path) -> str:
    versions = re.findall(pattern, path.read_text(), re.MULTILINE)
    assert len(versions) == 1, f"{pattern} in {path.name}"
    return str(versions[0])


def locked(package: str, lock: str) -> str:
    return found(rf"^{package}==(\S+)", ROOT / lock)


def module(path: str) -> str:
    return found(rf"^\s+{path} (\S+)$", PROGRAMS / "go" / "go.mod")


def installed(package: str) -> str:
    lock = json.loads((PROGRAMS / "node" / "package-lock.json").read_text())
    return str(lock["packages"][f"node_modules/{package}"]["version"])


def pinned() -> dict[str, str]:
    connector = found("<spark.version>(.+)</spark.version>", PROGRAMS / "spark" / "pom.xml")
    return {
        "java": found("<kafka.version>(.+)</kafka.version>", PROGRAMS / "java" / "pom.xml"),
        "confluent": locked("confluent-kafka", "requirements.lock"),
        "kcat": "of the system",
        "kafka-python": locked("kafka-python", "requirements-dev.lock"),
        "aiokafka": locked("aiokafka", "requirements-dev.lock"),
        "franz-go": module("github.com/twmb/franz-go"),
        "sarama": module("github.com/IBM/sarama"),
        "kafka-go": module("github.com/segmentio/kafka-go"),
        "kafkajs": installed("kafkajs"),
        "platformatic": installed("@platformatic/kafka"),
        "old confluent": locked("confluent-kafka", "requirements.lock"),
        "old kafka-python": found(r"^kafka-python==(\S+)", PROGRAMS / "python" / "old-requirements.txt"),
        "spark": f"{connector} on Spark {locked('pyspark', 'spark/engine/requirements.lock')}",
        "tools": ", ".join(VERSIONS),
    }


def test_the_page_names_the_java_client_of_sparks_connector() -> None:
    kafka = found("<kafka.version>(.+)</kafka.version>", PROGRAMS / "spark" / "pom.xml")
    assert f"Spark's own Kafka connector, on Apache Kafka's Java client {kafka} " in section(
        "Tested versions", "## "
    )


def section(heading: str, end: str) -> str:
    page = (ROOT / "docs" / "clients.md").read_text()
    [text] = re.findall(rf"^## {heading}$(.*?)^{end}", page, re.MULTILINE | re.DOTALL)
    return str(text)


def test_the_page_names_the_versions_that_are_run() -> None:
    table = section("Tested versions", "## ")
    assert dict(re.findall(r"^\| `(.+?)` \| (.+?) \|", table, re.MULTILINE)) == pinned()


def test_every_client_of_the_matrix_is_on_the_page() -> None:
    assert {client.name for client in CLIENTS} <= set(pinned())


def test_each_of_kafkas_tools_that_is_run_is_on_the_page() -> None:
    text = section("Apache Kafka's tools", r"\Z")
    assert set(re.findall(r"`(kafka-[a-z-]+)", text)) == set(MAINS)
