"""docs/clients.md names the client versions of the lock files and build files, every tool of Kafka, and the security
settings with which clients run."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kafscale.runtime.grpc_identity import PemFiles

from e2e.harness.clients import CLIENTS
from e2e.harness.kafka_tools import MAINS, VERSIONS
from e2e.harness.secured_clients import CANNOT, CONNECTS_AGAIN, SECURED_CLIENTS
from e2e.harness.security_settings import (
    OAUTHBEARER,
    Security,
    Tokens,
    java,
    librdkafka,
    old_java,
)

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


TLS = Path("/tls")
ALICE = PemFiles(TLS / "alice.crt", TLS / "alice.key", TLS / "ca.crt")
TOKENS = Tokens(
    file=TLS / "token",
    url="https://issuer.example.com/token",
    ca=TLS / "issuer-ca.crt",
    secret="alices-secret",
)


def security(mechanism: str, own: PemFiles | None) -> Security:
    return Security(
        protocol="SASL_SSL",
        user="alice",
        password="alices-password",
        tokens=TOKENS,
        ca=TLS / "ca.crt",
        own=own,
        mechanism=mechanism,
    )


BY_PASSWORD, BY_TOKEN = security("SCRAM-SHA-512", ALICE), security(OAUTHBEARER, None)
SOURCES = {
    "franz-go": ("go/cmd/franz/security.go", "go/record/security.go"),
    "sarama": ("go/cmd/sarama/security.go", "go/record/security.go"),
    "kafka-python": ("python/kafkapython.py", "python/record.py"),
    "aiokafka": ("python/aio.py", "python/record.py"),
    "kafkajs": ("node/security.mjs",),
}


def secured_rows() -> dict[str, list[str]]:
    """client -> the other cells of its row in the table of security settings."""
    lines = re.findall(r"^\| (`.+?) \|$", section("Security", "## "), re.MULTILINE)
    rows = [line.split(" | ") for line in lines]
    return {name: cells for names, *cells in rows for name in re.findall("`(.+?)`", names)}


def test_the_page_shows_the_properties_with_which_clients_get_in() -> None:
    blocks = re.findall(r"```properties\n(.*?)\n```", section("Security", "## "), re.DOTALL)
    shown = [dict(line.split("=", 1) for line in block.splitlines()) for block in blocks]
    assert shown == [words(each) for words in (java, librdkafka) for each in (BY_PASSWORD, BY_TOKEN)]


def test_the_names_of_each_other_client_are_those_of_its_program() -> None:
    rows = secured_rows()
    for client, files in SOURCES.items():
        source = "".join((PROGRAMS / file).read_text() for file in files)
        names = [name for cell in rows[client][:3] for name in re.findall("`(.+?)`", cell)]
        absent = [name for name in names if name not in source and name not in SOURCES]
        assert absent == [], client
    old = " ".join(rows["java-2.1.1"])
    for name, value in old_java(BY_PASSWORD).items():
        if name.startswith("ssl."):
            assert (f"`{name}={value}`" if name.endswith("type") else f"`{name}`") in old


def test_every_secured_client_has_a_row_that_says_what_it_cannot() -> None:
    rows = secured_rows()
    assert list(rows) == [client.name for client in SECURED_CLIENTS]
    for name, cells in rows.items():
        assert cells[3].startswith("connects" if name in CONNECTS_AGAIN else "logs in"), name
        assert ("not by settings" in cells[2]) == ((name, OAUTHBEARER) in CANNOT), name
