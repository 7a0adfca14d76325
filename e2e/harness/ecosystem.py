"""Programs of Kafka's ecosystem beside a cluster: how they are built, run and killed, and what must be true of a copy.

`make ecosystem` runs them. A program reads the numbers 0, 1, 2 ... of a topic, and another topic, a file or another
cluster gets them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from e2e.harness.builds import SHORT_LIVED, build, built_once
from e2e.harness.clients import HERE, maven_built
from e2e.harness.load import read_everything
from e2e.harness.services import NotYet, dying_with_parent, until
from e2e.harness.transactional import read

PARTITIONS = 3
KEYS = 20
ARRIVES_WITHIN_S = 180.0
LOOKS_EVERY_S = 0.5  # a look reads a topic with a new consumer
STOP_TIMEOUT_S = 60.0
FLUSH_TIMEOUT_S = 60.0
ADMIN_TIMEOUT_S = 30.0
JAVA = (
    "java",
    "-Xmx384m",
    *SHORT_LIVED,
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)


@dataclass(slots=True)
class Program:
    """One process, and all that it starts. `start` may be called again after `stop` or `kill`."""

    name: str
    command: Sequence[str]
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    _process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def start(self) -> None:
        assert self._process is None, f"{self.name} runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*dying_with_parent(), *self.command],
                env={**os.environ, **self.env},
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        assert process is not None, f"{self.name} does not run"
        if process.poll() is None:
            os.killpg(process.pid, number)
        return process.wait(STOP_TIMEOUT_S)

    def wait(self) -> int:
        """Until it ends by itself; the exit code."""
        process, self._process = self._process, None
        assert process is not None, f"{self.name} does not run"
        try:
            return process.wait(ARRIVES_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process = process
            raise

    def close(self) -> None:
        """At the end of a test, whatever has happened."""
        if self._process is not None:
            self.kill()

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Fails at once if the program ends before."""

        def true() -> bool:
            assert self._process is not None, f"{self.name} does not run"
            assert self._process.poll() is None, f"{self.name} ended:\n{self.story()}"
            return condition()

        try:
            until(what, true, ARRIVES_WITHIN_S, LOOKS_EVERY_S)
        except NotYet as late:
            raise NotYet(f"{late}; {self.name} said:\n{self.story()}") from None

    def story(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])


def java(main: str, *arguments: str, project: str = "ecosystem") -> list[str]:
    """The command of a Java program of a framework, or of ours. `project`: the folder of clients that has both."""
    folder = maven_built(project)
    return [*JAVA, "-cp", f"{folder}/classes:{folder}/lib/*", main, *arguments]


@cache
def python_of(name: str) -> str:
    """The interpreter of an environment with a Python library for streams."""
    requirements = HERE / "stream_apps" / f"{name}-requirements.txt"

    def make(folder: Path) -> None:
        build([sys.executable, "-m", "venv", str(folder)], HERE)
        pip = [f"{folder}/bin/pip", "install", "-q", "--disable-pip-version-check"]
        build([*pip, "-r", str(requirements)], HERE)

    return str(built_once(f"stream-apps-{name}", make, of=[requirements]) / "bin" / "python")


def properties(path: Path, settings: Mapping[str, object]) -> Path:
    """Writes a file as Java reads it."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def create_topics(bootstrap: str, *names: str, config: Mapping[str, str] | None = None) -> None:
    wanted = [NewTopic(name, PARTITIONS, replication_factor=1, config=dict(config or {})) for name in names]
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its requests end with it
    for made in admin.create_topics(wanted).values():
        made.result(ADMIN_TIMEOUT_S)


def write(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
    """Each with one of KEYS keys; the key decides about the partition. All are acknowledged at the end."""
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in numbers:
        producer.produce(
            topic,
            str(number).encode(),
            key=f"key-{number % KEYS}".encode(),
            partition=number % KEYS % PARTITIONS,
            on_delivery=lambda error, _: errors.append(error.str()) if error else None,
        )
    left = producer.flush(FLUSH_TIMEOUT_S)
    assert (left, errors) == (0, [])


def values(bootstrap: str, topic: str) -> list[list[str]]:
    """By partition, in order."""
    found = read_everything(bootstrap, topic, PARTITIONS)
    return [[value.decode() for _, value in found[partition]] for partition in range(PARTITIONS)]


def read_as(isolation: str, bootstrap: str, topic: str) -> list[list[int]]:
    """The numbers by partition, in order, up to the end of a topic that may have transactions."""
    logs = (read(bootstrap, topic, isolation, partition) for partition in range(PARTITIONS))
    return [[int(value) for _, value in log] for log in logs]


def bounds(bootstrap: str, topic: str) -> dict[int, tuple[int, int]]:
    """Partition -> log start and high watermark."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bounds", "log_level": 0})
    try:
        places = (TopicPartition(topic, partition) for partition in range(PARTITIONS))
        return {each.partition: consumer.get_watermark_offsets(each, ADMIN_TIMEOUT_S) for each in places}
    finally:
        consumer.close()


def distinct(bootstrap: str, topic: str) -> int:
    return len({value for log in values(bootstrap, topic) for value in log})


def assert_complete(logs: Sequence[Sequence[str]], count: int, before: str = "") -> None:
    """Each number is there at least once, nothing else is, and the first copies of a key's numbers are in order."""
    first: dict[int, list[int]] = {}
    seen: set[int] = set()
    for log in logs:
        for value in log:
            assert value.startswith(before), value
            number = int(value.removeprefix(before))
            if number not in seen:
                seen.add(number)
                first.setdefault(number % KEYS, []).append(number)
    wanted = set(range(count))
    assert seen == wanted, f"missing: {sorted(wanted - seen)[:20]}, unknown: {sorted(seen - wanted)[:20]}"
    for key, numbers in first.items():
        assert numbers == sorted(numbers), f"key-{key} is not in order"
