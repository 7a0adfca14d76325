"""Builds and runs the programs that load a cluster, and reads what they print."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BUILT = HERE.parent / "out" / "bench"
KAFKA_POM = HERE / "kafka" / "pom.xml"
RUN_TIMEOUT_S = 600.0
RETRY_S = 0.2


def run(command: list[str], timeout_s: float = RUN_TIMEOUT_S) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)[:300]} exited {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
        )
    return done.stdout


@cache
def kafka_version() -> str:
    """Of the Apache Kafka that runs beside."""
    found = re.search(r"<kafka.version>(.+)</kafka.version>", KAFKA_POM.read_text())
    assert found is not None
    return found[1]


@cache
def kafka_classpath(version: str) -> str:
    """The jars of Apache Kafka and its tools. Maven is not asked again until the pom changes: it takes seconds."""
    folder = BUILT / f"kafka-{version}"
    made_of = folder / "made-of.xml"
    if not made_of.exists() or made_of.read_bytes() != KAFKA_POM.read_bytes():
        options = [f"-DbuildDirectory={folder}", f"-Dkafka.version={version}"]
        run(["mvn", "-q", "-B", "-f", str(KAFKA_POM), "package", *options])
        made_of.write_bytes(KAFKA_POM.read_bytes())
    return f"{folder}/lib/*"


@cache
def _load_program() -> str:
    BUILT.mkdir(parents=True, exist_ok=True)
    run(["go", "build", "-C", str(HERE / "go"), "-o", f"{BUILT}/", "./cmd/load"])
    return str(BUILT / "load")


def load(mode: str, bootstrap: str, topic: str, **options: int) -> dict[str, float]:
    """Runs the Go load program; what it measured."""
    flags = [f"-{name.replace('_', '')}={value}" for name, value in options.items()]
    out = run([_load_program(), f"-mode={mode}", f"-bootstrap={bootstrap}", f"-topic={topic}", *flags])
    found: dict[str, float] = json.loads(out)
    return found


def producer_performance(bootstrap: str, topic: str, records: int) -> dict[str, float]:
    """Apache Kafka's own ProducerPerformance: records/s, MB/s and its latencies in ms."""
    java = ["java", "-Xmx512m", "-cp", kafka_classpath(kafka_version())]
    out = run(
        [*java, "org.apache.kafka.tools.ProducerPerformance"]
        + ["--topic", topic, "--num-records", str(records), "--record-size", "1024", "--throughput", "-1"]
        + [
            "--producer-props",
            f"bootstrap.servers={bootstrap}",
            "acks=all",
            "batch.size=65536",
            "linger.ms=5",
        ]
    )
    last = out.strip().splitlines()[-1]
    found = re.search(r"([\d.]+) records/sec \(([\d.]+) MB/sec\).*?([\d.]+) ms 50th.*?([\d.]+) ms 99th", last)
    if found is None:
        raise RuntimeError(f"ProducerPerformance said: {last}")
    per_s, mb_per_s, p50, p99 = (float(group) for group in found.groups())
    return {"per_s": per_s, "mb_per_s": mb_per_s, "p50_ms": p50, "p99_ms": p99}


def waited(ask: Callable[[], Awaitable[Any]], timeout_s: float) -> Any:
    """The first answer; asked again and again until then."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return asyncio.run(_bounded(ask, 5.0))
        except (OSError, EOFError, TimeoutError):
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)


async def _bounded(ask: Callable[[], Awaitable[Any]], timeout_s: float) -> Any:
    async with asyncio.timeout(timeout_s):
        return await ask()
