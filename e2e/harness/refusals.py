"""What Apache Kafka's own code makes of bytes: the error answers of its requests, in place of a service that is lost,
and the messages that its codec reads."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.wire.errors import ErrorCode

from e2e.harness.apache import KAFKA, kafka_classpath, kafka_version
from e2e.harness.kafka_tools import JAVA
from e2e.harness.services import dying_with_parent

JVM_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that is answered with this error."""

    key: int
    version: int
    code: ErrorCode
    body: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """The body of a request or of a response."""

    key: int
    version: int
    kind: str
    body: bytes


def kafkas_refusals(cases: Sequence[Refused]) -> list[bytes | None]:
    """The bodies of the answers, in their order; None if this Kafka does not know the version."""
    lines = (f"{case.key} {case.version} {int(case.code)} {case.body.hex()}" for case in cases)
    return [bytes.fromhex(line) if line else None for line in _run("Refusals.java", lines, len(cases))]


def read_by_kafka(messages: Sequence[Message]) -> list[tuple[bytes, str] | None]:
    """What Kafka writes of each after it has read it, and the message in Kafka's words; None if this Kafka does not
    know the version."""
    lines = (f"{one.key} {one.version} {one.kind} {one.body.hex()}" for one in messages)
    found: list[tuple[bytes, str] | None] = []
    for line in _run("Codec.java", lines, len(messages)):
        written, _, words = line.partition(" ")
        found.append((bytes.fromhex(written), words) if line else None)
    return found


def _run(program: str, lines: Iterable[str], answers: int) -> list[str]:
    """A line of answer for each line."""
    done = subprocess.run(
        [*dying_with_parent(), *JAVA, "-cp", kafka_classpath(kafka_version()), str(KAFKA / program)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=JVM_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = done.stdout.splitlines()
    assert len(found) == answers
    return found
