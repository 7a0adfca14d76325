"""Programs that read, process and write exactly once, on real clients, and what their output must be."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.harness.clients import go_client, node_client, python_program
from e2e.harness.services import dying_with_parent, until
from e2e.harness.transactional import COMMITTED, OLDER_JAVA, java_command, read

CATCH_UP_S = 180.0
STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Copying:
    """One program, and the protocol of its consumer group."""

    client: str
    protocol: str = "classic"

    @property
    def name(self) -> str:
        return f"{self.client}-{self.protocol}"

    def command(self) -> list[str]:
        return COMMANDS[self.client]()


COMMANDS: Mapping[str, Callable[[], list[str]]] = {
    "java": lambda: java_command("Copier"),
    f"java-{OLDER_JAVA}": lambda: java_command("Copier", OLDER_JAVA),
    "confluent": python_program("copier.py"),
    "aiokafka": python_program("aiocopier.py"),
    "franz-go": go_client("franzcopier"),
    "sarama": go_client("saramacopier"),
    "kafkajs": node_client("copier.mjs"),
}
QUICK = (Copying("java"), Copying("java", "consumer"), Copying("confluent"))
ALL = (
    *QUICK,
    Copying(f"java-{OLDER_JAVA}"),
    Copying("aiokafka"),
    Copying("franz-go"),
    Copying("sarama"),
    Copying("kafkajs"),
)


@contextmanager
def copying(bootstrap: str, topic: str, copies: Sequence[Copying], folder: Path) -> Iterator[None]:
    """Each copies the topic to one of its own, until the block ends."""
    with ExitStack() as stack:
        for each in copies:
            log = stack.enter_context((folder / f"{each.name}.log").open("w"))
            names = {"from": topic, "to": f"{topic}-{each.name}", "group": each.name, "id": each.name}
            options = {"bootstrap": bootstrap, "protocol": each.protocol, **names}
            words = [word for name, value in options.items() for word in (f"--{name}", value)]
            process = subprocess.Popen(
                [*dying_with_parent(), *each.command(), *words], stdout=log, stderr=subprocess.STDOUT
            )
            stack.callback(_stop, process)
        yield


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def copied(bootstrap: str, topic: str, partitions: int, copies: Sequence[Copying]) -> list[str]:
    """A sentence for each partition whose copy is not what the topic has: the same records, once, in their order."""
    found: list[str] = []
    for partition in range(partitions):
        expected = [value for _, value in read(bootstrap, topic, COMMITTED, partition)]
        for each in copies:
            found += _differences(bootstrap, f"{topic}-{each.name}", partition, expected)
    return found


def _differences(bootstrap: str, to: str, partition: int, expected: Sequence[str]) -> list[str]:
    def seen() -> list[str]:
        return [value for _, value in read(bootstrap, to, COMMITTED, partition)]

    until(f"{to}/{partition} has all records", lambda: len(seen()) >= len(expected), CATCH_UP_S, every_s=1.0)
    found = seen()
    if found == expected:
        return []
    lost, strange = len(set(expected) - set(found)), len(set(found) - set(expected))
    doubled = len(found) - len(set(found))
    return [
        f"{to}/{partition}: of {len(expected)} records {lost} are lost, {doubled} doubled; {strange} are strange"
    ]
