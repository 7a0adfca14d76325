"""What Apache Kafka itself answers in place of a service that is lost: the error answers of its own requests."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
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


def kafkas_refusals(cases: Sequence[Refused]) -> list[bytes | None]:
    """The bodies of the answers, in their order; None if this Kafka does not know the version."""
    lines = (f"{case.key} {case.version} {int(case.code)} {case.body.hex()}\n" for case in cases)
    done = subprocess.run(
        [
            *dying_with_parent(),
            *JAVA,
            *("-cp", kafka_classpath(kafka_version()), str(KAFKA / "Refusals.java")),
        ],
        input="".join(lines),
        capture_output=True,
        text=True,
        timeout=JVM_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers = [bytes.fromhex(line) if line else None for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    return answers
