"""Random record batches as clients should not send them, and what Apache Kafka's LogValidator says of them in a JVM.

`plain_records` writes the batches, and other libraries than KafScale's compress them. kafka/Batches.java says what
the JVM reads and prints."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import lz4.frame  # type: ignore[import-untyped]
import snappy  # type: ignore[import-untyped]
import zstandard
from kafscale.testkit.plain_records import plain_batch, plain_record, varint

from e2e.harness.apache import KAFKA, kafka_classpath, kafka_version
from e2e.harness.kafka_tools import JAVA
from e2e.harness.services import dying_with_parent

JVM_TIMEOUT_S: Final = 300.0
NOW_MS: Final = 1_700_000_000_000
UNBOUNDED_MS: Final = (1 << 63) - 1
HOUR_MS: Final = 3_600_000
CODECS: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    0: bytes,
    1: gzip.compress,
    2: snappy.compress,
    3: lambda body: lz4.frame.compress(body, block_linked=False),
    4: zstandard.compress,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A batch for a topic. `body` are its records before they were compressed; None: it does not decompress."""

    batch: bytes
    body: bytes | None
    count: int
    base_ms: int = NOW_MS
    compacted: bool = False
    append_time: bool = False
    past_max_ms: int = UNBOUNDED_MS
    future_max_ms: int = HOUR_MS

    def as_line(self) -> str:
        flags = f"{self.compacted:d} {self.append_time:d}"
        return f"{flags} {NOW_MS} {self.past_max_ms} {self.future_max_ms} {self.batch.hex()}\n"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`newest_ms`: the largest timestamp that is stored, of a batch that is accepted. `named`: records that are
    refused."""

    code: int
    newest_ms: int
    named: Sequence[int]


def drawn_case(chance: Random) -> Case:
    """Of four batches, one is sound."""
    records = [_drawn_record(chance, number) for number in range(chance.choice((1, 2, 3, 70)))]
    body, count = b"".join(records), len(records)
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        body = _damaged(chance, body)
    if not chance.randrange(12):
        count = max(1, count + chance.choice((-1, 1)))
    codec = chance.choice(tuple(CODECS))
    packed = CODECS[codec](body)
    readable: bytes | None = body
    if codec and not chance.randrange(8):
        packed, readable = chance.choice((packed[: len(packed) // 2], b"garbage" * 9)), None
    base_ms = chance.choice((NOW_MS, NOW_MS, NOW_MS, -1, 0))
    max_ms = chance.choice((base_ms, -1, 0, NOW_MS, NOW_MS + 9, 1 << 62))
    return Case(
        batch=plain_batch(packed, count, base_ms=base_ms, max_ms=max_ms, attributes=codec),
        body=readable,
        count=count,
        base_ms=base_ms,
        compacted=chance.random() < 0.2,
        append_time=chance.random() < 0.1,
        past_max_ms=chance.choice((UNBOUNDED_MS, UNBOUNDED_MS, HOUR_MS)),
    )


def _drawn_record(chance: Random, number: int) -> bytes:
    return plain_record(
        number,
        chance.choice((None, b"", b"k", b"k" * 80)) if not chance.randrange(6) else b"key",
        chance.choice((None, b"", b"v", b"v" * 300)),
        time_ms=chance.choice((0, 0, 0, 1, 63, 64, 9_000, -5, HOUR_MS, HOUR_MS + 1, -HOUR_MS - 1)),
        headers=[(b"h", chance.choice((None, b"", b"x" * 70)))] * chance.choice((0, 0, 0, 1, 3)),
    )


def _damaged(chance: Random, body: bytes) -> bytes:
    at, byte = chance.randrange(len(body)), chance.randrange(256)
    changes = (
        body[:at] + bytes((byte,)) + body[at + 1 :],
        body[:at] + bytes((body[at] ^ 1 << byte % 8,)) + body[at + 1 :],
        body[:at] + bytes((byte,)) + body[at:],
        body[:at] + body[at + 1 :],
        body[: at + 1],
        body + bytes((byte,)) * chance.choice((1, 7)),
        body[:at] + varint(chance.choice((-1, -2, 1 << 31, -(1 << 31)))) + body[at + 1 :],
    )
    return chance.choice(changes) or b"\x00"


def kafkas_verdicts(cases: Sequence[Case]) -> list[Verdict]:
    """In their order."""
    answers = [line.split(" ") for line in kafkas_answers("Batches.java", [case.as_line() for case in cases])]
    return [
        Verdict(int(code), int(newest), [int(each) for each in named.split(",") if each != "-"])
        for code, newest, named in answers
    ]


def kafkas_answers(program: str, lines: Sequence[str]) -> list[str]:
    """What a program beside these harnesses answers to each line, from one JVM with Apache Kafka's classes."""
    done = subprocess.run(
        [*dying_with_parent(), *JAVA, "-cp", kafka_classpath(kafka_version()), str(KAFKA / program)],
        input="".join(lines),
        capture_output=True,
        text=True,
        timeout=JVM_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines)
    return answers
