"""The console shows what Confluent's serializers wrote: Avro, Protobuf with a file that imports another, JSON Schema.

The registry is Apicurio, which returns a Protobuf schema as the client registered it: as a descriptor, not as text.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from e2e.harness.apicurio import APPS, COMMAND_TIMEOUT_S, Registry
from e2e.harness.cluster import Cluster
from e2e.harness.console_page import console_of
from e2e.harness.ecosystem import FLUSH_TIMEOUT_S, Program, create_topics, python_of
from e2e.harness.kafka_tools import require_java

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(600)]

EXACT = (1 << 53) + 1
UNKNOWN = b"\0" + (999_999).to_bytes(4, "big") + b"\xff"


def written(bootstrap: str, registry: str, folder: Path) -> None:
    """By clients/stream_apps/on_schemas.py, and one record whose schema does not exist."""
    topics = [f"seen-{kind}" for kind in ("avro", "protobuf", "json", "unknown")]
    create_topics(bootstrap, *topics)
    files = ["people/person.proto", "order.proto"]
    protoc = [sys.executable, "-m", "grpc_tools.protoc", "-Iproto", f"--python_out={folder}", *files]
    subprocess.run(protoc, cwd=APPS, check=True, timeout=COMMAND_TIMEOUT_S)
    done = subprocess.run(
        [python_of("schemas"), "on_schemas.py", bootstrap, registry, str(folder)],
        cwd=APPS,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("seen-unknown", UNKNOWN, "key")
    assert producer.flush(FLUSH_TIMEOUT_S) == 0


def record(console: str, topic: str) -> dict[str, Any]:
    """The only one of a topic, as a page of records has it."""
    with urlopen(f"{console}/api/v1/topics/{topic}/records") as answer:
        found = json.load(answer)["items"]
    assert len(found) == 1
    return dict(found[0])


def shown(field: dict[str, Any]) -> tuple[str, str, str, Any]:
    """Format, name and subject of the schema, and the value."""
    assert "reason" not in field, field
    schema = field["schema"]
    return field["format"], schema["name"], schema["subject"], json.loads(field["text"])


def test_the_console_shows_what_serializers_wrote(
    cluster: Cluster, programs: list[Program], tmp_path: Path
) -> None:
    require_java()
    registry = Registry("registry", cluster.bootstrap, tmp_path)
    registry.started(programs)
    modules = tmp_path / "modules"
    modules.mkdir()
    written(cluster.bootstrap, registry.url, modules)
    where = ["--data-dir", str(cluster.data_dir)]
    with console_of([*where, "--schema-registry", registry.url]) as url:
        avro = record(url, "seen-avro")
        assert shown(avro["key"]) == ("avro", "Number", "seen-avro-key version 1", {"id": 1})
        assert shown(avro["value"])[3] == {"id": EXACT}
        protobuf = record(url, "seen-protobuf")
        # One schema of two subjects: the registry names either.
        assert shown(protobuf["key"])[::3] == ("protobuf", {"name": "Ada"})
        assert shown(protobuf["value"]) == (
            "protobuf",
            "shop.Order",
            "seen-protobuf-value version 1",
            {
                "id": str(EXACT),
                "buyer": {"name": "Ada"},
                "at": "1970-01-01T00:00:00.001Z",
                "lines": [{"sku": "a"}],
            },
        )
        in_json = record(url, "seen-json")
        assert shown(in_json["key"])[::3] == ("json", {"id": 1})
        assert shown(in_json["value"])[::3] == ("json", {"id": EXACT})
        unknown = record(url, "seen-unknown")
        assert unknown["key"]["text"] == "key"
        assert bytes.fromhex(unknown["value"]["text"]) == UNKNOWN
        missing = "not decoded by schema 999999: the registry does not have /schemas/ids/999999"
        assert unknown["value"]["reason"] == missing
    with console_of(where) as url:
        value = record(url, "seen-protobuf")["value"]
        assert "schema" not in value
        assert "the option --schema-registry decodes it" in value["reason"]
