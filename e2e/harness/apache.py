"""Apache Kafka from its jars, one node in KRaft mode: with its defaults, or with a flush to disk before each ack."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kafscale.runtime.ports import free_port
from kafscale.wire.schema import metadata

from e2e.harness.builds import SHORT_LIVED, build, built_once
from e2e.harness.raw import Closed, Raw
from e2e.harness.services import until

KAFKA = Path(__file__).parent / "kafka"
POM = KAFKA / "pom.xml"
METADATA_VERSION = 9
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
START_TIMEOUT_S = 180.0  # a few seconds on an idle machine


@cache
def kafka_version() -> str:
    """Of the Apache Kafka that runs for comparison."""
    found = re.search(r"<kafka.version>(.+)</kafka.version>", POM.read_text())
    assert found is not None
    return found[1]


@cache
def kafka_classpath(version: str) -> str:
    """The jars of Apache Kafka and its tools. Maven runs only if the pom has changed: it takes seconds."""

    def make(folder: Path) -> None:
        options = [f"-DbuildDirectory={folder}", f"-Dkafka.version={version}"]
        build(["mvn", "-q", "-B", "-f", str(POM), "package", *options], folder)

    return f"{built_once(f'kafka-{version}', make, of=[POM])}/lib/*"


@dataclass(slots=True)
class ApacheKafka:
    folder: Path
    flush_before_ack: bool
    port: int = field(default_factory=free_port)
    settings: Mapping[str, object] = field(default_factory=dict)
    features: Sequence[str] = ()  # name=level, if the default level of the version is wrong
    heap: str = "1g"
    jvm: Sequence[str] = SHORT_LIVED
    """Options of the JVM. A measurement takes none."""
    _process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        config = self._write_config()
        java = [
            "java",
            f"-Xmx{self.heap}",
            f"-Xms{self.heap}",
            *self.jvm,
            "-cp",
            kafka_classpath(kafka_version()),
        ]
        if not (self.folder / "log" / "meta.properties").exists():
            features = [part for feature in self.features for part in ("--feature", feature)]
            build(
                [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config), *features],
                self.folder,
            )
        with (self.folder / "kafka.log").open("ab") as log:
            self._process = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log)
        until("Apache Kafka answers", self._answers, START_TIMEOUT_S)

    def _answers(self) -> bool:
        request = metadata.encode_request(metadata.MetadataRequest(topics=[]), METADATA_VERSION)
        try:
            with Raw.to(self.bootstrap) as raw:
                raw.ask(metadata.API_KEY, METADATA_VERSION, request)
        except (OSError, Closed):
            return False
        return True

    def _write_config(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        controller = free_port()
        lines = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.folder / "log",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "num.partitions": 1,
            **self.settings,
        }
        if self.flush_before_ack:
            lines["log.flush.interval.messages"] = 1
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return path

    def restart(self) -> float:
        """Stops and starts; seconds until it answers."""
        self.stop()
        begin = time.monotonic()
        self.start()
        return time.monotonic() - begin

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)
